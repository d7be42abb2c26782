// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build landscape

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// Addresses in the network of kind, and of a Service in each family.
const (
	bridgeV4, bridgeV6   = "172.18.0.1", "fc00:f853:ccd:e793::1"
	nodeV4, nodeV6       = "172.18.0.2", "fc00:f853:ccd:e793::2"
	podV4, podV6         = "10.1.0.5", "fd00:10:1::5"
	poolV4, poolV6       = "172.18.255.128/25", "fd00:ff::1:0/120"
	serviceV4, serviceV6 = "172.18.255.130", "fd00:ff::1:2"
	unusedV4, unusedV6   = "172.18.255.131", "fd00:ff::1:3"
)

// namespace is a network namespace: a machine, a node or a pod. It goes with the process that holds it.
type namespace struct {
	t   *testing.T
	pid int
}

func newNamespace(t *testing.T) namespace {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cat")
	stdin, err := cmd.StdinPipe()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	NewWithT(t).Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	n := namespace{t: t, pid: cmd.Process.Pid}
	n.run("ip link set lo up")
	return n
}

// command is one that runs in the namespace.
func (n namespace) command(args ...string) *exec.Cmd {
	return exec.CommandContext(n.t.Context(), "nsenter", append([]string{"-t", strconv.Itoa(n.pid), "-n"}, args...)...)
}

// run runs a line of shell for each of the lines, and returns what they print.
func (n namespace) run(lines string) string {
	n.t.Helper()
	out, err := n.command("sh", "-euc", lines).CombinedOutput()
	NewWithT(n.t).Expect(err).NotTo(HaveOccurred(), "%s\n%s", lines, out)
	return string(out)
}

// enter calls a function on a thread that is in the namespace, and ends the thread. Sockets stay in their namespace.
func (n namespace) enter(call func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", n.pid))
		if err == nil {
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
			_ = file.Close()
		}
		if err == nil {
			err = call()
		}
		done <- err
	}()
	return <-done
}

// ask connects from the namespace and returns what it is told.
func (n namespace) ask(network, address string) (string, error) {
	var answer string
	err := n.enter(func() error {
		connection, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(n.t.Context(), network, address)
		if err != nil {
			return err
		}
		defer func() { _ = connection.Close() }()
		if err := connection.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		if _, err := connection.Write([]byte("?")); err != nil {
			return err
		}
		buffer := make([]byte, 64)
		count, err := connection.Read(buffer)
		answer = string(buffer[:count])
		return err
	})
	return answer, err
}

// serve answers in the namespace, on ports 8080 by TCP and 5353 by UDP.
func (n namespace) serve() {
	n.t.Helper()
	g := NewWithT(n.t)
	g.Expect(n.enter(func() error {
		var config net.ListenConfig
		listener, err := config.Listen(context.Background(), "tcp", ":8080")
		if err != nil {
			return err
		}
		packets, err := config.ListenPacket(context.Background(), "udp", ":5353")
		if err != nil {
			return err
		}
		n.t.Cleanup(func() {
			_ = listener.Close()
			_ = packets.Close()
		})
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = connection.Write([]byte("pod"))
				_ = connection.Close()
			}
		}()
		go func() {
			for buffer := make([]byte, 64); ; {
				_, client, err := packets.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = packets.WriteTo([]byte("pod"), client)
			}
		}()
		return nil
	})).To(Succeed())
}

// routes are all that decides where packets go, but for what the kernel adds by itself for link-local addresses.
func (n namespace) routes() string {
	n.t.Helper()
	return n.run("(ip -4 route show table all; ip -6 route show table all; ip -o address show dev lo) | grep -v fe80")
}

