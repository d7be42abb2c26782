// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxEndpoints is how many endpoints the API server lets into an EndpointSlice. The machines after that get no traffic.
	maxEndpoints = 1000
	// autoscalerTaint is set by cluster-autoscaler on Nodes that it is about to remove. k8s.io/cloud-provider leaves them
	// out as well.
	autoscalerTaint = "ToBeDeletedByClusterAutoscaler"
)

// backend is a machine that takes traffic.
type backend struct {
	// node is the name of the Node in the shoot, seedNode that of the node on which its pod is.
	node, seedNode string
	// addresses are one of each family.
	addresses map[discoveryv1.AddressType]netip.Addr
}

// takesTraffic tells whether a Node is one for load balancers: k8s.io/cloud-provider does not look at its readiness and
// leaves that to health checks, which nobody makes here.
func takesTraffic(node *corev1.Node) bool {
	if node.DeletionTimestamp != nil || slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == autoscalerTaint }) {
		return false
	}
	if value, ok := node.Labels[corev1.LabelNodeExcludeBalancers]; ok {
		if excluded, err := strconv.ParseBool(value); err != nil || excluded {
			return false
		}
	}
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

// backendOf returns a Node as a backend, given the pod of its machine. An address that the pod does not have is not that
// of the machine, whatever the Node says. Nor is that of a pod that has ended, as one that was evicted: it stays in the
// status, but may be another pod's by now. It returns false if no address is left or if the pod is about to go.
func backendOf(node *corev1.Node, pod *corev1.Pod) (backend, bool) {
	if pod == nil || pod.DeletionTimestamp != nil || hasEnded(pod) {
		return backend{}, false
	}
	var own []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			own = append(own, address.Unmap())
		}
	}

	out := backend{node: node.Name, seedNode: pod.Spec.NodeName, addresses: map[discoveryv1.AddressType]netip.Addr{}}
	for _, candidate := range node.Status.Addresses {
		address, err := netip.ParseAddr(candidate.Address)
		if candidate.Type != corev1.NodeInternalIP || err != nil || !slices.Contains(own, address.Unmap()) {
			continue
		}
		family := discoveryv1.AddressTypeIPv4
		if address = address.Unmap(); address.Is6() {
			family = discoveryv1.AddressTypeIPv6
		}
		if _, ok := out.addresses[family]; !ok {
			out.addresses[family] = address
		}
	}
	return out, len(out.addresses) > 0
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// localNodes returns the Nodes on which a Service has endpoints of a family that kube-proxy sends to: ready ones or, if
// there are none at all, those that still serve while they end.
func localNodes(endpointSlices []*discoveryv1.EndpointSlice, family discoveryv1.AddressType) map[string]bool {
	ready, ending := map[string]bool{}, map[string]bool{}
	for _, slice := range endpointSlices {
		if slice.AddressType != family {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			conditions := endpoint.Conditions
			switch {
			case endpoint.NodeName == nil:
			case conditions.Ready == nil || *conditions.Ready:
				ready[*endpoint.NodeName] = true
			case conditions.Serving != nil && *conditions.Serving && conditions.Terminating != nil && *conditions.Terminating:
				ending[*endpoint.NodeName] = true
			}
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return ending
}

// desiredSlice returns the EndpointSlice of a family in the seed: existing with what has to change, or a new one.
func desiredSlice(existing *discoveryv1.EndpointSlice, seed, service *corev1.Service, family discoveryv1.AddressType, backends []backend) *discoveryv1.EndpointSlice {
	out := existing.DeepCopy()
	if out == nil {
		out = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: seed.Namespace, Name: sliceName(seed.Name, family)}, AddressType: family}
	}
	mark(out, service)
	out.Labels[discoveryv1.LabelServiceName] = seed.Name
	out.Labels[discoveryv1.LabelManagedBy] = managedBy

	out.Ports = nil
	for _, port := range service.Spec.Ports {
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: new(port.Name), Protocol: new(protocol(port)), Port: new(port.NodePort)})
	}
	out.Endpoints = nil
	for _, b := range slices.SortedFunc(slices.Values(backends), func(a, b backend) int { return cmp.Compare(a.node, b.node) }) {
		address, ok := b.addresses[family]
		if !ok || len(out.Endpoints) == maxEndpoints {
			continue
		}
		endpoint := discoveryv1.Endpoint{Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}
		if b.seedNode != "" {
			endpoint.NodeName = new(b.seedNode)
		}
		out.Endpoints = append(out.Endpoints, endpoint)
	}
	return out
}

// onOneNode tells whether all machines are on one node of the seed that is known.
func onOneNode(backends []backend) bool {
	for _, b := range backends {
		if b.seedNode == "" || b.seedNode != backends[0].seedNode {
			return false
		}
	}
	return true
}
