// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	netutils "k8s.io/utils/net"
)

// conditionReady is the condition by which pkg/controller/service tells why a Service has no address. Others that serve
// load balancers need not have it.
const conditionReady = "LoadBalancerReady"

// wantsLoadBalancer tells whether a Service of the shoot is served here: k8s.io/cloud-provider leaves alone those of a
// class.
func wantsLoadBalancer(service *corev1.Service) bool {
	return service.DeletionTimestamp == nil && service.Spec.Type == corev1.ServiceTypeLoadBalancer && service.Spec.LoadBalancerClass == nil
}

// desiredService returns the seed's Service for one of the shoot: existing with what has to change, or a new one. With
// local, kube-proxy of the seed's nodes sends on only to machines of its own node, and keeps the address of the client.
func desiredService(existing, service *corev1.Service, namespace string, local bool) (*corev1.Service, error) {
	name, err := nameOf(service)
	if err != nil {
		return nil, err
	}
	ports, err := desiredPorts(service)
	if err != nil {
		return nil, err
	}
	ranges, err := sourceRanges(service)
	if err != nil {
		return nil, err
	}

	out := existing.DeepCopy()
	if out == nil {
		out = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	mark(out, service)

	spec := &out.Spec
	setFamilies(spec, service.Spec)
	spec.Type = corev1.ServiceTypeLoadBalancer
	spec.Selector = nil
	spec.ExternalIPs = nil
	spec.Ports = ports
	// kube-proxy sends what arrives at the address right to the endpoints, so the seed's node ports need not be spent.
	spec.AllocateLoadBalancerNodePorts = new(false)
	// Deprecated, but pkg/controller/service gives the address that is asked for by it.
	spec.LoadBalancerIP = service.Spec.LoadBalancerIP
	spec.LoadBalancerSourceRanges = ranges
	spec.SessionAffinity = service.Spec.SessionAffinity
	spec.SessionAffinityConfig = service.Spec.SessionAffinityConfig.DeepCopy()
	// It is about the address of the seed's Service in the seed, which nobody is to use.
	spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	if local {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	return out, nil
}

// desiredPorts are the ports of the shoot's Service. Where they lead to is in the EndpointSlices; the target ports are for
// those who look at the Service.
func desiredPorts(service *corev1.Service) ([]corev1.ServicePort, error) {
	var out []corev1.ServicePort
	for _, port := range service.Spec.Ports {
		if port.NodePort == 0 {
			return nil, mistake{fmt.Errorf("port %d/%s of Service %s has no node port, by which alone a machine can be reached: set spec.allocateLoadBalancerNodePorts to true", port.Port, port.Protocol, keyOf(service))}
		}
		out = append(out, corev1.ServicePort{Name: port.Name, Protocol: protocol(port), Port: port.Port, TargetPort: intstr.FromInt32(port.NodePort)})
	}
	return out, nil
}

func protocol(port corev1.ServicePort) corev1.Protocol {
	if port.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return port.Protocol
}

// sourceRanges are those of the Service or, without any, of its annotation; nil if all may come. kube-proxy takes each
// family by itself and, where there are no ranges of it, lets all come. So a family of the Service that is left out gets a
// range in which nobody is.
func sourceRanges(service *corev1.Service) ([]string, error) {
	annotation := service.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if len(service.Spec.LoadBalancerSourceRanges) == 0 && strings.TrimSpace(annotation) == "" {
		return nil, nil
	}
	// The API server lets spaces pass, and checks the annotation only where there is no field.
	trimmed := service.DeepCopy()
	for i, value := range trimmed.Spec.LoadBalancerSourceRanges {
		trimmed.Spec.LoadBalancerSourceRanges[i] = strings.TrimSpace(value)
	}
	trimmed.Annotations = map[string]string{corev1.AnnotationLoadBalancerSourceRangesKey: strings.ReplaceAll(annotation, " ", "")}
	ranges, err := servicehelpers.GetLoadBalancerSourceRanges(trimmed)
	if err != nil {
		return nil, mistake{fmt.Errorf("the source ranges of Service %s: %w", keyOf(service), err)}
	}
	out := ranges.StringSlice()
	for _, family := range service.Spec.IPFamilies {
		if !slices.ContainsFunc(out, func(cidr string) bool { return netutils.IsIPv6CIDRString(cidr) == (family == corev1.IPv6Protocol) }) {
			out = append(out, nobodyOf(family))
		}
	}
	slices.Sort(out)
	return out, nil
}

// nobodyOf is a range from which no packet comes.
func nobodyOf(family corev1.IPFamily) string {
	if family == corev1.IPv6Protocol {
		return "::/128"
	}
	return "255.255.255.255/32"
}

// setFamilies asks for the families that the shoot's Service has. One of both families leaves it to the seed's API server
// which comes first, since a Service can't have a first one that the seed does not have: with PreferDualStack it gets those
// that there are, with RequireDualStack it is refused without both.
func setFamilies(spec *corev1.ServiceSpec, service corev1.ServiceSpec) {
	if len(service.IPFamilies) > 1 {
		policy := corev1.IPFamilyPolicyPreferDualStack
		if service.IPFamilyPolicy != nil {
			policy = *service.IPFamilyPolicy
		}
		spec.IPFamilyPolicy = &policy
		return
	}
	spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	spec.IPFamilies = slices.Clone(service.IPFamilies)
	if len(spec.ClusterIPs) > 1 {
		spec.ClusterIPs = spec.ClusterIPs[:1]
	}
}

// mustBeReplaced tells whether an existing Service can't be changed into the desired one: its first family stays for good.
func mustBeReplaced(existing, desired *corev1.Service) bool {
	return len(existing.Spec.IPFamilies) > 0 && len(desired.Spec.IPFamilies) > 0 && existing.Spec.IPFamilies[0] != desired.Spec.IPFamilies[0]
}

// statusFor returns the status of the shoot's Service, given the seed's: the same addresses, in the order of the families
// of the shoot's Service. kube-proxy of the machines is to take in what is sent to them (VIP), so that what a machine or
// its pods send there need not leave the shoot. It is nil if there is no address.
func statusFor(seed, service *corev1.Service) *corev1.LoadBalancerStatus {
	out := &corev1.LoadBalancerStatus{}
	for _, ingress := range seed.Status.LoadBalancer.Ingress {
		entry := corev1.LoadBalancerIngress{IP: ingress.IP, Hostname: ingress.Hostname}
		if entry.IP != "" {
			entry.IPMode = new(corev1.LoadBalancerIPModeVIP)
		}
		if entry.IP != "" || entry.Hostname != "" {
			out.Ingress = append(out.Ingress, entry)
		}
	}
	if len(out.Ingress) == 0 {
		return nil
	}
	slices.SortStableFunc(out.Ingress, func(a, b corev1.LoadBalancerIngress) int { return rank(a, service) - rank(b, service) })
	return out
}

// rank is the place of an address among the families of a Service.
func rank(ingress corev1.LoadBalancerIngress, service *corev1.Service) int {
	family := corev1.IPv4Protocol
	if netutils.IsIPv6String(ingress.IP) {
		family = corev1.IPv6Protocol
	}
	if i := slices.Index(service.Spec.IPFamilies, family); i >= 0 {
		return i
	}
	return len(service.Spec.IPFamilies)
}

// refusal says why the seed's Service has no address, as far as whoever serves it says so.
func refusal(seed *corev1.Service) string {
	condition := meta.FindStatusCondition(seed.Status.Conditions, conditionReady)
	if condition == nil || condition.Status != metav1.ConditionFalse {
		return ""
	}
	return condition.Reason + ": " + condition.Message
}
