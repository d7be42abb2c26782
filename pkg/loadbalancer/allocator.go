// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	"github.com/gardener/gardener/pkg/utils"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// Class is the spec.loadBalancerClass of Services that are ours beside those that have none.
const Class = "local.provider.extensions.gardener.cloud/load-balancer"

// AnnotationInstance of a Service is the namespace of the instance that serves it. Only Services that a garden needs have it: all
// others of a seed are the seed instance's.
const AnnotationInstance = "local.provider.extensions.gardener.cloud/load-balancer-instance"

// ConditionReady is the type of the condition of a Service by which pkg/controller/service reports whether it has the addresses and the
// fixed node ports that it should have. Others that serve load balancers need not have it.
const ConditionReady = "LoadBalancerReady"

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

const (
	// zoneGateways begins the namespaces of the Istio ingress gateways of zones. That of the whole seed has no infix.
	zoneGateways = v1beta1constants.DefaultSNIIngressNamespace + "--"
	// zoneHashLength is how much of the hash of a zone's name stands for it.
	zoneHashLength = 5
)

// Entry is what a well-known Service has. It is not to be changed.
type Entry struct {
	// Addresses are one address, or one of each family.
	Addresses []netip.Addr
	// IPMode reports whether kube-proxy takes in what is sent to them.
	IPMode corev1.LoadBalancerIPMode
	// NodePorts are its fixed node ports by its ports.
	NodePorts map[int32]int32
}

// Allocator decides which addresses a Service has. It may be used by several goroutines at a time, not for one Service.
// Addresses are taken from a Service by Keep, once its status shows those that it keeps, and by Release, once it is gone or
// no load balancer any more.
type Allocator struct {
	*Pool
	// services are the well-known Services, whose addresses and node ports others know beforehand.
	services map[types.NamespacedName]Entry
	// host is what gateways of zones without addresses have.
	host Entry
	// fixed are all fixed node ports.
	fixed sets.Set[int32]
}

// NewAllocator returns the Allocator of a configuration that has its defaults. It fails if something is not an address. All
// Services are to be restored before the first address is assigned.
func NewAllocator(config configv1alpha1.LoadBalancersConfiguration) (*Allocator, error) {
	a := &Allocator{services: map[types.NamespacedName]Entry{}, fixed: sets.Set[int32]{}}
	var (
		// The pool must not give out what the configuration has outside of it, for well-known Services, for zones and for the host.
		reserved []netip.Addr
		errs     []error
	)
	parse := func(what string, values []string) (out []netip.Addr) {
		for _, value := range values {
			address, err := netip.ParseAddr(value)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", what, err))
			}
			out = append(out, address.Unmap())
		}
		reserved = append(reserved, out...)
		return out
	}

	a.host = Entry{Addresses: parse("host addresses", config.HostAddresses), IPMode: corev1.LoadBalancerIPModeProxy}
	for zone, addresses := range config.ZoneAddresses {
		if parsed := parse("addresses of zone "+zone, addresses); len(parsed) > 0 {
			a.services[types.NamespacedName{Namespace: GatewayNamespace(zone), Name: v1beta1constants.DefaultSNIIngressServiceName}] = Entry{Addresses: parsed, IPMode: corev1.LoadBalancerIPModeVIP}
		}
	}

	for _, service := range config.Services {
		key := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
		entry, ok := a.services[key]
		if !ok {
			entry = a.host
		}
		if own := parse("addresses of "+key.String(), service.Addresses); len(own) > 0 {
			entry.Addresses, entry.IPMode = own, corev1.LoadBalancerIPModeVIP
		}
		if service.IPMode != nil {
			entry.IPMode = *service.IPMode
		}
		entry.NodePorts = map[int32]int32{}
		for _, fixed := range service.NodePorts {
			entry.NodePorts[fixed.Port] = fixed.NodePort
			a.fixed.Insert(fixed.NodePort)
		}
		a.services[key] = entry
	}

	var ranges []netipx.IPRange
	for _, pool := range config.Pools {
		parsed, err := configv1alpha1.ParseAddressRange(pool)
		if err != nil {
			errs = append(errs, fmt.Errorf("pool: %w", err))
		}
		ranges = append(ranges, parsed)
	}
	a.Pool = NewPool(ranges, reserved...)
	return a, utilerrors.NewAggregate(errs)
}

