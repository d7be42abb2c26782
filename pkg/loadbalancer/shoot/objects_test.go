// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

const (
	v4, v6    = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	namespace = "shoot--local--foo"
	uid       = "0b7c2f4e-6f0a-4a53-8f53-0c5b9a3c1d2e"
)

func newService(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: uid, Finalizers: []string{"service.kubernetes.io/load-balancer-cleanup"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}},
		},
	}
	for _, change := range change {
		change(s)
	}
	return s
}

func newNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: machine.PodName(name)},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
		},
	}
	for _, change := range change {
		change(n)
	}
	return n
}

func newPod(name string, ips ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machine.PodName(name), Labels: machine.Labels(name)},
		Spec:       corev1.PodSpec{NodeName: "seed-node"},
	}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func TestANodeTakesTrafficIfItIsReadyAndWanted(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(*corev1.Node)
		expected bool
	}{
		"ready":                           {func(*corev1.Node) {}, true},
		"not ready":                       {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, false},
		"of which nothing has been heard": {func(n *corev1.Node) { n.Status.Conditions = nil }, false},
		"excluded":                        {func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""} }, false},
		"excluded in words":               {func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: "yes"} }, false},
		"not excluded":                    {func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: "false"} }, true},
		"about to be removed by cluster-autoscaler": {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: autoscalerTaint}} }, false},
		"being deleted": {func(n *corev1.Node) { n.DeletionTimestamp = new(metav1.Now()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(takesTraffic(newNode("a", test.change))).To(Equal(test.expected))
		})
	}
}

func TestAnAddressCountsIfNodeAndPodHaveIt(t *testing.T) {
	withAddresses := func(addresses ...corev1.NodeAddress) *corev1.Node {
		return newNode("a", func(n *corev1.Node) { n.Status.Addresses = addresses })
	}
	internal := func(address string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}
	}
	// Its status still has the address, which may be another pod's by now.
	ended := func(phase corev1.PodPhase) *corev1.Pod {
		p := newPod("a", "10.0.0.1")
		p.Status.Phase = phase
		stripped, _ := strip(p)
		return stripped.(*corev1.Pod)
	}
	for name, test := range map[string]struct {
		node     *corev1.Node
		pod      *corev1.Pod
		expected []string
	}{
		"of one family":                 {withAddresses(internal("10.0.0.1")), newPod("a", "10.0.0.1"), []string{"10.0.0.1"}},
		"of both, written in two ways":  {withAddresses(internal("FD00:0::1"), internal("::ffff:10.0.0.1")), newPod("a", "10.0.0.1", "fd00::1"), []string{"10.0.0.1", "fd00::1"}},
		"and not a second one":          {withAddresses(internal("10.0.0.1"), internal("10.0.0.2")), newPod("a", "10.0.0.1", "10.0.0.2"), []string{"10.0.0.1"}},
		"and not one of something else": {withAddresses(internal("10.96.0.1"), internal("10.0.0.1")), newPod("a", "10.0.0.1"), []string{"10.0.0.1"}},
		"and not an external one":       {withAddresses(corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "10.0.0.1"}), newPod("a", "10.0.0.1"), nil},
		"and not something else":        {withAddresses(internal("localhost")), newPod("a", "localhost"), nil},
		"and not that of no pod":        {withAddresses(internal("10.0.0.1")), nil, nil},
		"and not that of a pod that is about to go": {withAddresses(internal("10.0.0.1")), func() *corev1.Pod {
			p := newPod("a", "10.0.0.1")
			p.DeletionTimestamp = new(metav1.Now())
			return p
		}(), nil},
		"and not that of a pod that has failed":    {withAddresses(internal("10.0.0.1")), ended(corev1.PodFailed), nil},
		"and not that of a pod that has succeeded": {withAddresses(internal("10.0.0.1")), ended(corev1.PodSucceeded), nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b, ok := backendOf(test.node, test.pod)
			g.Expect(ok).To(Equal(len(test.expected) > 0))
			var got []string
			for _, family := range []discoveryv1.AddressType{v4, v6} {
				if address, ok := b.addresses[family]; ok {
					got = append(got, address.String())
				}
			}
			g.Expect(got).To(Equal(test.expected))
		})
	}
}

