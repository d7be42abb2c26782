// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestTheAddressesFollowFromTheNetwork(t *testing.T) {
	for _, test := range []struct {
		name, network string
		want          map[string]string
		addresses     []string
	}{
		{
			name: "the default has those of Gardener's local setup", network: layout.DefaultNetwork,
			want: map[string]string{
				"node": "172.18.0.2", "nodes": "172.18.0.0/24", "host services": "172.18.255.1", "virtual garden": "172.18.255.3",
				"ingress": "172.18.255.4", "host DNS": "172.18.255.53", "extension host DNS": "172.18.255.54", "pool": "172.18.255.128/25",
				"pods": "10.244.0.0/16", "services": "10.96.0.0/16", "kubernetes": "10.96.0.1", "DNS": "10.96.0.10", "extension DNS": "10.96.0.53",
				"machines": "10.250.0.0/16", "API server": "https://172.18.0.2:6443", "registry": "172.18.255.1:5001", "start": "172.18",
			},
			addresses: []string{
				"172.18.0.2", "172.18.255.1", "172.18.255.3", "172.18.255.4", "172.18.255.10", "172.18.255.11", "172.18.255.12",
				"172.18.255.53", "172.18.255.54",
			},
		},
		{
			name: "another one has all in itself", network: "10.77.0.0/16",
			want: map[string]string{
				"node": "10.77.0.2", "nodes": "10.77.0.0/24", "host services": "10.77.255.1", "virtual garden": "10.77.255.3",
				"ingress": "10.77.255.4", "host DNS": "10.77.255.53", "extension host DNS": "10.77.255.54", "pool": "10.77.255.128/25",
				"pods": "10.77.64.0/18", "services": "10.77.32.0/20", "kubernetes": "10.77.32.1", "DNS": "10.77.32.10", "extension DNS": "10.77.32.53",
				"machines": "10.77.128.0/18", "API server": "https://10.77.0.2:6443", "registry": "10.77.255.1:5001", "start": "10.77",
			},
			addresses: []string{
				"10.77.0.2", "10.77.255.1", "10.77.255.3", "10.77.255.4", "10.77.255.10", "10.77.255.11", "10.77.255.12", "10.77.255.53",
				"10.77.255.54",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			n, err := layout.ParseNetwork(test.network)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(n.String()).To(Equal(test.network))
			g.Expect(map[string]string{
				"node": n.NodeIP(), "nodes": n.NodeCIDR(), "host services": n.HostServicesIP(), "virtual garden": n.VirtualGardenIP(),
				"ingress": n.IngressIP(), "host DNS": n.HostDNSIP(), "extension host DNS": n.ExtensionHostDNSIP(), "pool": n.LoadBalancerPool(),
				"pods": n.PodCIDR(), "services": n.ServiceCIDR(), "kubernetes": n.KubernetesServiceIP(), "DNS": n.ClusterDNSIP(),
				"extension DNS": n.ExtensionDNSIP(), "machines": n.ShootNodeCIDR(), "API server": n.APIServer(), "registry": n.Registry(),
				"start": n.Start(),
			}).To(Equal(test.want))
			g.Expect(n.Addresses()).To(Equal(test.addresses))
		})
	}
}

func TestTheRangesAreDisjointAndHaveAllAddresses(t *testing.T) {
	for _, cidr := range []string{layout.DefaultNetwork, "172.30.0.0/16"} {
		t.Run(cidr, func(t *testing.T) {
			g := NewWithT(t)
			n, err := layout.ParseNetwork(cidr)
			g.Expect(err).NotTo(HaveOccurred())
			ranges := n.Ranges()
			for i, one := range ranges {
				g.Expect(one.Name).NotTo(BeEmpty())
				g.Expect(one.Prefix).To(Equal(one.Prefix.Masked()))
				g.Expect(n.IsDefault() || n.Prefix().Overlaps(one.Prefix)).To(BeTrue(), "%s are in the network", one.Name)
				for _, other := range ranges[i+1:] {
					g.Expect(one.Prefix.Overlaps(other.Prefix)).To(BeFalse(), "%s and %s", one.Name, other.Name)
				}
			}
			holds := func(address string) bool {
				for _, r := range ranges {
					if r.Prefix.Contains(netip.MustParseAddr(address)) {
						return true
					}
				}
				return false
			}
			for _, address := range append(n.Addresses(), n.ClusterDNSIP(), netip.MustParsePrefix(n.LoadBalancerPool()).Addr().String()) {
				g.Expect(holds(address)).To(BeTrue(), address)
			}
			g.Expect(holds("192.0.2.1")).To(BeFalse())
		})
	}
}

