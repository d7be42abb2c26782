// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"net/netip"
	"slices"
)

// Network is the range of IPv4 addresses, a /16, that a landscape has its addresses from. The zero value is the default
// network: its addresses are those of Gardener's own local setup, so that documentation and example manifests fit.
type Network struct {
	prefix netip.Prefix
}

// DefaultNetwork is the range of the zero Network.
const DefaultNetwork = "172.18.0.0/16"

// String returns the network's range.
func (n Network) String() string {
	if n.prefix.IsValid() {
		return n.prefix.String()
	}
	return DefaultNetwork
}

// address returns the address of the network that ends with these two bytes.
func (n Network) address(third, fourth byte) string {
	bytes := netip.MustParsePrefix(n.String()).Addr().As4()
	bytes[2], bytes[3] = third, fourth
	return netip.AddrFrom4(bytes).String()
}

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
func (n Network) PodCIDR() string { return "10.244.0.0/16" }

// ServiceCIDR is the range of the Services' addresses.
func (n Network) ServiceCIDR() string { return "10.96.0.0/16" }

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