// answers returns an address of each family, if the entry has one.
func (e Entry) answers(families []corev1.IPFamily) []Answer {
	var out []Answer
	for _, family := range families {
		answer := Answer{Reason: ReasonFamily}
		if i := slices.IndexFunc(e.Addresses, func(address netip.Addr) bool { return FamilyOf(address) == family }); i >= 0 {
			answer = Answer{Address: e.Addresses[i]}
		}
		out = append(out, answer)
	}
	return out
}

// WellKnown returns what a Service has, and whether it is well-known at all.
func (a *Allocator) WellKnown(service types.NamespacedName) (Entry, bool) {
	if entry, ok := a.services[service]; ok {
		return entry, true
	}
	if service.Name == v1beta1constants.DefaultSNIIngressServiceName && strings.HasPrefix(service.Namespace, zoneGateways) {
		return a.host, true
	}
	return Entry{}, false
}

// IsFixed reports whether a node port is kept for a well-known Service.
func (a *Allocator) IsFixed(nodePort int32) bool { return a.fixed.Has(nodePort) }

// IsOurs reports whether a Service is of type LoadBalancer and of our class or none.
func IsOurs(service *corev1.Service) bool {
	class := service.Spec.LoadBalancerClass
	return service.Spec.Type == corev1.ServiceTypeLoadBalancer && (class == nil || *class == Class)
}

// Restore lets Services of type LoadBalancer, of whatever class, keep the addresses that their status has. Where two have
// one, the Service of another class keeps it, as it is not told to give it up, and otherwise the older one.
func (a *Allocator) Restore(services []corev1.Service) {
	sorted := slices.SortedFunc(slices.Values(services), func(x, y corev1.Service) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for _, ours := range []bool{false, true} {
		for i := range sorted {
			if IsOurs(&sorted[i]) == ours {
				a.claimStatus(&sorted[i])
			}
		}
	}
}

// Observe keeps the addresses that the status of a Service of another class has from being given to others. It returns
// the Services that may ask again for an address.
func (a *Allocator) Observe(service *corev1.Service) []types.NamespacedName {
	return a.Keep(client.ObjectKeyFromObject(service), a.claimStatus(service)...)
}

// claimStatus claims what the status of a Service has, and returns it.
func (a *Allocator) claimStatus(service *corev1.Service) []netip.Addr {
	addresses := AddressesOf(service.Status.LoadBalancer.Ingress)
	for _, address := range addresses {
		// It is no error if it is in no pool. If it is another's, this Service gets another one at its reconcile.
		a.Ask(client.ObjectKeyFromObject(service), false, Request{Family: FamilyOf(address), Address: address})
	}
	return addresses
}

// AddressesOf returns the addresses in a status.
func AddressesOf(ingress []corev1.LoadBalancerIngress) []netip.Addr {
	var out []netip.Addr
	for _, i := range ingress {
		if address, err := netip.ParseAddr(i.IP); err == nil {
			out = append(out, address.Unmap())
		}
	}
	return out
}

// maxIngress is how many addresses a Service in a user's cluster is believed to have.
const maxIngress = 16

// IngressOf returns the addresses and host names of a Service. In the cluster of a user, its status may contain any text: what is
// neither is left out.
func IngressOf(service *corev1.Service) []corev1.LoadBalancerIngress {
	var out []corev1.LoadBalancerIngress
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		switch {
		case len(out) == maxIngress:
			return out
		case net.ParseIP(ingress.IP) != nil:
			out = append(out, corev1.LoadBalancerIngress{IP: ingress.IP})
		case len(validation.IsDNS1123Subdomain(ingress.Hostname)) == 0:
			out = append(out, corev1.LoadBalancerIngress{Hostname: ingress.Hostname})
		}
	}
	return out
}

// NobodyV4 and NobodyV6 are ranges from which no packet comes.
const (
	NobodyV4 = "255.255.255.255/32"
	NobodyV6 = "::/128"
)

