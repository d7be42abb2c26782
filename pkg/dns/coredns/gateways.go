// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

const (
	// seedGateways is the namespace of a seed's gateway, gardenGateways that of the virtual garden's.
	seedGateways   = v1beta1constants.DefaultSNIIngressNamespace
	gardenGateways = "virtual-garden-" + v1beta1constants.DefaultSNIIngressNamespace
	// ingressController is the name of the Service of Gardener's Ingress controller.
	ingressController = "nginx-ingress-controller"
)

// gateway is a Service of type LoadBalancer that has an address.
type gateway struct {
	service types.NamespacedName
	// addresses are those that it is reached at from outside: addresses and host names, as in the values of a record.
	addresses []string
	// clusterIPs are those that it is reached at in the cluster.
	clusterIPs []string
}

// gateways finds the Service behind an address.
type gateways struct {
	// namespace is that of the gateway which is preferred where no zone's is.
	namespace string
	services  map[types.NamespacedName]gateway
	// zones are the zones of the namespaces that are in one only.
	zones map[string]string
}

func newGateways(namespace string) *gateways {
	return &gateways{
		namespace: namespace,
		services:  map[types.NamespacedName]gateway{},
		zones:     map[string]string{},
	}
}

// setZone takes over in which zone a namespace is, with an empty text for none or several, and returns whether that
// makes a difference.
func (g *gateways) setZone(namespace, zone string) bool {
	if g.zones[namespace] == zone {
		return false
	}
	g.zones[namespace] = zone
	if zone == "" {
		delete(g.zones, namespace)
	}
	return true
}

// set takes over what is known of a Service and returns the addresses for which it makes a difference.
func (g *gateways) set(next gateway) []string {
	old := g.services[next.service]
	if slices.Equal(old.addresses, next.addresses) && slices.Equal(old.clusterIPs, next.clusterIPs) {
		return nil
	}
	g.services[next.service] = next
	if len(next.addresses) == 0 {
		delete(g.services, next.service)
	}
	return sets.List(sets.New(slices.Concat(old.addresses, next.addresses)...))
}

// find returns the one gateway that all records of a name point to. Where several gateways share the address, as all do that
// have the host's, rank tells which it is.
func (g *gateways) find(records []dns.Record) (gateway, bool) {
	var candidates []gateway
	for _, candidate := range g.services {
		if len(records) > 0 && candidate.serves(records) {
			candidates = append(candidates, candidate)
		}
	}
	if len(candidates) == 0 {
		return gateway{}, false
	}
	return slices.MinFunc(candidates, func(a, b gateway) int {
		return cmp.Or(cmp.Compare(g.rank(a.service, records), g.rank(b.service, records)),
			cmp.Compare(a.service.Namespace, b.service.Namespace), cmp.Compare(a.service.Name, b.service.Name))
	}), true
}

// serves reports whether all records of a name point to a gateway that has an address in the cluster of every family that the
// records have. A rewrite is for a name, not for a type: without one, clients would lose that family.
func (g gateway) serves(records []dns.Record) bool {
	for _, record := range records {
		for _, value := range record.Values {
			if !slices.Contains(g.addresses, value) {
				return false
			}
		}
		if record.Type == dns.TypeTXT || record.Type != dns.TypeCNAME && len(g.ofType(record.Type)) == 0 {
			return false
		}
	}
	return true
}

// rank tells how likely a gateway is the one that the records of a name mean, where their values don't tell; the lowest
// is it. What was made for an Ingress, and the wildcards of a seed's Ingress domain, mean the Ingress controller; what is
// in the namespace of a control plane with a zone of its own means that zone's gateway.
func (g *gateways) rank(key types.NamespacedName, records []dns.Record) int {
	record := records[0]
	zone, ok := g.zones[record.Owner.Namespace]
	switch {
	case key.Name == ingressController && (record.Ingress || strings.HasPrefix(record.Name, "*.")):
		return 0
	case ok && key.Namespace == loadbalancer.GatewayNamespace(zone):
		return 1
	case key.Namespace == g.namespace:
		return 2
	default:
		return 3
	}
}

// ofType returns the addresses in the cluster that a query for A or AAAA gets.
func (g gateway) ofType(recordType string) []string {
	var addresses []string
	for _, ip := range g.clusterIPs {
		if strings.Contains(ip, ":") == (recordType == dns.TypeAAAA) {
			addresses = append(addresses, ip)
		}
	}
	return addresses
}

// gatewayOf returns what is known of a Service; one that is no gateway has no addresses.
func gatewayOf(service *corev1.Service) gateway {
	g := gateway{service: client.ObjectKeyFromObject(service)}
	for _, ip := range service.Spec.ClusterIPs {
		// A headless Service has "None" here: its name leads to its pods, not to an address of its own.
		if address, err := netip.ParseAddr(ip); err == nil {
			g.clusterIPs = append(g.clusterIPs, address.String())
		}
	}
	if len(g.clusterIPs) == 0 || service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.DeletionTimestamp != nil {
		return gateway{service: g.service}
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if address, err := netip.ParseAddr(ingress.IP); err == nil {
			g.addresses = append(g.addresses, address.Unmap().String())
		}
		if ingress.Hostname != "" {
			g.addresses = append(g.addresses, strings.ToLower(strings.TrimSuffix(ingress.Hostname, ".")))
		}
	}
	return g
}

// singleZone returns the zone of a control plane that is in just one, or an empty text. As gardenlet exposes it, a
// control plane in one zone is behind the gateway of that zone, any other behind the one of all zones.
func singleZone(namespace client.Object) string {
	zones := sets.New(strings.Split(namespace.GetAnnotations()[resourcesv1alpha1.HighAvailabilityConfigZones], ",")...).Delete("")
	if zones.Len() != 1 {
		return ""
	}
	return zones.UnsortedList()[0]
}
