// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
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
	byAddress map[string]map[types.NamespacedName]struct{}
	// zones are the zones of the namespaces that are in one only.
	zones map[string]string
}

func newGateways(namespace string) *gateways {
	return &gateways{
		namespace: namespace,
		services:  map[types.NamespacedName]gateway{},
		byAddress: map[string]map[types.NamespacedName]struct{}{},
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

// set takes over a Service and returns the addresses for which it makes a difference.
func (g *gateways) set(service *corev1.Service) []string {
	key := client.ObjectKeyFromObject(service)
	next := gatewayOf(service)
	if len(next.addresses) == 0 || len(next.clusterIPs) == 0 {
		return g.remove(key)
	}
	old, ok := g.services[key]
	if ok && slices.Equal(old.addresses, next.addresses) && slices.Equal(old.clusterIPs, next.clusterIPs) {
		return nil
	}
	changed := append(g.remove(key), next.addresses...)
	g.services[key] = next
	for _, address := range next.addresses {
		add(g.byAddress, address, key)
	}
	slices.Sort(changed)
	return slices.Compact(changed)
}

// remove forgets a Service and returns the addresses that it had.
func (g *gateways) remove(key types.NamespacedName) []string {
	old := g.services[key]
	delete(g.services, key)
	for _, address := range old.addresses {
		drop(g.byAddress, address, key)
	}
	return slices.Clone(old.addresses)
}

// find returns the one gateway that all records of a name point to. It has an address in the cluster of every family
// that the records have, as a rewrite is for a name, not for a type: without one, clients would lose that family. Where
// several gateways share the address, as all do that have the host's, rank tells which it is.
func (g *gateways) find(records []dns.Record) (gateway, bool) {
	var candidates map[types.NamespacedName]struct{}
	for _, record := range records {
		if record.Type == dns.TypeTXT {
			return gateway{}, false
		}
		for _, value := range record.Values {
			found := g.byAddress[value]
			if candidates == nil {
				candidates = maps.Clone(found)
			}
			maps.DeleteFunc(candidates, func(key types.NamespacedName, _ struct{}) bool {
				_, ok := found[key]
				return !ok
			})
			if len(candidates) == 0 {
				return gateway{}, false
			}
		}
	}

	for _, key := range slices.SortedFunc(maps.Keys(candidates), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(g.rank(a, records), g.rank(b, records)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}) {
		found := g.services[key]
		if !slices.ContainsFunc(records, func(record dns.Record) bool {
			return record.Type != dns.TypeCNAME && len(found.ofType(record.Type)) == 0
		}) {
			return found, true
		}
	}
	return gateway{}, false
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

func gatewayOf(service *corev1.Service) gateway {
	g := gateway{service: client.ObjectKeyFromObject(service)}
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.DeletionTimestamp != nil {
		return g
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if address, err := netip.ParseAddr(ingress.IP); err == nil {
			g.addresses = append(g.addresses, address.Unmap().String())
		}
		if ingress.Hostname != "" {
			g.addresses = append(g.addresses, strings.ToLower(strings.TrimSuffix(ingress.Hostname, ".")))
		}
	}
	slices.Sort(g.addresses)
	g.addresses = slices.Compact(g.addresses)
	for _, ip := range service.Spec.ClusterIPs {
		// A headless Service has "None" here: its name leads to its pods, not to an address of its own.
		if address, err := netip.ParseAddr(ip); err == nil {
			g.clusterIPs = append(g.clusterIPs, address.String())
		}
	}
	return g
}

// watchesNamespaces reports whether there are namespaces with a zone of their own: those of the control planes of shoots.
// They are watched as a whole, as the extension library watches them anyway; a second informer, for what is needed of
// them, would not save anything.
func (p *Provider) watchesNamespaces() bool {
	_, ok := p.Classes.Only(extensionsv1alpha1.ExtensionClassShoot)
	return ok
}

// gatewayNamespace is where the gateway is that no zone has to itself.
func (p *Provider) gatewayNamespace() string {
	if _, ok := p.Classes.Only(extensionsv1alpha1.ExtensionClassShoot, extensionsv1alpha1.ExtensionClassSeed); ok {
		return seedGateways
	}
	return gardenGateways
}

// singleZone returns the zone of a control plane that is in just one, or an empty text. As gardenlet exposes it, a
// control plane in one zone is behind the gateway of that zone, any other behind the one of all zones.
func singleZone(namespace client.Object) string {
	single := ""
	for zone := range strings.SplitSeq(namespace.GetAnnotations()[resourcesv1alpha1.HighAvailabilityConfigZones], ",") {
		switch {
		case zone == "" || zone == single:
		case single != "":
			return ""
		default:
			single = zone
		}
	}
	return single
}