func TestParseNetwork(t *testing.T) {
	for _, test := range []struct{ name, cidr, err string }{
		{name: "takes a private /16", cidr: "172.30.0.0/16"},
		{name: "takes the default", cidr: layout.DefaultNetwork},
		{name: "refuses nothing at all", cidr: "", err: "is not a private IPv4 network of 16 bits; use one such as 172.30.0.0/16"},
		{name: "refuses an address", cidr: "172.30.0.0", err: "is not a private IPv4 network"},
		{name: "refuses a smaller network", cidr: "172.30.0.0/24", err: "is not a private IPv4 network"},
		{name: "refuses a larger network", cidr: "10.0.0.0/8", err: "is not a private IPv4 network"},
		{name: "refuses an address within a network", cidr: "172.30.0.1/16", err: "is not a private IPv4 network"},
		{name: "refuses a public network", cidr: "8.8.0.0/16", err: "is not a private IPv4 network"},
		{name: "refuses the network of carriers, which virtual gardens use", cidr: "100.64.0.0/16", err: "is not a private IPv4 network"},
		{name: "refuses IPv6", cidr: "fd00::/16", err: "is not a private IPv4 network"},
		{name: "refuses IPv4 in the guise of IPv6", cidr: "::ffff:172.30.0.0/16", err: "is not a private IPv4 network"},
		{name: "refuses what the pods of Shoots use", cidr: "10.3.0.0/16", err: "is the range of the pods of Shoots"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			var n layout.Network
			err := n.UnmarshalText([]byte(test.cidr))
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(n.MarshalText()).To(BeEquivalentTo(test.cidr))
			g.Expect(n.IsDefault()).To(Equal(test.cidr == layout.DefaultNetwork))
		})
	}
}

func TestCandidates(t *testing.T) {
	g := NewWithT(t)
	var all []string
	for _, candidate := range layout.Candidates() {
		g.Expect(layout.ParseNetwork(candidate.String())).To(Equal(candidate))
		all = append(all, candidate.String())
	}
	g.Expect(all[0]).To(Equal("172.19.0.0/16"))
	g.Expect(all[12:15]).To(Equal([]string{"172.31.0.0/16", "192.168.0.0/16", "10.255.0.0/16"}))
	g.Expect(all).To(HaveLen(13 + 1 + 256 - 2))
	g.Expect(all).NotTo(ContainElement(layout.DefaultNetwork))
	g.Expect(all).NotTo(ContainElement("10.4.0.0/16"))
}

func TestFindKnowsTheNetworkOfTheLandscapeThatIsThere(t *testing.T) {
	for _, test := range []struct{ name, content, network, err string }{
		{name: "the default without one", network: layout.DefaultNetwork},
		{name: "the one that was saved", content: "172.30.0.0/16\n", network: "172.30.0.0/16"},
		{name: "nothing it can't read", content: "172.30.0.0/24\n", err: ".landscape/network: network \"172.30.0.0/24\" is not"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			l := layout.Layout{Root: t.TempDir()}
			g.Expect(os.WriteFile(filepath.Join(l.Root, "go.mod"), []byte("module github.com/gardener/gardener-extension-provider-local\n"), 0o600)).To(Succeed())
			if test.content != "" {
				g.Expect(os.MkdirAll(l.State(), 0o700)).To(Succeed())
				g.Expect(os.WriteFile(l.State("network"), []byte(test.content), 0o600)).To(Succeed())
			}
			found, err := layout.Find(l.Root)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.Network.String()).To(Equal(test.network))
			if test.content != "" {
				g.Expect(found.SaveNetwork()).To(Succeed())
				g.Expect(os.ReadFile(l.State("network"))).To(BeEquivalentTo(test.content))
			}
		})
	}
}
