// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind_test

import (
	"context"
	"io"
	"net"
	"regexp"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/gardener/gardener-extension-provider-local/test/kind"
)

// TestVirtualMachine has load balancers reached where the container engine runs in a virtual machine. It stands in for Docker Desktop
// and its like: machine and daemon share files and a socket, but are in different networks. What containers publish on the loopback of
// the one is on the loopback of the other, by relay, and nothing else is.
func TestVirtualMachine(t *testing.T) {
	m := newMachineWith(t, func(docker *kind.Docker) { docker.Apart = true })
	g := NewWithT(t)
	here, there, err := m.docker.Networks()
	g.Expect(err).NotTo(HaveOccurred())
	relay(m, here, there)
	before := m.state()
	m.run("make kind-up")
	m.run("docker tag $PROBE_IMAGE 127.0.0.1:5001/probe:test && docker push --quiet 127.0.0.1:5001/probe:test")
	m.run(`version=$(kubectl -n kube-system get deployment coredns -o jsonpath='{..image}')
sed "s/VERSION/${version##*:}/" test/kind/nameserver.yaml | kubectl apply -f -
kubectl apply -f test/kind/agent.yaml -f test/kind/policies.yaml
kubectl wait pod --all --for condition=Ready --timeout 2m || { kubectl describe pods; exit 1; }`)
	_, err = m.get("172.18.255.130:80", "/")()
	g.Expect(err).To(HaveOccurred(), "this network is another one")

	// balance does as the extension's Service controller.
	balance := func(service, address string) {
		m.run(`kubectl patch service ` + service + ` --patch '{"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false}}'
kubectl patch service ` + service + ` --subresource status --patch '{"status": {"loadBalancer": {"ingress": [{"ip": "` + address + `"}]}}}'`)
	}
	balance("server", "172.18.255.3")
	balance("agent", "172.18.255.131")
	balance("coredns", "172.18.255.53")
	for address, says := range map[string]string{"172.18.255.3:80": `"name":"server"`, "172.18.255.131:80": `["10.2.0.1"]`} {
		g.Eventually(m.get(address, "/resolve?name=kubernetes.default.svc.cluster.local")).WithTimeout(time.Minute).Should(ContainSubstring(says), address)
	}
	for _, network := range []string{"udp", "tcp"} {
		g.Eventually(func() ([]string, error) {
			resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (connection net.Conn, err error) {
				within(here, func() { connection, err = (&net.Dialer{}).DialContext(ctx, network, "172.18.255.53:53") })
				return connection, err
			}}
			return resolver.LookupHost(t.Context(), "api.virtual-garden.local.gardener.cloud.")
		}).WithTimeout(time.Minute).Should(ConsistOf("192.0.2.7"), network)
	}

	m.run("kubectl delete service server")
	g.Eventually(func() error { _, err := m.get("172.18.255.3:80", "/")(); return err }).WithTimeout(time.Minute).Should(HaveOccurred(), "it is gone")
	m.run("docker stop --time 1 gardener-local-control-plane")
	m.run("make kind-up")
	g.Eventually(m.get("172.18.255.131:80", "/resolve?name=kubernetes.default.svc.cluster.local")).WithTimeout(2*time.Minute).
		Should(ContainSubstring(`["10.2.0.1"]`), "after a restart")
	m.run("make kind-down")
	g.Expect(m.state()).To(ConsistOf(before))
}

var published = regexp.MustCompile(`127\.0\.0\.1:(\d+)->\d+/tcp`)

// relay has the loopback of a network pass on what containers publish on that of another, as long as the test runs.
func relay(m machine, here, there string) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		listeners := map[string]net.Listener{}
		for {
			ports := map[string]bool{}
			out, err := m.docker.Run(ctx, "docker", "ps", "--format", "{{.Ports}}")
			for _, match := range published.FindAllStringSubmatch(out, -1) {
				ports[match[1]] = true
			}
			for port := range ports {
				if listeners[port] == nil {
					within(here, func() {
						if listener, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
							listeners[port] = listener
							go pass(listener, there, port)
						}
					})
				}
			}
			for port, listener := range listeners {
				if ctx.Err() != nil || err == nil && !ports[port] {
					_ = listener.Close()
					delete(listeners, port)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	m.Cleanup(func() { stop(); <-ended })
}

func pass(listener net.Listener, network, port string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = client.Close() }()
			var server net.Conn
			within(network, func() { server, err = net.Dial("tcp", "127.0.0.1:"+port) })
			if err != nil {
				return
			}
			defer func() { _ = server.Close() }()
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(client, server)
		}()
	}
}

// within calls a function in a network namespace.
func within(network string, call func()) {
	// The thread must not end: it may be the one that has started the daemon, which ends with it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(own) }()
	file, err := unix.Open(network, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(file) }()
	if unix.Setns(file, unix.CLONE_NEWNET) != nil {
		return
	}
	call()
	if err := unix.Setns(own, unix.CLONE_NEWNET); err != nil {
		panic(err)
	}
}
