// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
	"github.com/gardener/gardener-extension-provider-local/test/probe"
)

// pool is where all Services get their addresses from that are not well known, and on the landscape leads to this machine.
var pool = current.Translate("172.18.255.128/25")

var _ = Describe("A Service of type LoadBalancer", Ordered, ContinueOnFailure, Serial, func() {
	var selector map[string]string

	BeforeAll(func(ctx SpecContext) {
		selector = standIn(ctx, networkNamespace, "backend")
	})

	// balancer makes a Service and waits until it has an address of the pool.
	balancer := func(ctx context.Context, name string, change func(*corev1.Service)) *corev1.Service {
		GinkgoHelper()
		service := loadBalancer(networkNamespace, name, selector,
			corev1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromInt32(httpPort)},
			corev1.ServicePort{Name: "udp", Port: 5000, TargetPort: intstr.FromInt32(udpPort), Protocol: corev1.ProtocolUDP})
		if change != nil {
			change(service)
		}
		create(ctx, service)
		Eventually(get(ctx, service)).Should(HaveField("Status.LoadBalancer.Ingress", ConsistOf(And(
			HaveField("IP", beIn(pool)), HaveField("IPMode", HaveValue(Equal(corev1.LoadBalancerIPModeVIP)))))))
		return service
	}

	DescribeTable("answers the host and pods by TCP and UDP", func(ctx SpecContext, policy corev1.ServiceExternalTrafficPolicy) {
		service := balancer(ctx, "answers", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = policy })
		eventuallyAnswers(ctx, addressOf(service), "backend")

		By("refusing connections once it is gone")
		address := addressOf(service)
		deleteAndWait(ctx, service)
		Eventually(func() error {
			_, err := probe.Fetch(ctx, "http://"+address, "")
			return err
		}).Should(MatchError(ContainSubstring("connection refused")))
	},
		Entry("with any node's pods", corev1.ServiceExternalTrafficPolicyCluster),
		Entry("with the node's own pods", corev1.ServiceExternalTrafficPolicyLocal),
	)

	It("has an address of its own, which is free once it is gone", func(ctx SpecContext) {
		first, second := balancer(ctx, "first", nil), balancer(ctx, "second", nil)
		Expect(addressOf(first)).NotTo(Equal(addressOf(second)))

		third := create(ctx, withLoadBalancerIP(loadBalancer(networkNamespace, "third", selector, corev1.ServicePort{Port: 80}), addressOf(first)))
		Eventually(func() []eventsv1.Event { return eventsOf(ctx, third) }).Should(ContainElement(HaveField("Reason", loadbalancer.ReasonInUse)))
		Expect(c.Get(ctx, client.ObjectKeyFromObject(third), third)).To(Succeed())
		Expect(third.Status.LoadBalancer.Ingress).To(BeEmpty(), "another one has the address")
		deleteAndWait(ctx, first)
		Eventually(get(ctx, third)).Should(HaveField("Status.LoadBalancer.Ingress", ConsistOf(HaveField("IP", addressOf(first)))))
	})

	It("keeps its address when the instance starts anew", func(ctx SpecContext) {
		before := balancer(ctx, "before", nil)
		address := addressOf(before)
		instance := named[*appsv1.Deployment](seedInstanceNamespace, seedInstance)
		Expect(c.Get(ctx, client.ObjectKeyFromObject(instance), instance)).To(Succeed())
		Expect(c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(seedInstanceNamespace), client.GracePeriodSeconds(0),
			client.MatchingLabels(instance.Spec.Selector.MatchLabels))).To(Succeed())

		after := balancer(ctx, "after", nil)
		Expect(addressOf(after)).NotTo(Equal(address), "the new instance knows whose it is")
		Expect(c.Get(ctx, client.ObjectKeyFromObject(before), before)).To(Succeed())
		Expect(addressOf(before)).To(Equal(address))
		eventuallyAnswers(ctx, address, "backend")
		eventuallyReady(ctx, instance)
	})

	It("gives up a node port that a well-known Service has", func(ctx SpecContext) {
		const nodePort = 30433
		occupant := balancer(ctx, "occupant", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = nodePort })
		Expect(nodePorts(occupant)).To(HaveKeyWithValue(int32(80), int32(nodePort)))

		service := gateways(ctx, []string{gatewayNamespace}, []string{hostAddress})[0]
		expectGateway(ctx, service, nodePort)
		Eventually(get(ctx, occupant)).Should(WithTransform(nodePorts, HaveKeyWithValue(int32(80), And(BeNumerically(">", 0), Not(Equal(int32(nodePort)))))))
		eventuallyAnswers(ctx, addressOf(occupant), "backend")
	})

	It("of another class is nobody's here", func(ctx SpecContext) {
		other := loadBalancer(networkNamespace, "other", selector, corev1.ServicePort{Port: 80})
		other.Spec.LoadBalancerClass = new("example.org/other")
		create(ctx, other)
		balancer(ctx, "later", nil)
		Expect(c.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
		Expect(other.Status.LoadBalancer.Ingress).To(BeEmpty())
	})
})