func TestLocalEndpointsAreReadyOnesOrElseThoseThatEnd(t *testing.T) {
	endpoint := func(node string, ready, serving, terminating *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating}}
	}
	yes, no := new(true), new(false)
	ending, broken := endpoint("ending", no, yes, yes), endpoint("broken", no, no, no)
	slice := func(family discoveryv1.AddressType, endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{AddressType: family, Endpoints: endpoints}
	}
	for name, test := range map[string]struct {
		slices   []discoveryv1.EndpointSlice
		expected map[string]bool
	}{
		"none":                           {nil, map[string]bool{}},
		"ready, or nobody knows":         {[]discoveryv1.EndpointSlice{slice(v4, endpoint("a", yes, yes, no), endpoint("b", nil, nil, nil)), slice(v4, ending, broken)}, map[string]bool{"a": true, "b": true}},
		"that end, where none is ready":  {[]discoveryv1.EndpointSlice{slice(v4, ending, broken)}, map[string]bool{"ending": true}},
		"of the family only":             {[]discoveryv1.EndpointSlice{slice(v6, endpoint("a", yes, yes, no)), slice(v4, endpoint("b", yes, yes, no))}, map[string]bool{"b": true}},
		"on a Node that is known at all": {[]discoveryv1.EndpointSlice{slice(v4, discoveryv1.Endpoint{})}, map[string]bool{}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(localNodes(test.slices, v4)).To(Equal(test.expected))
		})
	}
}

func TestAnEndpointSliceHasNoMoreThanTheAPIServerTakes(t *testing.T) {
	g := NewWithT(t)
	var all []backend
	for i := range maxEndpoints + 1 {
		b, ok := backendOf(newNode(fmt.Sprintf("%04d", i)), newPod("a", "10.0.0.1"))
		g.Expect(ok).To(BeTrue())
		all = append(all, b)
	}
	slice := desiredSlice(nil, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "lb"}}, newService(), v4, all)
	g.Expect(slice.Endpoints).To(HaveLen(maxEndpoints))
	g.Expect(desiredSlice(nil, &corev1.Service{}, newService(), v6, all).Endpoints).To(BeEmpty())
}

func TestClientsKeepTheirAddressesOnlyIfAllMachinesAreOnOneNode(t *testing.T) {
	g := NewWithT(t)
	g.Expect(onOneNode(nil)).To(BeTrue())
	g.Expect(onOneNode([]backend{{seedNode: "a"}, {seedNode: "a"}})).To(BeTrue())
	g.Expect(onOneNode([]backend{{seedNode: "a"}, {seedNode: "b"}})).To(BeFalse())
	g.Expect(onOneNode([]backend{{}, {}})).To(BeFalse())
}

func TestAServiceThatCannotBeServedIsAMistake(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"without node ports":               func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 0 },
		"with source ranges that are none": func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"ten"} },
		"with an annotation that makes no sense": func(s *corev1.Service) {
			s.Annotations = map[string]string{corev1.AnnotationLoadBalancerSourceRangesKey: "ten"}
		},
		"with more source ranges than nodes should have rules for": func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = slices.Repeat([]string{"10.0.0.0/8"}, maxRanges+1)
		},
		"with an annotation of too many": func(s *corev1.Service) {
			s.Annotations = map[string]string{corev1.AnnotationLoadBalancerSourceRangesKey: strings.Repeat("10.0.0.0/8,", maxRanges) + "10.0.0.0/8"}
		},
		"with an address that is a text of any length": func(s *corev1.Service) { s.Spec.LoadBalancerIP = strings.Repeat("a", 1<<20) },
		"with an address with a zone of any length":    func(s *corev1.Service) { s.Spec.LoadBalancerIP = "fe80::1%" + strings.Repeat("a", 1<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := desiredService(nil, newService(change), namespace, false, false)
			NewWithT(t).Expect(errors.As(err, &waiting{})).To(BeTrue(), "%v", err)
			NewWithT(t).Expect(len(err.Error())).To(BeNumerically("<", 400))
		})
	}
}

func TestSourceRangesLeaveNoFamilyOpen(t *testing.T) {
	for name, test := range map[string]struct {
		families         []corev1.IPFamily
		ranges, expected []string
	}{
		"where there are none, all may come":                   {[]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, nil, nil},
		"where there are some of each":                         {[]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, []string{"fd00::/64", "10.0.0.0/8"}, []string{"10.0.0.0/8", "fd00::/64"}},
		"where the Service has one family":                     {[]corev1.IPFamily{corev1.IPv4Protocol}, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}},
		"where there are none of IPv6":                         {[]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8", "::/128"}},
		"where there are none of IPv4":                         {[]corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}, []string{"fd00::/64"}, []string{"255.255.255.255/32", "fd00::/64"}},
		"where all are of a family that the Service has not":   {[]corev1.IPFamily{corev1.IPv4Protocol}, []string{"fd00::/64"}, []string{"255.255.255.255/32", "fd00::/64"}},
		"where nobody has said which families the Service has": {nil, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s, err := desiredService(nil, newService(func(s *corev1.Service) {
				s.Spec.IPFamilies, s.Spec.LoadBalancerSourceRanges = test.families, test.ranges
			}), namespace, false, false)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.Spec.LoadBalancerSourceRanges).To(Equal(test.expected))
		})
	}
}

