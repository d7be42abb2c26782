// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// wantsLoadBalancer reports whether a Service of the shoot is served here. Those of a class are left to others.
func wantsLoadBalancer(service *corev1.Service) bool {
	return service.DeletionTimestamp == nil && service.Spec.Type == corev1.ServiceTypeLoadBalancer && service.Spec.LoadBalancerClass == nil
}

// desiredService returns the seed's Service for one of the shoot. It starts from existing, which may be nil. With
// local, kube-proxy of the seed's nodes sends on only to machines of its own node, and keeps the address of the client.
func desiredService(existing, service *corev1.Service, namespace string, local, nodePorts bool) (*corev1.Service, error) {
	ranges, err := sourceRanges(service)
	if err != nil {
		return nil, err
	}
	if asked := service.Spec.LoadBalancerIP; asked != "" {
		// The API server takes a text of any length, and an IPv6 address may have a zone of any length.
		if address, err := netip.ParseAddr(asked); err != nil || address.Zone() != "" {
			return nil, waiting{error: fmt.Errorf("spec.loadBalancerIP of Service %s is no IP address: %.64q", client.ObjectKeyFromObject(service), asked)}
		}
	}

	out := existing.DeepCopy()
	if out == nil {
		out = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nameOf(service.UID)}}
	}
	mark(&out.ObjectMeta, service)

	spec := &out.Spec
	spec.Type = corev1.ServiceTypeLoadBalancer
	spec.Selector = nil
	spec.ExternalIPs = nil
	// Where the ports lead to is in the EndpointSlices; the target ports are for those who look at the Service.
	former := spec.Ports
	spec.Ports = nil
	for _, port := range service.Spec.Ports {
		if port.NodePort == 0 {
			return nil, waiting{error: fmt.Errorf("port %d/%s of Service %s has no node port, by which alone a machine can be reached: set spec.allocateLoadBalancerNodePorts to true", port.Port, port.Protocol, client.ObjectKeyFromObject(service))}
		}
		out := corev1.ServicePort{Name: port.Name, Protocol: port.Protocol, Port: port.Port, TargetPort: intstr.FromInt32(port.NodePort)}
		if i := slices.IndexFunc(former, func(f corev1.ServicePort) bool { return f.Port == port.Port && f.Protocol == port.Protocol }); nodePorts && i >= 0 {
			out.NodePort = former[i].NodePort
		}
		spec.Ports = append(spec.Ports, out)
	}
	// kube-proxy sends what arrives at the address right to the endpoints, so the seed's node ports are not spent without need.
	spec.AllocateLoadBalancerNodePorts = new(nodePorts)
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

	// It has the families of the shoot's Service. Of one of both families, the seed's API server says which comes first, since
	// a Service can't have a first one that the seed does not have: with PreferDualStack it gets those that there are, with
	// RequireDualStack it is refused without both.
	if len(service.Spec.IPFamilies) > 1 {
		spec.IPFamilyPolicy = new(ptr.Deref(service.Spec.IPFamilyPolicy, corev1.IPFamilyPolicyPreferDualStack))
		return out, nil
	}
	spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	spec.IPFamilies = slices.Clone(service.Spec.IPFamilies)
	if len(spec.ClusterIPs) > 1 {
		spec.ClusterIPs = spec.ClusterIPs[:1]
	}
	return out, nil
}

// sourceRanges are those of the Service or, without any, of its annotation; nil if all may come. A family of the Service that
// is left out gets a range in which nobody is.
func sourceRanges(service *corev1.Service) ([]string, error) {
	// ParseIPNets lets spaces pass, as the API server does. That checks the annotation only where there is no field.
	values := service.Spec.LoadBalancerSourceRanges
	if annotation := strings.TrimSpace(service.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]); len(values) == 0 && annotation != "" {
		values = strings.Split(annotation, ",")
	}
	if len(values) == 0 {
		return nil, nil
	}
	if len(values) > maxRanges {
		return nil, waiting{error: fmt.Errorf("the %d source ranges of Service %s are more than %d", len(values), client.ObjectKeyFromObject(service), maxRanges)}
	}
	ranges, err := netutils.ParseIPNets(values...)
	if err != nil {
		return nil, waiting{error: fmt.Errorf("the source ranges of Service %s: %w", client.ObjectKeyFromObject(service), err)}
	}
	out := loadbalancer.CloseFamilies(ranges.StringSlice(), service.Spec.IPFamilies...)
	slices.Sort(out)
	return out, nil
}

