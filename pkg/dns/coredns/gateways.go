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

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
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
	services  map[types.NamespacedName]gateway
	byAddress map[string]map[types.NamespacedName]struct{}
}

func newGateways() *gateways {
	return &gateways{services: map[types.NamespacedName]gateway{}, byAddress: map[string]map[types.NamespacedName]struct{}{}}
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
// several gateways share the address, the first by namespace and name is it.
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
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
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
			g.addresses = append(g.addresses, address.String())
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