func TestWhatTheAPIServerAndOthersAddToAServiceIsNoChange(t *testing.T) {
	g := NewWithT(t)
	s, err := desiredService(nil, newService(), namespace, false, false)
	g.Expect(err).NotTo(HaveOccurred())
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.7", []string{"10.96.0.7"}
	s.Labels["example.org/theirs"] = "stays"
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.1.0.0"}}
	g.Expect(desiredService(s, newService(), namespace, false, false)).To(Equal(s))
}

func TestNodePortsAreAllocatedOnceWhereTheyAreNeeded(t *testing.T) {
	g := NewWithT(t)
	s, err := desiredService(nil, newService(), namespace, false, true)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Spec.AllocateLoadBalancerNodePorts).To(HaveValue(BeTrue()))
	s.Spec.Ports[0].NodePort = 31234
	g.Expect(desiredService(s, newService(), namespace, false, true)).To(Equal(s), "what the API server has allocated stays")

	s, err = desiredService(s, newService(), namespace, false, false)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Spec.AllocateLoadBalancerNodePorts).To(HaveValue(BeFalse()))
	g.Expect(s.Spec.Ports[0].NodePort).To(BeZero())
}

func TestTheFamiliesOfAServiceFollowTheShoots(t *testing.T) {
	families := func(policy corev1.IPFamilyPolicy, families ...corev1.IPFamily) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &policy, families }
	}
	dual := newService(families(corev1.IPFamilyPolicyPreferDualStack, corev1.IPv6Protocol, corev1.IPv4Protocol))

	t.Run("of one of both, the seed's API server chooses the order", func(t *testing.T) {
		g := NewWithT(t)
		s, err := desiredService(nil, dual, namespace, false, false)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(s.Spec.IPFamilyPolicy).To(HaveValue(Equal(corev1.IPFamilyPolicyPreferDualStack)))
		g.Expect(s.Spec.IPFamilies).To(BeEmpty())
	})

	existing := newService(families(corev1.IPFamilyPolicyPreferDualStack, corev1.IPv4Protocol, corev1.IPv6Protocol))
	existing.Spec.ClusterIPs = []string{"10.96.0.7", "fd00::7"}
	for name, test := range map[string]struct {
		family   corev1.IPFamily
		replaced bool
	}{
		"one that becomes one of its first keeps its Service":  {corev1.IPv4Protocol, false},
		"one that becomes one of its second needs another one": {corev1.IPv6Protocol, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s, err := desiredService(existing, newService(families(corev1.IPFamilyPolicySingleStack, test.family)), namespace, false, false)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.Spec.IPFamilies).To(ConsistOf(test.family))
			g.Expect(s.Spec.ClusterIPs).To(ConsistOf("10.96.0.7"))
			g.Expect(mustBeReplaced(existing, s)).To(Equal(test.replaced))
		})
	}
}

func TestTheStatusHasTheAddressesInTheOrderOfTheShootsService(t *testing.T) {
	g := NewWithT(t)
	seed := &corev1.Service{}
	service := newService(func(s *corev1.Service) {
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	})
	g.Expect(statusFor(seed, service)).To(BeNil())

	seed.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
		{IP: "10.1.0.0", IPMode: new(corev1.LoadBalancerIPModeProxy), Ports: []corev1.PortStatus{{Port: 80}}}, {IP: "fd00::1"}, {Hostname: "lb.example.org"}, {},
	}
	g.Expect(statusFor(seed, service).Ingress).To(ConsistOf(
		corev1.LoadBalancerIngress{IP: "fd00::1", IPMode: new(corev1.LoadBalancerIPModeVIP)},
		corev1.LoadBalancerIngress{IP: "10.1.0.0", IPMode: new(corev1.LoadBalancerIPModeVIP)},
		corev1.LoadBalancerIngress{Hostname: "lb.example.org"},
	))
	g.Expect(statusFor(seed, service).Ingress[0].IP).To(Equal("fd00::1"))
}
