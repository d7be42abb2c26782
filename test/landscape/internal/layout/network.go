// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Network is the range of IPv4 addresses, a private /16, from which the addresses of a landscape follow. The zero value is the
// default network: its addresses are those of Gardener's own local setup, so that documentation and example manifests fit.
// Only the default has ranges outside of its /16, namely those of pods, Services and machines.
type Network struct {
	prefix netip.Prefix
}

// DefaultNetwork is the range of the zero Network.
const DefaultNetwork = "172.18.0.0/16"

// reserved are ranges that no landscape can use, and who has them: skaffold/gardenlet/values.yaml.
func reserved() map[string]string {
	return map[string]string{"10.3.0.0/16": "the pods of Shoots", "10.4.0.0/16": "the Services of Shoots"}
}

// ParseNetwork reads a network from its CIDR.
func ParseNetwork(cidr string) (Network, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || !prefix.Addr().Is4() || prefix.Bits() != 16 || prefix != prefix.Masked() || !prefix.Addr().IsPrivate() {
		return Network{}, fmt.Errorf("network %q is not a private IPv4 network of 16 bits; use one such as 172.30.0.0/16", cidr)
	}
	if owner, found := reserved()[prefix.String()]; found {
		return Network{}, fmt.Errorf("network %s is the range of %s; use another one such as 172.30.0.0/16", cidr, owner)
	}
	if cidr == DefaultNetwork {
		return Network{}, nil
	}
	return Network{prefix: prefix}, nil
}

// Candidates returns all networks but the default, in the order in which a message should propose them.
func Candidates() []Network {
	var all []Network
	add := func(first, second int) {
		if network, err := ParseNetwork(fmt.Sprintf("%d.%d.0.0/16", first, second)); err == nil && !network.IsDefault() {
			all = append(all, network)
		}
	}
	for second := 19; second <= 31; second++ {
		add(172, second)
	}
	add(192, 168)
	// Networks of companies and clouds tend to begin at 10.0.
	for second := 255; second >= 0; second-- {
		add(10, second)
	}
	return all
}

// Range is a part of a Network.
type Range struct {
	// Name says what has its addresses from the range, in plural.
	Name   string
	Prefix netip.Prefix
}

// Ranges returns every range of addresses that the landscape uses on this machine. None may be in use by anything else.
func (n Network) Ranges() []Range {
	return []Range{
		{"nodes", netip.MustParsePrefix(n.NodeCIDR())},
		{"host services and load balancers", netip.MustParsePrefix(n.address(255, 0) + "/24")},
		{"pods", netip.MustParsePrefix(n.PodCIDR())},
		{"Services", netip.MustParsePrefix(n.ServiceCIDR())},
		{"machines of Shoots", netip.MustParsePrefix(n.ShootNodeCIDR())},
	}
}

// IsDefault reports whether n is the default network.
func (n Network) IsDefault() bool { return n == Network{} }

// Prefix returns the network's range.
func (n Network) Prefix() netip.Prefix {
	if n.IsDefault() {
		return netip.MustParsePrefix(DefaultNetwork)
	}
	return n.prefix
}

// String returns the network's CIDR.
func (n Network) String() string { return n.Prefix().String() }

// MarshalText is for the default of a flag.
func (n Network) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText is for the value of a flag.
func (n *Network) UnmarshalText(text []byte) (err error) {
	*n, err = ParseNetwork(string(text))
	return err
}

// address returns the address of the network that ends with these two bytes.
func (n Network) address(third, fourth byte) string {
	bytes := n.Prefix().Addr().As4()
	bytes[2], bytes[3] = third, fourth
	return netip.AddrFrom4(bytes).String()
}

// Start is what all addresses of the network start with, such as 172.30.
func (n Network) Start() string { return strings.TrimSuffix(n.address(0, 0), ".0.0") }

// NodeIP is the node's address; kube-apiserver, kubelet and the cluster's DNS server listen on it.
func (n Network) NodeIP() string { return n.address(0, 2) }

// NodeCIDR is the range of the addresses of nodes.
func (n Network) NodeCIDR() string { return n.address(0, 0) + "/24" }

// HostServicesIP is where what runs beside the cluster (the registry) is reached from pods.
func (n Network) HostServicesIP() string { return n.address(255, 1) }