var _ = Describe("Services of type LoadBalancer that were there before the seed", func() {
	It("keep their addresses and node ports", func(ctx SpecContext) {
		Expect(balancersBefore).To(And(
			HaveKeyWithValue("virtual-garden-istio-ingress/"+gatewayName, HaveField("Addresses", HaveExactElements(current.Translate("172.18.255.3 VIP")))),
			HaveKeyWithValue(coreDNSNamespace+"/coredns-host", HaveField("Addresses", HaveExactElements(current.Translate("172.18.255.54 VIP"))))))
		for _, service := range balancersOf(ctx) {
			if before, ok := balancersBefore[client.ObjectKeyFromObject(&service).String()]; ok {
				// The condition tells that the instance has looked at it.
				Eventually(get(ctx, &service)).Should(HaveField("Status.Conditions", ContainElement(And(
					HaveField("Type", loadbalancer.ConditionReady), HaveField("Status", metav1.ConditionTrue)))))
				Expect(describe(&service)).To(Satisfy(before.isKeptBy))
			}
		}
	})
})

// placement is where a Service of type LoadBalancer is reached.
type placement struct {
	// Addresses are ADDRESS IPMODE each.
	Addresses []string
	// NodePorts are by PORT/PROTOCOL.
	NodePorts map[string]int32
}

// isKeptBy reports whether a placement is the same later. A node port which another Service is known by, that this one got by
// chance, is not its own to keep.
func (p placement) isKeptBy(later placement) bool {
	config := &configv1alpha1.ExtensionConfiguration{}
	configv1alpha1.SetDefaults(config)
	known := sets.New[int32]()
	for _, service := range config.LoadBalancers.Services {
		for _, port := range service.NodePorts {
			known.Insert(port.NodePort)
		}
	}
	return slices.Equal(p.Addresses, later.Addresses) && maps.EqualFunc(p.NodePorts, later.NodePorts, func(before, after int32) bool {
		return before == after || known.Has(before)
	})
}

// balancers are all Services of type LoadBalancer.
func balancers(ctx context.Context) map[string]placement {
	GinkgoHelper()
	out := map[string]placement{}
	for _, service := range balancersOf(ctx) {
		out[client.ObjectKeyFromObject(&service).String()] = describe(&service)
	}
	return out
}

func balancersOf(ctx context.Context) []corev1.Service {
	GinkgoHelper()
	list := &corev1.ServiceList{}
	Expect(c.List(ctx, list)).To(Succeed())
	return slices.DeleteFunc(list.Items, func(service corev1.Service) bool { return service.Spec.Type != corev1.ServiceTypeLoadBalancer })
}

func describe(service *corev1.Service) placement {
	out := placement{NodePorts: map[string]int32{}}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		out.Addresses = append(out.Addresses, ingress.IP+" "+string(ptr.Deref(ingress.IPMode, "")))
	}
	for _, port := range service.Spec.Ports {
		out.NodePorts[fmt.Sprintf("%d/%s", port.Port, port.Protocol)] = port.NodePort
	}
	return out
}

// eventuallyAnswers waits until the stand-in behind an address answers whoever asks. kube-proxy takes over what is new in a
// moment.
func eventuallyAnswers(ctx context.Context, address, name string) {
	GinkgoHelper()
	http, udp := "http://"+address+"/", net.JoinHostPort(address, "5000")
	answers := HaveField("Name", networkNamespace+"/"+name)
	Eventually(func(g Gomega) {
		g.Expect(probe.Fetch(ctx, http, "")).To(answers, "the host by TCP")
		g.Expect(probe.Echo(ctx, udp)).To(answers, "the host by UDP")
		g.Expect(podFetches(ctx, http, "")).To(answers, "a pod by TCP")
		report, err := fromPod(ctx, "echo", map[string]string{"address": udp})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(report.Answer).To(answers, "a pod by UDP")
	}).Should(Succeed())
}

// eventsOf are the Events about an object.
func eventsOf(ctx context.Context, obj client.Object) []eventsv1.Event {
	GinkgoHelper()
	list := &eventsv1.EventList{}
	Expect(c.List(ctx, list, client.InNamespace(obj.GetNamespace()))).To(Succeed())
	return slices.DeleteFunc(list.Items, func(event eventsv1.Event) bool { return event.Regarding.UID != obj.GetUID() })
}

func withLoadBalancerIP(service *corev1.Service, address string) *corev1.Service {
	service.Spec.LoadBalancerIP = address
	return service
}

// beIn matches an address that is in a range.
func beIn(cidr string) OmegaMatcher {
	prefix := netip.MustParsePrefix(cidr)
	return WithTransform(func(address string) bool {
		parsed, err := netip.ParseAddr(address)
		return err == nil && prefix.Contains(parsed)
	}, BeTrue())
}