const (
	// maxRanges is how many source ranges a Service may have.
	maxRanges = 256
	// maxRules is how many rules each node of the seed may have for all Services of a shoot: one for each pair of a port and a source range
	// or a machine.
	maxRules = 4096
	// maxServices is how many Services of a shoot are served: each has an address of the seed's Services, of which all control planes
	// need some.
	maxServices = 256
)

// rules returns how many rules each node of the seed has for a Service.
func rules(service *corev1.Service, machines int) int {
	return len(service.Spec.Ports) * (max(1, len(service.Spec.LoadBalancerSourceRanges)) + machines)
}

// mustBeReplaced reports whether an existing Service can't be changed into the desired one: its first family stays for good.
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
	rank := func(ingress corev1.LoadBalancerIngress) int {
		family := corev1.IPv4Protocol
		if netutils.IsIPv6String(ingress.IP) {
			family = corev1.IPv6Protocol
		}
		return slices.Index(service.Spec.IPFamilies, family)
	}
	slices.SortStableFunc(out.Ingress, func(a, b corev1.LoadBalancerIngress) int { return rank(a) - rank(b) })
	return out
}

// hasFamily reports whether the seed's Service has addresses of a family.
func hasFamily(seed *corev1.Service, family discoveryv1.AddressType) bool {
	// An API server sets them.
	return slices.Contains(seed.Spec.IPFamilies, corev1.IPFamily(family)) || len(seed.Spec.IPFamilies) == 0 && family == discoveryv1.AddressTypeIPv4
}

// noAddress says why the seed's Service has no address, as far as whoever serves it says so.
func noAddress(seed *corev1.Service) waiting {
	condition := meta.FindStatusCondition(seed.Status.Conditions, loadbalancer.ConditionReady)
	if condition == nil || condition.Status != metav1.ConditionFalse {
		return waiting{fmt.Errorf("the seed's Service %s has no address: whoever serves Services of type LoadBalancer in the seed has not given it one", client.ObjectKeyFromObject(seed)), seed.CreationTimestamp.Time}
	}
	return waiting{error: fmt.Errorf("the seed's Service %s has no address: %s: %s", client.ObjectKeyFromObject(seed), condition.Reason, condition.Message)}
}

const (
	// LabelUID on a Service or EndpointSlice in the seed is the UID of the Service in the shoot that it serves.
	LabelUID = "local.provider.extensions.gardener.cloud/shoot-service-uid"
	// LabelNamespace is the namespace of that Service, for those who look for it.
	LabelNamespace = "local.provider.extensions.gardener.cloud/shoot-service-namespace"
	// LabelName is its name.
	LabelName = "local.provider.extensions.gardener.cloud/shoot-service-name"
	// AnnotationService is both as NAMESPACE/NAME.
	AnnotationService = "local.provider.extensions.gardener.cloud/shoot-service"

	// managedBy is the value of the label of an EndpointSlice that tells who writes it.
	managedBy = "cloud-controller.local.provider.extensions.gardener.cloud"
	// NamePrefix is what the names of all Services in the seed begin with; the UID of the shoot's Service, which may start with a digit,
	// follows.
	NamePrefix = "lb-"
)

// nameOf returns the name of the seed's Service for one of the shoot. It holds as long as that one exists, and no other
// ever has it.
func nameOf(uid types.UID) string { return NamePrefix + string(uid) }