// VirtualGardenIP is the load balancer address of the virtual garden's istio ingress gateway.
func (n Network) VirtualGardenIP() string { return n.address(255, 3) }

// IngressIP is the load balancer address of a seed's nginx-ingress-controller.
func (n Network) IngressIP() string { return n.address(255, 4) }

// ZoneIPs are the load balancer addresses of the gateways of a seed's zones 0 to 2.
func (n Network) ZoneIPs() []string {
	return []string{n.address(255, 10), n.address(255, 11), n.address(255, 12)}
}

// HostDNSIP is the DNS server for programs on this machine.
func (n Network) HostDNSIP() string { return n.address(255, 53) }

// ExtensionHostDNSIP is the load balancer address of the extension's own CoreDNS. Its default is that of HostDNSIP, which is
// the landscape's here: that knows the registry too, and the node itself asks it before there is any extension.
func (n Network) ExtensionHostDNSIP() string { return n.address(255, 54) }

// LoadBalancerPool is where all other Services of type LoadBalancer get their addresses from in a seed.
func (n Network) LoadBalancerPool() string { return n.address(255, 128) + "/25" }

// PodCIDR is the range of the pods' addresses.
func (n Network) PodCIDR() string {
	if n.IsDefault() {
		return "10.244.0.0/16"
	}
	return n.address(64, 0) + "/18"
}

// ServiceCIDR is the range of the Services' addresses.
func (n Network) ServiceCIDR() string {
	if n.IsDefault() {
		return "10.96.0.0/16"
	}
	return n.address(32, 0) + "/20"
}

// ShootNodeCIDR is the range of the machines of the Shoots that `up` creates. The default is what their manifests have.
func (n Network) ShootNodeCIDR() string {
	if n.IsDefault() {
		return "10.250.0.0/16"
	}
	return n.address(128, 0) + "/18"
}

// service returns the address of a Service by its number in ServiceCIDR.
func (n Network) service(number byte) string {
	bytes := netip.MustParsePrefix(n.ServiceCIDR()).Addr().As4()
	bytes[3] = number
	return netip.AddrFrom4(bytes).String()
}

// KubernetesServiceIP is the address of the Service kubernetes: the first one of ServiceCIDR.
func (n Network) KubernetesServiceIP() string { return n.service(1) }

// ClusterDNSIP is the address of the cluster's DNS Service.
func (n Network) ClusterDNSIP() string { return n.service(10) }

// ExtensionDNSIP is the address which the extension's own CoreDNS Service is given (values of its chart).
func (n Network) ExtensionDNSIP() string { return n.service(53) }

// APIServer is the URL of the runtime cluster.
func (n Network) APIServer() string { return "https://" + n.NodeIP() + ":6443" }

// Registry is the address of the registry, as host:port.
func (n Network) Registry() string { return fmt.Sprintf("%s:%d", n.HostServicesIP(), RegistryPort) }

// Addresses returns every address of Interface.
func (n Network) Addresses() []string {
	first := []string{n.NodeIP(), n.HostServicesIP(), n.VirtualGardenIP(), n.IngressIP()}
	return slices.Concat(first, n.ZoneIPs(), []string{n.HostDNSIP(), n.ExtensionHostDNSIP()})
}

// networkFile has the network of the landscape that is up, or half up.
func (l Layout) networkFile() string { return l.State("network") }

// SaveNetwork writes down the network for later calls of Find.
func (l Layout) SaveNetwork() error {
	if err := WriteFile(l.networkFile(), []byte(l.Network.String()+"\n"), 0o644); err != nil {
		return fmt.Errorf("writing down the network: %w", err)
	}
	return nil
}

// loadNetwork reads what SaveNetwork wrote; there is the default without.
func (l Layout) loadNetwork() (Network, error) {
	content, err := os.ReadFile(filepath.Clean(l.networkFile()))
	if errors.Is(err, os.ErrNotExist) {
		return Network{}, nil
	}
	if err != nil {
		return Network{}, fmt.Errorf("reading the landscape's network: %w", err)
	}
	network, err := ParseNetwork(strings.TrimSpace(string(content)))
	if err != nil {
		return Network{}, fmt.Errorf("reading the landscape's network from %s: %w", l.networkFile(), err)
	}
	return network, nil
}
