// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

const ready = "True Assigned: It has all addresses and fixed node ports"

var _ = Describe("addresses", func() {
	DescribeTable("are of the families that the Service has",
		func(ctx SpecContext, policy corev1.IPFamilyPolicy, of []corev1.IPFamily, expected []string, expectedCondition string) {
			run(defaults("10.1.0.0/30", "fd00:1::/126"))
			s := newService("default", "families", families(policy, of...))
			create(ctx, s)
			Eventually(ctx, condition(ctx, s)).Should(Equal(expectedCondition))
			Expect(addressesOf(s)).To(Equal(expected))
		},
		Entry("IPv4", single, []corev1.IPFamily{v4}, []string{"10.1.0.0 VIP"}, ready),
		Entry("IPv6", single, []corev1.IPFamily{v6}, []string{"fd00:1:: VIP"}, ready),
		Entry("both", required, []corev1.IPFamily{v4, v6}, []string{"10.1.0.0 VIP", "fd00:1:: VIP"}, ready),
		Entry("both, IPv6 first", prefer, []corev1.IPFamily{v6, v4}, []string{"fd00:1:: VIP", "10.1.0.0 VIP"}, ready),
	)

	DescribeTable("of one family only are what there is",
		func(ctx SpecContext, policy corev1.IPFamilyPolicy, of []corev1.IPFamily, expected []string, expectedCondition string) {
			run(defaults("10.1.0.0/30"))
			s := newService("default", "families", families(policy, of...))
			create(ctx, s)
			Eventually(ctx, condition(ctx, s)).Should(Equal(expectedCondition))
			Expect(addressesOf(s)).To(Equal(expected))
		},
		Entry("for one that prefers both", prefer, []corev1.IPFamily{v6, v4}, []string{"10.1.0.0 VIP"}, ready),
		Entry("not for one that requires both", required, []corev1.IPFamily{v4, v6}, []string{},
			"False IPFamilyNotConfigured: no address of family IPv6 is configured for it"),
		Entry("not for one of the other family", single, []corev1.IPFamily{v6}, []string{},
			"False IPFamilyNotConfigured: no address of family IPv6 is configured for it"),
	)

	It("stay over a restart, and nobody else gets them", func(ctx SpecContext) {
		stop := run(defaults("10.1.0.0/29"))
		var services []*corev1.Service
		for i := range 4 {
			services = append(services, newService("default", fmt.Sprintf("restart-%d", i)))
			create(ctx, services[i])
			Eventually(ctx, addresses(ctx, services[i])).Should(Equal([]string{fmt.Sprintf("10.1.0.%d VIP", i)}))
		}
		stop()

		remove(ctx, services[1])
		late := newService("default", "a-restart-while-none-ran")
		create(ctx, late)
		requests.Reset()
		run(defaults("10.1.0.0/29"))
		Eventually(ctx, addresses(ctx, late)).Should(Equal([]string{"10.1.0.1 VIP"}), "the address of the one that was deleted meanwhile")
		for _, i := range []int{0, 2, 3} {
			Expect(addresses(ctx, services[i])()).To(Equal([]string{fmt.Sprintf("10.1.0.%d VIP", i)}))
		}
		Consistently(ctx, requestsForServices, time.Second).Should(ConsistOf(
			"GET services 200", // what is in use; the cache comes by watch alone
			"PATCH namespaces/default/services/a-restart-while-none-ran/status 200",
		))
	})

	It("follow the configuration, and what was written by hand is replaced", func(ctx SpecContext) {
		stop := run(defaults("10.1.0.0/29"))
		s := newService("default", "replaced")
		create(ctx, s)
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"10.1.0.0 VIP"}))

		before := s.DeepCopy()
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.1.0.3"}, {Hostname: "example.org"}}
		Expect(seed.Status().Patch(ctx, s, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"10.1.0.0 VIP"}))
		stop()

		run(defaults("10.2.0.0/29"))
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"10.2.0.0 VIP"}))
	})

	It("are the ones asked for by spec.loadBalancerIP if they are free", func(ctx SpecContext) {
		run(defaults("10.1.0.0/29"))
		s, other := newService("default", "asks"), newService("default", "other")
		s.Spec.LoadBalancerIP, other.Spec.LoadBalancerIP = "10.1.0.5", "10.1.0.5"
		create(ctx, s)
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"10.1.0.5 VIP"}))

		create(ctx, other)
		Eventually(ctx, condition(ctx, other)).Should(HavePrefix("False AddressInUse: spec.loadBalancerIP 10.1.0.5 is in use"))
		Eventually(ctx, eventsOf(ctx, other)).Should(ConsistOf(HavePrefix("AddressInUse: ")))
		change(ctx, s, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.1.0.6" })
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"10.1.0.6 VIP"}))
		Eventually(ctx, addresses(ctx, other)).Should(Equal([]string{"10.1.0.5 VIP"}), "as soon as it is free")

		change(ctx, s, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "172.18.255.1" })
		Eventually(ctx, condition(ctx, s)).Should(HavePrefix("False AddressNotInPool: spec.loadBalancerIP 172.18.255.1 is in none of the pools"))
		Expect(addressesOf(s)).To(BeEmpty())
	})

	It("that are used up are given on when they become free, without a poll", func(ctx SpecContext) {
		run(defaults("10.1.0.0/31"))
		first, second, third := newService("default", "first"), newService("default", "second"), newService("default", "third")
		create(ctx, first, second)
		Eventually(ctx, addresses(ctx, first)).Should(HaveLen(1))
		Eventually(ctx, addresses(ctx, second)).Should(HaveLen(1))

		create(ctx, third)
		Eventually(ctx, condition(ctx, third)).Should(HavePrefix("False PoolExhausted: all IPv4 addresses of the pools are in use"))
		Expect(addressesOf(third)).To(BeEmpty())
		requests.Reset()
		Consistently(ctx, requestsForServices, 2*time.Second).Should(BeEmpty())
		Expect(eventsOf(ctx, third)()).To(ConsistOf(HavePrefix("PoolExhausted: ")))

		freed := first.Status.LoadBalancer.Ingress[0].IP
		remove(ctx, first)
		Eventually(ctx, condition(ctx, third)).Should(Equal(ready))
		Expect(addressesOf(third)).To(Equal([]string{freed + " VIP"}))
		Expect(requestsForServices()).To(ConsistOf("PATCH namespaces/default/services/third/status 200"))
	})

	It("are free again when a Service is no load balancer any more", func(ctx SpecContext) {
		run(defaults("10.1.0.0/32"))
		s, other := newService("default", "type"), newService("default", "waits")
		create(ctx, s)
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"10.1.0.0 VIP"}))
		create(ctx, other)
		Eventually(ctx, condition(ctx, other)).Should(HavePrefix("False PoolExhausted: "))

		change(ctx, s, ofType(corev1.ServiceTypeClusterIP))
		Eventually(ctx, addresses(ctx, other)).Should(Equal([]string{"10.1.0.0 VIP"}))
		change(ctx, s, ofType(corev1.ServiceTypeLoadBalancer))
		Eventually(ctx, condition(ctx, s)).Should(HavePrefix("False PoolExhausted: "))
		Expect(addressesOf(s)).To(BeEmpty())
	})

	It("stay with a Service whose deletion takes time until it is gone", func(ctx SpecContext) {
		run(defaults("10.1.0.0/32"))
		s, other := newService("default", "lingers"), newService("default", "waits")
		s.Finalizers = []string{"example.org/suite"}
		create(ctx, s)
		Eventually(ctx, addresses(ctx, s)).Should(HaveLen(1))
		remove(ctx, s)
		create(ctx, other)
		Eventually(ctx, condition(ctx, other)).Should(HavePrefix("False PoolExhausted: "))
		Expect(addresses(ctx, s)()).To(HaveLen(1))

		change(ctx, s, func(s *corev1.Service) { s.Finalizers = nil })
		Eventually(ctx, addresses(ctx, other)).Should(Equal([]string{"10.1.0.0 VIP"}))
	})

	It("are not lost with a Service that is deleted before it has one", func(ctx SpecContext) {
		run(defaults("10.1.0.0/30"))
		inParallel(ctx, 40, func(i int) {
			s := newService("default", fmt.Sprintf("short-lived-%d", i))
			Expect(seed.Create(ctx, s)).To(Succeed())
			Expect(seed.Delete(ctx, s)).To(Succeed())
		})
		for i := range 4 {
			s := newService("default", fmt.Sprintf("long-lived-%d", i))
			create(ctx, s)
			Eventually(ctx, addresses(ctx, s)).Should(HaveLen(1))
		}
	})

	It("of load balancers of others are theirs", func(ctx SpecContext) {
		foreign, ours := newService("default", "a-foreign"), newService("default", "ours")
		foreign.Spec.LoadBalancerClass, ours.Spec.LoadBalancerClass = new("example.org/other"), new(loadbalancer.Class)
		create(ctx, foreign)
		foreign.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.1.0.0", IPMode: new(corev1.LoadBalancerIPModeProxy)}}
		Expect(seed.Status().Update(ctx, foreign)).To(Succeed())

		run(defaults("10.1.0.0/30"))
		create(ctx, ours)
		Eventually(ctx, addresses(ctx, ours)).Should(Equal([]string{"10.1.0.1 VIP"}), "not the address of the other")
		version := foreign.ResourceVersion
		change(ctx, foreign, func(*corev1.Service) {})
		Expect(foreign.ResourceVersion).To(Equal(version), "not touched")
	})

	It("are written although others write to the Service all the time", func(ctx SpecContext) {
		run(defaults("10.1.0.0/24"))
		s := newService("default", "busy")
		create(ctx, s)
		for i := range 50 {
			Expect(seed.Patch(ctx, s.DeepCopy(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"busy":"%d"}}}`, i)))).To(Succeed())
			if i%10 == 0 {
				// Both write to the status here.
				Expect(seed.Status().Patch(ctx, s.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"loadBalancer":{"ingress":null}}}`)))).To(Succeed())
			}
		}
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"10.1.0.0 VIP"}))
		Expect(s.Labels).To(HaveKeyWithValue("busy", "49"))
		Expect(s.Spec.Selector).To(Equal(map[string]string{"app": "busy"}))
		Expect(s.Spec.Ports[0]).To(And(HaveField("TargetPort.StrVal", "http"), HaveField("AppProtocol", HaveValue(Equal("http")))))
	})
})