func sliceName(name string, family discoveryv1.AddressType) string {
	return name + "-" + strings.ToLower(string(family))
}

// isNameFor reports whether an object of this name in the seed is for the Service with this UID.
func isNameFor(objectName string, uid types.UID) bool {
	name := nameOf(uid)
	return objectName == name || objectName == sliceName(name, discoveryv1.AddressTypeIPv4) || objectName == sliceName(name, discoveryv1.AddressTypeIPv6)
}

// mark puts the labels and annotations on an object in the seed that say what it is for. Others stay.
func mark(obj *metav1.ObjectMeta, service *corev1.Service) {
	metav1.SetMetaDataLabel(obj, LabelUID, string(service.UID))
	metav1.SetMetaDataLabel(obj, LabelNamespace, service.Namespace)
	metav1.SetMetaDataLabel(obj, LabelName, service.Name)
	metav1.SetMetaDataAnnotation(obj, AnnotationService, client.ObjectKeyFromObject(service).String())
}

// isFor reports whether an object in the seed is for a Service of the shoot. One whose label was taken off is.
func isFor(obj client.Object, service *corev1.Service) bool {
	return obj.GetLabels()[LabelUID] == string(service.UID) || obj.GetAnnotations()[AnnotationService] == client.ObjectKeyFromObject(service).String()
}

const (
	// maxEndpoints is how many endpoints the API server lets into an EndpointSlice. The machines after that get no traffic.
	maxEndpoints = 1000
	// autoscalerTaint is set by cluster-autoscaler on Nodes that it is about to remove.
	autoscalerTaint = "ToBeDeletedByClusterAutoscaler"
)

// backend is a machine that takes traffic.
type backend struct {
	// node is the name of the Node in the shoot, seedNode that of the node on which its pod is.
	node, seedNode string
	// addresses are one of each family.
	addresses map[discoveryv1.AddressType]netip.Addr
}

// takesTraffic reports whether a Node is one for load balancers. It must be ready, as there are no health checks.
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
	if pod == nil || pod.DeletionTimestamp != nil || machine.HasEnded(pod) {
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

// localNodes returns the Nodes on which a Service has endpoints of a family that kube-proxy sends to: ready ones or, if
// there are none at all, those that still serve while they end.
func localNodes(endpointSlices []discoveryv1.EndpointSlice, family discoveryv1.AddressType) map[string]bool {
	ready, ending := map[string]bool{}, map[string]bool{}
	for _, slice := range endpointSlices {
		if slice.AddressType != family {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			conditions := endpoint.Conditions
			switch {
			case endpoint.NodeName == nil:
			case ptr.Deref(conditions.Ready, true):
				ready[*endpoint.NodeName] = true
			case ptr.Deref(conditions.Serving, false) && ptr.Deref(conditions.Terminating, false):
				ending[*endpoint.NodeName] = true
			}
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return ending
}

// desiredSlice returns the EndpointSlice of a family in the seed. It starts from existing, which may be nil.
func desiredSlice(existing *discoveryv1.EndpointSlice, seed, service *corev1.Service, family discoveryv1.AddressType, backends []backend) *discoveryv1.EndpointSlice {
	out := existing.DeepCopy()
	if out == nil {
		out = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: seed.Namespace, Name: sliceName(seed.Name, family)}, AddressType: family}
	}
	mark(&out.ObjectMeta, service)
	out.Labels[discoveryv1.LabelServiceName] = seed.Name
	out.Labels[discoveryv1.LabelManagedBy] = managedBy

	out.Ports = nil
	for _, port := range service.Spec.Ports {
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: new(port.Name), Protocol: new(port.Protocol), Port: new(port.NodePort)})
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

// onOneNode reports whether all machines are on one node of the seed that is known.
func onOneNode(backends []backend) bool {
	return !slices.ContainsFunc(backends, func(b backend) bool { return b.seedNode == "" || b.seedNode != backends[0].seedNode })
}