// CloseFamilies adds a range in which nobody is to the source ranges of a Service for each family of which they have none:
// kube-proxy takes each family by itself and, where there are no ranges of it, lets all come.
func CloseFamilies(ranges []string, families ...corev1.IPFamily) []string {
	nobody := map[corev1.IPFamily]string{corev1.IPv4Protocol: NobodyV4, corev1.IPv6Protocol: NobodyV6}
	for _, family := range families {
		isOfFamily := func(cidr string) bool { return netutils.IsIPv6CIDRString(cidr) == (family == corev1.IPv6Protocol) }
		if !slices.ContainsFunc(ranges, isOfFamily) {
			ranges = append(ranges, nobody[family])
		}
	}
	return ranges
}

// Assign returns what belongs into the status of a Service that IsOurs: one address of each of its families, in their
// order. What the Service had from the pool before stays with it until Keep. There can be addresses and a problem.
func (a *Allocator) Assign(service *corev1.Service) ([]corev1.LoadBalancerIngress, *Problem) {
	key, families := client.ObjectKeyFromObject(service), service.Spec.IPFamilies
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	needsAll := ptr.Deref(service.Spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicyRequireDualStack

	var (
		answers []Answer
		problem *Problem
		ipMode  = corev1.LoadBalancerIPModeVIP
	)
	if entry, ok := a.WellKnown(key); ok {
		answers, ipMode = entry.answers(families), entry.IPMode
	} else {
		requests, problem := requestsOf(service, families)
		if problem != nil {
			return nil, problem
		}
		answers = a.Ask(key, needsAll, requests...)
	}

	var (
		out     []corev1.LoadBalancerIngress
		missing []string
	)
	for i, answer := range answers {
		switch {
		case answer.Reason == ReasonFamily:
			missing = append(missing, string(families[i]))
		case answer.Reason == ReasonExhausted:
			problem = &Problem{ReasonExhausted, fmt.Sprintf("all %s addresses of the pools are in use: delete another Service of type LoadBalancer, or configure more", families[i])}
		case answer.Reason == ReasonInUse:
			problem = &Problem{ReasonInUse, fmt.Sprintf("spec.loadBalancerIP %s is in use by another Service: ask for another address, or none", service.Spec.LoadBalancerIP)}
		case answer.Reason != "":
			problem = &Problem{ReasonNotInPool, fmt.Sprintf("spec.loadBalancerIP %s is in none of the pools, or reserved: ask for another address, or none", service.Spec.LoadBalancerIP)}
		case answer.Address.IsValid():
			out = append(out, corev1.LoadBalancerIngress{IP: answer.Address.String(), IPMode: &ipMode})
		}
	}
	// A Service that merely prefers both families may have one.
	if problem == nil && len(missing) > 0 && (len(out) == 0 || needsAll) {
		problem = &Problem{ReasonFamily, fmt.Sprintf("no address of family %s is configured for it", strings.Join(missing, " and "))}
	}
	if problem != nil && needsAll {
		return nil, problem
	}
	return out, problem
}

// requestsOf returns what a Service wants from the pool: an address of each family, one of which spec.loadBalancerIP may
// ask for.
func requestsOf(service *corev1.Service, families []corev1.IPFamily) ([]Request, *Problem) {
	var address netip.Addr
	if value := service.Spec.LoadBalancerIP; value != "" {
		parsed, err := netip.ParseAddr(value)
		address = parsed.Unmap()
		switch {
		case err != nil || address.Zone() != "":
			return nil, &Problem{ReasonNotInPool, fmt.Sprintf("spec.loadBalancerIP %.64q is no address", value)}
		case !slices.Contains(families, FamilyOf(address)):
			return nil, &Problem{ReasonFamily, fmt.Sprintf("spec.loadBalancerIP %s is of none of the Service's IP families", value)}
		}
	}
	var requests []Request
	for _, family := range families {
		request := Request{Family: family}
		if address.IsValid() && FamilyOf(address) == family {
			request.Address = address
		}
		requests = append(requests, request)
	}
	return requests, nil
}

// GatewayNamespace returns the namespace that Gardener gives to the gateway of a zone: istio-ingress--<zone>, with the start
// of a hash where a namespace can't be named so. See GetIstioNamespaceForZone in Gardener's package pkg/component/shared,
// which brings all components of a seed with it.
func GatewayNamespace(zone string) string {
	if namespace := zoneGateways + zone; len(namespace) <= validation.DNS1035LabelMaxLength && zone == strings.ToLower(zone) {
		return namespace
	}
	return zoneGateways + utils.ComputeSHA256Hex([]byte(zone))[:zoneHashLength]
}