var _ = Describe("many Services at once", func() {
	const count = 300

	It("all get an address of their own with one request each, and cost none from then on", func(ctx SpecContext) {
		stop := run(defaults("10.1.0.0/16", "fd00:1::/64"))
		requests.Reset()
		DeferCleanup(func(ctx SpecContext) {
			Expect(seed.DeleteAllOf(ctx, &corev1.Service{}, client.InNamespace("default"), client.MatchingLabels{"suite": "service"})).To(Succeed())
		})
		start := time.Now()
		inParallel(ctx, count, func(i int) {
			Expect(seed.Create(ctx, newService("default", fmt.Sprintf("many-%d", i), families(required, v4, v6)))).To(Succeed())
		})
		created := time.Since(start)
		Eventually(ctx, addressesOfAll(ctx)).Should(HaveLen(2 * count))
		AddReportEntry(fmt.Sprintf("%d Services: created after %s, all have addresses after %s", count, created.Round(time.Millisecond), time.Since(start).Round(time.Millisecond)))
		assigned, err := addressesOfAll(ctx)()
		Expect(err).NotTo(HaveOccurred())

		patches := 0
		for _, request := range requestsForServices() {
			if strings.HasPrefix(request, "PATCH ") {
				Expect(request).To(HaveSuffix("/status 200"))
				patches++
			}
		}
		Expect(patches).To(Equal(count))

		requests.Reset()
		stop()
		run(defaults("10.1.0.0/16", "fd00:1::/64"))
		Eventually(requestsForServices).Should(ConsistOf("GET services 200"), "what is in use; the cache comes by watch alone")
		Consistently(ctx, requestsForServices, 2*time.Second).Should(HaveLen(1))
		Expect(addressesOfAll(ctx)()).To(Equal(assigned))
	})
})

