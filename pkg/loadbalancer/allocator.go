// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// Class is the spec.loadBalancerClass of Services that are ours beside those that have none.
const Class = "local.provider.extensions.gardener.cloud/load-balancer"

// Reasons why a Service has not all that it should have.
const (
	// ReasonExhausted means that all addresses of a family in the pools are in use.
	ReasonExhausted = "PoolExhausted"
	// ReasonFamily means that there are no addresses of a family of the Service.
	ReasonFamily = "IPFamilyNotConfigured"
	// ReasonInUse means that another Service has the address that spec.loadBalancerIP asks for.
	ReasonInUse = "AddressInUse"
	// ReasonNotInPool means that spec.loadBalancerIP asks for something that the pools do not give out.
	ReasonNotInPool = "AddressNotInPool"
)

// Problem is why a Service has not all that it should have.
type Problem struct {
	// Reason is one word in CamelCase.
	Reason string
	// Message says what to do. It is the same every time.
	Message string
}

// Allocator decides which addresses a Service has. It may be used by several goroutines at a time, not for one Service.
type Allocator struct {
	*Table
	pool *Pool
}

// NewAllocator returns the Allocator of a configuration that has its defaults. It fails if that is not valid. All Services
// are to be restored before the first address is assigned.
func NewAllocator(config configv1alpha1.LoadBalancersConfiguration) (*Allocator, error) {
	table, err := NewTable(config)
	if err != nil {
		return nil, err
	}
	var ranges []configv1alpha1.AddressRange
	for _, pool := range config.Pools {
		parsed, err := configv1alpha1.ParseAddressRange(pool)
		if err != nil {
			return nil, fmt.Errorf("pool: %w", err)
		}
		ranges = append(ranges, parsed)
	}
	return &Allocator{Table: table, pool: NewPool(ranges, table.Reserved()...)}, nil
}

// IsOurs reports whether a Service is of type LoadBalancer and of our class or none.
func IsOurs(service *corev1.Service) bool {
	class := service.Spec.LoadBalancerClass
	return service.Spec.Type == corev1.ServiceTypeLoadBalancer && (class == nil || *class == Class)
}

// Restore lets Services of type LoadBalancer, of whatever class, keep the addresses that their status has. Where two have
// one, the Service of another class keeps it, as it is not told to give it up, and otherwise the older one.
func (a *Allocator) Restore(services []corev1.Service) {
	sorted := slices.Clone(services)
	slices.SortFunc(sorted, func(x, y corev1.Service) int {
		if ours := IsOurs(&x); ours != IsOurs(&y) {
			if ours {
				return 1
			}
			return -1
		}
		if c := x.CreationTimestamp.Compare(y.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(client.ObjectKeyFromObject(&x).String(), client.ObjectKeyFromObject(&y).String())
	})
	for i := range sorted {
		a.claimStatus(&sorted[i])
	}
}

// Observe keeps the addresses that the status of a Service of another class has from being given to others. It returns
// the Services that may ask again for an address.
func (a *Allocator) Observe(service *corev1.Service) []types.NamespacedName {
	return a.Keep(client.ObjectKeyFromObject(service), a.claimStatus(service))
}

// claimStatus claims what the status of a Service has, and returns it.
func (a *Allocator) claimStatus(service *corev1.Service) []netip.Addr {
	var out []netip.Addr
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if address, err := netip.ParseAddr(ingress.IP); err == nil {
			// It is no error if it is in no pool. If it is another's, this Service gets another one at its reconcile.
			_ = a.pool.Claim(client.ObjectKeyFromObject(service), address.Unmap())
			out = append(out, address.Unmap())
		}
	}
	return out
}

// Assign returns what belongs into the status of a Service that IsOurs: one address of each of its families, in their
// order. What the Service had from the pool before stays with it until Keep. There can be addresses and a problem.
func (a *Allocator) Assign(service *corev1.Service) ([]corev1.LoadBalancerIngress, *Problem) {
	families := service.Spec.IPFamilies
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol}
	}

	var (
		addresses []netip.Addr
		problem   *Problem
		ipMode    = corev1.LoadBalancerIPModeVIP
	)
	if entry, ok := a.WellKnown(client.ObjectKeyFromObject(service)); ok {
		ipMode = entry.IPMode
		addresses, problem = ofEntry(entry, service, families)
	} else {
		addresses, problem = a.fromPool(service, families)
	}
	if problem != nil && isPolicy(service, corev1.IPFamilyPolicyRequireDualStack) {
		return nil, problem
	}

	var out []corev1.LoadBalancerIngress
	for _, address := range addresses {
		out = append(out, corev1.LoadBalancerIngress{IP: address.String(), IPMode: &ipMode})
	}
	return out, problem
}

