// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
)

// inNetwork runs a test in a network of its own with the address 10.0.0.1/24.
func inNetwork(t *testing.T, test func(*WithT)) {
	t.Helper()
	g := NewWithT(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread ends with the goroutine, as it is not unlocked, and its network with it.
		runtime.LockOSThread()
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			t.Logf("Skipped: there is no network of its own to be had: %v", err)
			return
		}
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth1"}
		g.Expect(netlink.LinkAdd(link)).To(Succeed())
		for _, text := range []string{"10.0.0.1/24", "fd00::1/64"} {
			address, err := netlink.ParseAddr(text)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(netlink.AddrAdd(link, address)).To(Succeed())
		}
		for _, name := range []string{"eth0", "eth1"} {
			up, err := netlink.LinkByName(name)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(netlink.LinkSetUp(up)).To(Succeed())
		}
		test(g)
	}()
	<-done
}

func TestTheKernelKeepsRoutes(t *testing.T) {
	inNetwork(t, func(g *WithT) {
		k := linux{}
		g.Expect(k.routes()).To(BeEmpty(), "the route to the link's own network is not this program's")
		g.Expect(k.replace(routeTo("100.64.1.0/24", "10.0.0.2"))).To(Succeed())
		g.Expect(k.replace(routeTo("100.64.2.0/24", "10.0.0.3"))).To(Succeed())
		g.Expect(k.replace(routeTo("100.64.2.0/24", "10.0.0.4"))).To(Succeed())
		g.Expect(k.routes()).To(ConsistOf(routeTo("100.64.1.0/24", "10.0.0.2"), routeTo("100.64.2.0/24", "10.0.0.4")))
		g.Expect(k.replace(routeTo("100.64.3.0/24", "192.0.2.1"))).NotTo(Succeed(), "nobody knows the way to it")
		for range 2 {
			g.Expect(k.remove(routeTo("100.64.1.0/24", "10.0.0.2"))).To(Succeed())
		}
		g.Expect(k.replace(routeTo("fd00:1::/64", "fd00::2"))).To(Succeed())
		g.Expect(k.routes()).To(ConsistOf(routeTo("100.64.2.0/24", "10.0.0.4"), routeTo("fd00:1::/64", "fd00::2")))
	})
}

func TestTheKernelMasqueradesOnce(t *testing.T) {
	if _, err := exec.LookPath("iptables"); err != nil {
		t.Skip("there is no iptables")
	}
	inNetwork(t, func(g *WithT) {
		for range 2 {
			g.Expect(linux{}.masquerade(t.Context(), netip.MustParsePrefix(clusterPods))).To(Succeed())
			g.Expect(linux{}.masquerade(t.Context(), netip.MustParsePrefix("fd00:1::/56"))).To(Succeed())
		}
		for program, pods := range map[string]string{"iptables": clusterPods, "ip6tables": "fd00:1::/56"} {
			out, err := exec.CommandContext(t.Context(), program, "-t", "nat", "-S", "POSTROUTING").CombinedOutput()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(out)).To(MatchRegexp(`^-P POSTROUTING ACCEPT\n-A POSTROUTING -s ` + pods + ` ! -d ` + pods + ` .*-j MASQUERADE\n$`))
		}
	})
}