// addressesOfAll reads which Service of the suite has which address. Two that have one make it fail.
func addressesOfAll(ctx context.Context) func() (map[string]string, error) {
	return func() (map[string]string, error) {
		list := &corev1.ServiceList{}
		if err := seed.List(ctx, list, client.MatchingLabels{"suite": "service"}); err != nil {
			return nil, err
		}
		out := map[string]string{}
		for _, s := range list.Items {
			for _, address := range addressesOf(&s) {
				if other, ok := out[address]; ok {
					return nil, StopTrying(fmt.Sprintf("%s and %s both have %s", other, s.Name, address))
				}
				out[address] = s.Name
			}
		}
		return out, nil
	}
}

var _ = Describe("well-known Services", func() {
	DescribeTable("have the addresses and node ports of the table",
		func(ctx SpecContext, namespace, name string, expectedAddresses []string, expectedPort int32) {
			requests.Reset()
			run(defaults())
			s := newService(namespace, name, families(required, v4, v6))
			create(ctx, s)
			Eventually(ctx, addresses(ctx, s)).Should(Equal(expectedAddresses))
			Expect(condition(ctx, s)()).To(Equal(ready))
			if expectedPort != 0 {
				Expect(s.Spec.Ports[1].NodePort).To(Equal(expectedPort))
			}
			Expect(s.Spec.Ports).To(HaveLen(2))
			Expect(s.Spec.Ports[0]).To(And(
				HaveField("Name", "http"), HaveField("TargetPort.StrVal", "http"), HaveField("AppProtocol", HaveValue(Equal("http"))),
				HaveField("NodePort", Not(BeZero())),
			))
			Expect(s.Spec.Selector).To(Equal(map[string]string{"app": name}))

			path := fmt.Sprintf("PATCH namespaces/%s/services/%s", namespace, name)
			expected := []any{"GET services 200", path + "/status 200"}
			if expectedPort != 0 {
				expected = append(expected, path+" 200")
			}
			if _, ok := s.Annotations[loadbalancer.AnnotationInstance]; ok {
				expected = append(expected, path+" 200") // A garden needs it, too: the instance names itself.
			}
			Expect(requestsForServices()).To(ConsistOf(expected...))
		},
		Entry("the gateway of the seed", "istio-ingress", "istio-ingressgateway", []string{"172.18.255.1 VIP", "fd00:ff::1 VIP"}, int32(30433)),
		Entry("the gateway of a zone", "istio-ingress--0", "istio-ingressgateway", []string{"172.18.255.10 VIP", "fd00:ff::10 VIP"}, int32(30434)),
		Entry("the gateway of another zone", "istio-ingress--other", "istio-ingressgateway", []string{"172.18.255.1 Proxy", "fd00:ff::1 Proxy"}, int32(0)),
		Entry("nginx-ingress-controller", "garden", "nginx-ingress-controller", []string{"172.18.255.4 VIP", "fd00:ff::4 VIP"}, int32(30448)),
	)

	It("have one node port for TCP and UDP", func(ctx SpecContext) {
		config := defaults()
		config.Services = append(config.Services, fixed("default", "both-protocols", 53, 30999))
		run(config)
		s := newService("default", "both-protocols")
		s.Spec.Ports = []corev1.ServicePort{{Name: "udp", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "tcp", Port: 53, Protocol: corev1.ProtocolTCP}, {Name: "metrics", Port: 9153}}
		create(ctx, s)
		Eventually(ctx, nodePorts(ctx, s)).Should(HaveExactElements(int32(30999), int32(30999), Not(BeZero())))
	})

	It("have their fixed node ports although they want none allocated", func(ctx SpecContext) {
		run(defaults())
		s := newService("istio-ingress", "istio-ingressgateway")
		s.Spec.AllocateLoadBalancerNodePorts = new(false)
		create(ctx, s)
		Eventually(ctx, nodePorts(ctx, s)).Should(Equal([]int32{0, 30433}))
	})

	It("get their node port from another of their own ports", func(ctx SpecContext) {
		run(defaults())
		s := newService("istio-ingress", "istio-ingressgateway")
		s.Spec.Ports[0].NodePort = 30433
		create(ctx, s)
		Eventually(ctx, nodePorts(ctx, s)).Should(HaveExactElements(Not(BeElementOf(int32(0), int32(30433))), int32(30433)))
	})

	DescribeTable("get their node port from another Service",
		func(ctx SpecContext, serviceType corev1.ServiceType) {
			other := newService("default", "other", ofType(serviceType), https(30433))
			// Both protocols have the node port, and both have to give it up.
			other.Spec.Ports = append(other.Spec.Ports, corev1.ServicePort{Name: "quic", Port: 443, Protocol: corev1.ProtocolUDP, NodePort: 30433})
			neighbour := newService("default", "neighbour", ofType(corev1.ServiceTypeNodePort), https(30432))
			create(ctx, other, neighbour)
			run(defaults("10.1.0.0/30"))

			s := newService("istio-ingress", "istio-ingressgateway")
			create(ctx, s)
			Eventually(ctx, condition(ctx, s)).Should(Equal(ready))
			Expect(nodePorts(ctx, s)()).To(HaveExactElements(Not(BeZero()), int32(30433)))
			// 30432 is the neighbour's, 30434 to 30436 are those of the zones.
			Expect(nodePorts(ctx, other)()).To(HaveExactElements(Not(BeZero()), int32(30431), int32(30431)))
			Expect(other.Spec.Ports[0]).To(And(HaveField("TargetPort.StrVal", "http"), HaveField("AppProtocol", HaveValue(Equal("http")))))
			Eventually(ctx, eventsOf(ctx, other)).Should(ConsistOf("NodePortMoved: Node port 30433 is fixed for Service istio-ingress/istio-ingressgateway, this one has 30431 now"))
			Eventually(ctx, eventsOf(ctx, s)).Should(ConsistOf("NodePortMoved: Took node port 30433 from Service default/other, which has 30431 now"))
		},
		Entry("of type NodePort", corev1.ServiceTypeNodePort),
		Entry("of type LoadBalancer", corev1.ServiceTypeLoadBalancer),
	)

	It("say so if a health check node port is in the way", func(ctx SpecContext) {
		run(defaults("10.1.0.0/30"))
		other := newService("default", "other")
		other.Spec.ExternalTrafficPolicy, other.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 30433
		s := newService("istio-ingress", "istio-ingressgateway")
		create(ctx, other, s)
		Eventually(ctx, condition(ctx, s)).Should(HavePrefix("False NodePortConflict: node port 30433 is the health check node port of Service default/other"))
		Expect(addressesOf(s)).To(Equal([]string{"172.18.255.1 VIP"}), "it has its address all the same")
		Eventually(ctx, eventsOf(ctx, s)).Should(ConsistOf(HavePrefix("NodePortConflict: ")))

		requests.Reset()
		Consistently(ctx, func() int { return len(requestsForServices()) }, 2*time.Second).Should(BeNumerically("<", 10), "it does not fight")
		Expect(nodePorts(ctx, s)()).To(HaveEach(Not(BeZero())))
	})

	It("say so if a node port is out of range, and have the others", func(ctx SpecContext) {
		config := defaults("10.1.0.0/30")
		out := fixed("default", "out-of-range", 443, 40000)
		out.NodePorts = append(out.NodePorts, fixed("", "", 80, 30999).NodePorts...)
		config.Services = append(config.Services, out)
		run(config)
		s := newService("default", "out-of-range")
		create(ctx, s)
		Eventually(ctx, condition(ctx, s)).Should(Equal("False NodePortOutOfRange: node port 40000 is not in the API server's --service-node-port-range"))
		Expect(nodePorts(ctx, s)()).To(HaveExactElements(int32(30999), Not(BeZero())))
	})

	It("are served again after they were deleted and came back", func(ctx SpecContext) {
		run(defaults())
		for range 3 {
			s := newService("istio-ingress", "istio-ingressgateway")
			create(ctx, s)
			Eventually(ctx, condition(ctx, s)).Should(Equal(ready))
			remove(ctx, s)
			Expect(apierrors.IsNotFound(seed.Get(ctx, client.ObjectKeyFromObject(s), &corev1.Service{ObjectMeta: metav1.ObjectMeta{}}))).To(BeTrue())
		}
	})
})