// ofEntry returns the addresses of a well-known Service that are of its families.
func ofEntry(entry Entry, service *corev1.Service, families []corev1.IPFamily) ([]netip.Addr, *Problem) {
	var (
		out     []netip.Addr
		missing []corev1.IPFamily
	)
	for _, family := range families {
		i := slices.IndexFunc(entry.Addresses, func(address netip.Addr) bool { return FamilyOf(address) == family })
		if i < 0 {
			missing = append(missing, family)
			continue
		}
		out = append(out, entry.Addresses[i])
	}
	return out, familyProblem(service, len(out), missing)
}

// fromPool returns the addresses of all other Services.
func (a *Allocator) fromPool(service *corev1.Service, families []corev1.IPFamily) ([]netip.Addr, *Problem) {
	requested, problem := requestedAddress(service, families)
	if problem != nil {
		return nil, problem
	}
	var requests []Request
	for _, family := range families {
		request := Request{Family: family}
		if requested.IsValid() && FamilyOf(requested) == family {
			request.Address = requested
		}
		requests = append(requests, request)
	}

	var (
		out     []netip.Addr
		missing []corev1.IPFamily
	)
	for i, answer := range a.pool.Ask(client.ObjectKeyFromObject(service), isPolicy(service, corev1.IPFamilyPolicyRequireDualStack), requests...) {
		switch {
		case errors.Is(answer.Err, ErrFamily):
			missing = append(missing, families[i])
		case errors.Is(answer.Err, ErrExhausted):
			problem = &Problem{ReasonExhausted, fmt.Sprintf("all %s addresses of the pools are in use: delete another Service of type LoadBalancer, or configure more", families[i])}
		case errors.Is(answer.Err, ErrInUse):
			problem = &Problem{ReasonInUse, fmt.Sprintf("spec.loadBalancerIP %s is in use by another Service: ask for another address, or none", requested)}
		case answer.Err != nil:
			problem = &Problem{ReasonNotInPool, fmt.Sprintf("spec.loadBalancerIP %s is in none of the pools, or reserved: ask for another address, or none", requested)}
		case answer.Address.IsValid():
			out = append(out, answer.Address)
		}
	}
	if problem == nil {
		problem = familyProblem(service, len(out), missing)
	}
	return out, problem
}

// Keep takes from a Service all addresses of the pool but these, once its status shows these and no others. It returns
// the Services that may ask again for an address.
func (a *Allocator) Keep(service types.NamespacedName, addresses []netip.Addr) []types.NamespacedName {
	return a.pool.Keep(service, addresses...)
}

// Release takes all addresses from a Service that is gone or no load balancer any more. It returns the Services that may
// ask again for an address.
func (a *Allocator) Release(service types.NamespacedName) []types.NamespacedName {
	return a.pool.Release(service)
}

// requestedAddress returns what spec.loadBalancerIP asks for, if it does.
func requestedAddress(service *corev1.Service, families []corev1.IPFamily) (netip.Addr, *Problem) {
	value := service.Spec.LoadBalancerIP
	if value == "" {
		return netip.Addr{}, nil
	}
	address, err := netip.ParseAddr(value)
	address = address.Unmap()
	switch {
	case err != nil || address.Zone() != "":
		return netip.Addr{}, &Problem{ReasonNotInPool, fmt.Sprintf("spec.loadBalancerIP %.64q is no address", value)}
	case !slices.Contains(families, FamilyOf(address)):
		return netip.Addr{}, &Problem{ReasonFamily, fmt.Sprintf("spec.loadBalancerIP %s is of none of the Service's IP families", value)}
	}
	return address, nil
}

// familyProblem returns what is wrong if there are no addresses of some families. Nothing is for a Service that merely
// prefers both and has one.
func familyProblem(service *corev1.Service, found int, missing []corev1.IPFamily) *Problem {
	if len(missing) == 0 || found > 0 && !isPolicy(service, corev1.IPFamilyPolicyRequireDualStack) {
		return nil
	}
	var names []string
	for _, family := range missing {
		names = append(names, string(family))
	}
	return &Problem{ReasonFamily, fmt.Sprintf("no address of family %s is configured for it", strings.Join(names, " and "))}
}

func isPolicy(service *corev1.Service, policy corev1.IPFamilyPolicy) bool {
	return service.Spec.IPFamilyPolicy != nil && *service.Spec.IPFamilyPolicy == policy
}