// newKind makes a machine, a node of kind in a network with it, and a pod on the node, with rules like kube-proxy's for one
// Service of mode VIP.
func newKind(t *testing.T) (machine, node namespace) {
	t.Helper()
	machine, node = newNamespace(t), newNamespace(t)
	pod := newNamespace(t)
	machine.run(fmt.Sprintf(`ip link add kind type bridge
ip address add %s/16 dev kind; ip address add %s/64 dev kind nodad
ip link add veth type veth peer name eth0 netns %d
ip link set veth master kind up; ip link set kind up`, bridgeV4, bridgeV6, node.pid))
	node.run(fmt.Sprintf(`ip address add %s/16 dev eth0; ip address add %s/64 dev eth0 nodad; ip link set eth0 up
ip route add default via %s; ip -6 route add default via %s
ip link add pod type veth peer name eth0 netns %d; ip link set pod up
ip route add %s dev pod; ip -6 route add %s dev pod
ip address add 169.254.1.1/32 dev pod; ip address add fd00:10::1/128 dev pod nodad
echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding`, nodeV4, nodeV6, bridgeV4, bridgeV6, pod.pid, podV4, podV6))
	pod.run(fmt.Sprintf(`ip address add %s/32 dev eth0; ip address add %s/128 dev eth0 nodad; ip link set eth0 up
ip route add 169.254.1.1 dev eth0; ip route add default via 169.254.1.1
ip -6 route add fd00:10::1 dev eth0; ip -6 route add default via fd00:10::1`, podV4, podV6))
	pod.serve()

	for command, service := range map[string][2]string{"iptables": {serviceV4, podV4}, "ip6tables": {serviceV6, "[" + podV6 + "]"}} {
		node.run(strings.NewReplacer("CMD", command, "SERVICE", service[0], "POD", service[1]).Replace(
			`CMD -t nat -A PREROUTING -d SERVICE -p tcp --dport 80 -j DNAT --to-destination POD:8080
CMD -t nat -A PREROUTING -d SERVICE -p udp --dport 53 -j DNAT --to-destination POD:5353
CMD -t nat -A POSTROUTING -o pod -j MASQUERADE`))
	}
	return machine, node
}

// fakeDocker writes a program that answers for Docker what skaffold/kind/loadbalancers asks it about the node.
func fakeDocker(t *testing.T, node namespace) string {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf(`#!/bin/sh
case "$1 $3" in
"inspect "*State*) echo true ;;
"inspect "*IPv6*) printf '\n%s\n' ;;
"inspect "*) printf '%s\n\n' ;;
"exec "*) shift 2; exec nsenter -t %d -n "$@" ;;
*) exit 1 ;;
esac
`, nodeV6, nodeV4, node.pid)
	NewWithT(t).Expect(os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o700)).To(Succeed()) // #nosec G306 -- a program.
	return dir
}

// TestANodeOfKindAnswersForThePool shows in network namespaces what skaffold/kind/loadbalancers does on a machine with kind: one
// node takes in packets to a range of addresses that nobody has, and kube-proxy's rules lead those of a Service to a pod.
//
//	go test -C test/landscape -tags landscape -run TestANodeOfKindAnswersForThePool -v .
func TestANodeOfKindAnswersForThePool(t *testing.T) {
	g := NewWithT(t)
	machine, node := newKind(t)
	path := fakeDocker(t, node) + ":" + os.Getenv("PATH")
	script := func(args ...string) {
		t.Helper()
		cmd := machine.command(append([]string{"../../skaffold/kind/loadbalancers"}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+path)
		out, err := cmd.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
	}
	pools := []string{"--node", "node", "--pool", poolV4, "--pool", poolV6}
	before := []string{machine.routes(), node.routes()}
	for _, service := range []string{serviceV4, serviceV6} {
		_, err := machine.ask("tcp", net.JoinHostPort(service, "80"))
		g.Expect(err).To(HaveOccurred(), "nobody has the address yet")
	}

	for range 2 {
		script(append([]string{"pool", "add"}, pools...)...)
		for _, service := range []string{serviceV4, serviceV6} {
			g.Eventually(func() (string, error) { return machine.ask("tcp", net.JoinHostPort(service, "80")) }, "10s").
				To(Equal("pod"), "%s by TCP, as soon as ARP has given up what nobody answered before", service)
			g.Expect(machine.ask("udp", net.JoinHostPort(service, "53"))).To(Equal("pod"), "%s by UDP", service)
		}
	}
	for _, unused := range []string{unusedV4, unusedV6} {
		_, err := machine.ask("tcp", net.JoinHostPort(unused, "80"))
		g.Expect(err).To(MatchError(syscall.ECONNREFUSED), "%s is refused at once", unused)
	}
	mac := strings.TrimSpace(node.run("ip -o link show dev eth0 | sed 's/.*link.ether \\([^ ]*\\).*/\\1/'"))
	g.Expect(machine.run("ip neighbour show "+serviceV4)).To(ContainSubstring(mac), "the node answers ARP for an address that no device has")
	g.Expect(node.run("ip -o address")).NotTo(ContainSubstring(serviceV4))

	for range 2 {
		script(append([]string{"pool", "remove"}, pools...)...)
	}
	g.Expect([]string{machine.routes(), node.routes()}).To(Equal(before))

	for range 2 {
		script("addresses", "add", "--address", "172.18.255.1", "--address", "fd00:ff::1")
	}
	g.Expect(machine.run("ip -o address show dev lo")).To(And(ContainSubstring("172.18.255.1/32"), ContainSubstring("fd00:ff::1/128")))
	for range 2 {
		script("addresses", "remove", "--address", "172.18.255.1", "--address", "fd00:ff::1")
	}
	g.Expect(machine.routes()).To(Equal(before[0]))
}
