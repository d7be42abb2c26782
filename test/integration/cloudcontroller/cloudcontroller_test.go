// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cloudcontroller_test

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
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer/shoot"
)

const manyServices = 100

var _ = Describe("a Service of a shoot", func() {
	It("has an address of the seed that leads to the node ports of its machines, by TCP and UDP", func(ctx SpecContext) {
		run()
		newMachine(ctx, "a", "10.200.0.1")
		newMachine(ctx, "b", "10.200.0.2")
		s := newService("dns", func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{
				{Name: "tcp", Port: 53, NodePort: 30053}, {Name: "udp", Port: 53, NodePort: 30053, Protocol: corev1.ProtocolUDP}, {Name: "metrics", Port: 9153, NodePort: 30153},
			}
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Annotations = map[string]string{"networking.resources.gardener.cloud/from-world-to-ports": "[]"}
		})
		create(ctx, s)
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"10.1.0.0 VIP"}))
		Eventually(ctx, backends(ctx, s)).Should(Equal(map[string][]string{
			"tcp":     {"10.200.0.1:30053/TCP", "10.200.0.2:30053/TCP"},
			"udp":     {"10.200.0.1:30053/UDP", "10.200.0.2:30053/UDP"},
			"metrics": {"10.200.0.1:30153/TCP", "10.200.0.2:30153/TCP"},
		}))

		there := inTheSeed(ctx, s)
		Expect(there.Annotations).To(Equal(map[string]string{shoot.AnnotationService: "default/dns"}), "and none of the user's")
		Expect(there.Labels).To(Equal(map[string]string{shoot.LabelUID: string(s.UID), shoot.LabelNamespace: "default", shoot.LabelName: "dns"}))
		Expect(there.Spec.Selector).To(BeEmpty())
		Expect(there.Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP))
		Expect(there.Spec.SessionAffinityConfig).To(Equal(s.Spec.SessionAffinityConfig))
		Expect(there.Spec.Ports).To(HaveLen(3))
		Expect(there.Spec.Ports).To(HaveEach(HaveField("NodePort", BeZero())), "the seed's node ports are not spent")
		Expect(s.Finalizers).To(ConsistOf("service.kubernetes.io/load-balancer-cleanup"))
	})

	It("is followed when it changes, and costs nothing when it does not", func(ctx SpecContext) {
		run()
		node := newMachine(ctx, "a", "10.200.0.1")
		s := newService("changes")
		create(ctx, s)
		Eventually(ctx, addresses(ctx, s)).Should(HaveLen(1))

		change(ctx, shootClient, s, func(s *corev1.Service) {
			s.Spec.Ports[0].Port, s.Spec.Ports[0].NodePort = 8080, 31000
			s.Spec.LoadBalancerSourceRanges = []string{"192.168.0.0/16", " 10.0.0.0/8"}
			s.Spec.LoadBalancerIP = "10.1.0.9"
		})
		Eventually(ctx, backends(ctx, s)).Should(Equal(map[string][]string{"http": {"10.200.0.1:31000/TCP"}}))
		Eventually(ctx, specInTheSeed(ctx, s)).Should(And(
			HaveField("LoadBalancerSourceRanges", []string{"10.0.0.0/8", "192.168.0.0/16"}),
			HaveField("Ports", ConsistOf(HaveField("Port", int32(8080)))),
		))
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"10.1.0.9 VIP"}), "the address that is asked for")

		change(ctx, shootClient, s, func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = nil
			s.Annotations = map[string]string{"service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8, 172.16.0.0/12"}
		})
		Eventually(ctx, specInTheSeed(ctx, s)).Should(HaveField("LoadBalancerSourceRanges", []string{"10.0.0.0/8", "172.16.0.0/12"}))

		requests.Reset()
		setReady(ctx, node, corev1.ConditionTrue)
		change(ctx, shootClient, node, func(node *corev1.Node) { node.Labels = map[string]string{"example.org/suite": "changed"} })
		Consistently(ctx, writes, 2*time.Second).Should(BeEmpty())
	})

	It("leads to the machines that are there and ready", func(ctx SpecContext) {
		run()
		a := newMachine(ctx, "a", "10.200.0.1")
		b := newMachine(ctx, "b", "10.200.0.2")
		s := newService("machines")
		create(ctx, s)
		behind := machinesBehind(ctx, s)
		Eventually(ctx, behind).Should(Equal([]string{"10.200.0.1", "10.200.0.2"}))

		By("a machine that is added")
		c := newMachine(ctx, "c", "10.200.0.3")
		Eventually(ctx, behind).Should(Equal([]string{"10.200.0.1", "10.200.0.2", "10.200.0.3"}))

		By("a machine that is not ready")
		setReady(ctx, a, corev1.ConditionUnknown)
		Eventually(ctx, behind).Should(Equal([]string{"10.200.0.2", "10.200.0.3"}))
		setReady(ctx, a, corev1.ConditionTrue)
		Eventually(ctx, behind).Should(Equal([]string{"10.200.0.1", "10.200.0.2", "10.200.0.3"}))

		By("a machine that its user has excluded")
		change(ctx, shootClient, b, func(node *corev1.Node) { node.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""} })
		Eventually(ctx, behind).Should(Equal([]string{"10.200.0.1", "10.200.0.3"}))

		By("a machine whose pod is gone while its Node is still there")
		deletePod(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: technicalID, Name: c.Name}})
		Eventually(ctx, behind).Should(Equal([]string{"10.200.0.1"}))

		By("a machine whose Node is gone")
		Expect(shootClient.Delete(ctx, a)).To(Succeed())
		Eventually(ctx, behind).Should(BeEmpty())
		Expect(addresses(ctx, s)()).To(HaveLen(1))
	})

	It("leads to no address but those of the machines' pods, whatever the Nodes say", func(ctx SpecContext) {
		run()
		node := newMachine(ctx, "a", "10.200.0.1")
		newMachine(ctx, "b", "10.200.0.2")
		s := newService("trust")
		create(ctx, s)
		Eventually(ctx, machinesBehind(ctx, s)).Should(Equal([]string{"10.200.0.1", "10.200.0.2"}))

		Expect(shootClient.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		node.Status.Addresses[0].Address = "10.96.0.1"
		Expect(shootClient.Status().Update(ctx, node)).To(Succeed())
		Eventually(ctx, machinesBehind(ctx, s)).Should(Equal([]string{"10.200.0.2"}))
	})

	DescribeTable("with externalTrafficPolicy Local leads only to machines that run it",
		func(ctx SpecContext, oneNode bool, expected corev1.ServiceExternalTrafficPolicy) {
			run(func(o *shoot.Options) { o.OneNode = oneNode })
			a, b := newMachine(ctx, "a", "10.200.0.1"), newMachine(ctx, "b", "10.200.0.2")
			s := newService("local", local)
			create(ctx, s)
			Eventually(ctx, addresses(ctx, s)).Should(HaveLen(1))
			Expect(machinesBehind(ctx, s)()).To(BeEmpty())
			Expect(inTheSeed(ctx, s).Spec.ExternalTrafficPolicy).To(Equal(expected))

			setEndpoints(ctx, s, a)
			Eventually(ctx, machinesBehind(ctx, s)).Should(Equal([]string{"10.200.0.1"}))
			setEndpoints(ctx, s, b, b)
			Eventually(ctx, machinesBehind(ctx, s)).Should(Equal([]string{"10.200.0.2"}))
			change(ctx, shootClient, s, func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster })
			Eventually(ctx, machinesBehind(ctx, s)).Should(Equal([]string{"10.200.0.1", "10.200.0.2"}))
			Eventually(ctx, specInTheSeed(ctx, s)).Should(HaveField("ExternalTrafficPolicy", corev1.ServiceExternalTrafficPolicyCluster))
		},
		Entry("and keeps the address of the client where the seed has one node", true, corev1.ServiceExternalTrafficPolicyLocal),
		Entry("and answers on every node where the seed has several", false, corev1.ServiceExternalTrafficPolicyCluster),
	)

	It("of both families has an address of each, in its own order, and becomes one of one family", func(ctx SpecContext) {
		run()
		newMachine(ctx, "a", "10.200.0.1", "fd00:200::1")
		s := newService("families", dualStack(corev1.IPFamilyPolicyRequireDualStack, v6, v4))
		create(ctx, s)
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"fd00:1:: VIP", "10.1.0.0 VIP"}))
		Eventually(ctx, machinesBehind(ctx, s)).Should(Equal([]string{"10.200.0.1", "fd00:200::1"}))

		change(ctx, shootClient, s, func(s *corev1.Service) {
			s.Spec.IPFamilyPolicy, s.Spec.IPFamilies, s.Spec.ClusterIPs = new(corev1.IPFamilyPolicySingleStack), s.Spec.IPFamilies[:1], s.Spec.ClusterIPs[:1]
		})
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"fd00:1:: VIP"}))
		Eventually(ctx, machinesBehind(ctx, s)).Should(Equal([]string{"fd00:200::1"}))
	})

	It("whose ports have no node ports is told so", func(ctx SpecContext) {
		run()
		newMachine(ctx, "a", "10.200.0.1")
		s := newService("no-node-ports", func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = new(false) })
		create(ctx, s)
		Eventually(ctx, events(ctx, s)).Should(ContainElement(And(
			HavePrefix("Warning SyncLoadBalancerFailed: "), ContainSubstring("port 80/TCP of Service default/no-node-ports has no node port"),
		)))
		Expect(left(ctx)()).To(BeEmpty())

		change(ctx, shootClient, s, func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = new(true) })
		Eventually(ctx, addresses(ctx, s)).Should(HaveLen(1))
	})

	It("of a load balancer class is left to others", func(ctx SpecContext) {
		run()
		foreign, ours := newService("a-foreign", func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("example.org/other") }), newService("ours")
		create(ctx, foreign, ours)
		Eventually(ctx, addresses(ctx, ours)).Should(HaveLen(1))
		Expect(left(ctx)()).To(ConsistOf("lb-"+string(ours.UID), "lb-"+string(ours.UID)+"-ipv4"))
	})

	It("frees its address when it is deleted or no load balancer any more", func(ctx SpecContext) {
		run()
		newMachine(ctx, "a", "10.200.0.1")
		first, second := newService("first"), newService("second")
		create(ctx, first)
		Eventually(ctx, addresses(ctx, first)).Should(Equal([]string{"10.1.0.0 VIP"}))

		Expect(shootClient.Delete(ctx, first)).To(Succeed())
		Eventually(ctx, func() error { return shootClient.Get(ctx, client.ObjectKeyFromObject(first), &corev1.Service{}) }).Should(Satisfy(apierrors.IsNotFound))
		Expect(left(ctx)()).To(BeEmpty(), "it is gone last")

		create(ctx, second)
		Eventually(ctx, addresses(ctx, second)).Should(Equal([]string{"10.1.0.0 VIP"}))
		change(ctx, shootClient, second, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
		Eventually(ctx, left(ctx)).Should(BeEmpty())
		Eventually(ctx, addresses(ctx, second)).Should(BeEmpty())
		Eventually(ctx, func(g Gomega) {
			g.Expect(shootClient.Get(ctx, client.ObjectKeyFromObject(second), second)).To(Succeed())
			g.Expect(second.Finalizers).To(BeEmpty())
		}).Should(Succeed())
	})

	It("is not gone before the seed's Service is", func(ctx SpecContext) {
		run()
		s := newService("lingers")
		create(ctx, s)
		Eventually(ctx, addresses(ctx, s)).Should(HaveLen(1))
		there := inTheSeed(ctx, s)
		change(ctx, seed, there, func(there *corev1.Service) { there.Finalizers = []string{"example.org/suite"} })

		Expect(shootClient.Delete(ctx, s)).To(Succeed())
		Eventually(ctx, events(ctx, s)).Should(ContainElement(ContainSubstring("is still being deleted")))
		Expect(shootClient.Get(ctx, client.ObjectKeyFromObject(s), s)).To(Succeed())
		change(ctx, seed, there, func(there *corev1.Service) { there.Finalizers = nil })
		Eventually(ctx, func() error { return shootClient.Get(ctx, client.ObjectKeyFromObject(s), &corev1.Service{}) }).
			WithTimeout(3*time.Second).Should(Satisfy(apierrors.IsNotFound), "at once, not when it is retried")
	})
})

var _ = Describe("many Services", func() {
	It("all get their addresses, and a new machine, within seconds", func(ctx SpecContext) {
		run()
		newMachine(ctx, "a", "10.200.0.1")
		services := make([]*corev1.Service, manyServices)
		for i := range services {
			services[i] = newService(fmt.Sprintf("many-%d", i))
		}
		requests.Reset()
		begin := time.Now()
		inParallel(ctx, func(i int) { Expect(shootClient.Create(ctx, services[i])).To(Succeed()) })
		for _, s := range services {
			DeferCleanup(func(ctx SpecContext) { purge(ctx, s) })
		}
		created := time.Since(begin)
		for _, s := range services {
			Eventually(ctx, addresses(ctx, s)).WithTimeout(time.Minute).Should(HaveLen(1))
		}
		all := time.Since(begin)
		Expect(kinds(writes())).To(Equal(map[string]int{
			"PATCH services 200":      2 * manyServices,
			"POST services 201":       manyServices,
			"POST endpointslices 201": manyServices,
		}), "for each: the finalizer, the seed's Service and EndpointSlice, and the status, and no conflict between workers")

		requests.Reset()
		begin = time.Now()
		newMachine(ctx, "b", "10.200.0.2")
		for _, s := range services {
			Eventually(ctx, machinesBehind(ctx, s)).Should(HaveLen(2))
		}
		spread := time.Since(begin)
		Expect(kinds(writes())).To(Equal(map[string]int{"PATCH endpointslices 200": manyServices}), "and no conflict with another worker")

		requests.Reset()
		begin = time.Now()
		inParallel(ctx, func(i int) { Expect(shootClient.Delete(ctx, services[i])).To(Succeed()) })
		Eventually(ctx, left(ctx)).WithTimeout(time.Minute).Should(BeEmpty())
		Eventually(ctx, func() map[string]int { return kinds(writes()) }).WithTimeout(time.Minute).Should(And(
			HaveKeyWithValue("DELETE services 200", manyServices),
			HaveKeyWithValue("DELETE endpointslices 200", manyServices),
			HaveKeyWithValue("PATCH services 200", manyServices),
			Not(HaveKey(HaveSuffix(" 409"))),
		), "for each: the seed's Service and EndpointSlice, and the finalizer")
		AddReportEntry("times", fmt.Sprintf("%d Services: created in %s, all have addresses after %s; a new machine is behind all after %s; all are gone after %s, by %d requests: %v",
			manyServices, created.Round(time.Millisecond), all.Round(time.Millisecond), spread.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond), len(requests.List()), kinds(writes())))
	})
})

var _ = Describe("a seed of one family", func() {
	It("gives addresses of that family to those that prefer both, and tells those that require both", func(ctx SpecContext) {
		env := start(false)
		inSeed, inShoot := install(ctx, env, shootEnv)
		serveSeed(env, "10.3.0.0/24")
		dual := seed
		seed = env.Client
		DeferCleanup(func() { seed = dual })
		runBetween(inSeed, inShoot)

		prefers := newService("prefers", dualStack(corev1.IPFamilyPolicyPreferDualStack, v6, v4))
		requires := newService("requires", dualStack(corev1.IPFamilyPolicyRequireDualStack, v6, v4))
		create(ctx, prefers, requires)
		Eventually(ctx, addresses(ctx, prefers)).Should(Equal([]string{"10.3.0.0 VIP"}))
		Eventually(ctx, events(ctx, requires)).Should(ContainElement(And(HavePrefix("Warning SyncLoadBalancerFailed: "), ContainSubstring("dual-stack"))))
	})
})

// kinds counts requests as "METHOD RESOURCE CODE".
func kinds(requests []string) map[string]int {
	out := map[string]int{}
	for _, request := range requests {
		fields := strings.Fields(request)
		resource := "services"
		if strings.Contains(fields[1], "/endpointslices") {
			resource = "endpointslices"
		}
		out[fields[0]+" "+resource+" "+fields[2]]++
	}
	return out
}

// inParallel calls a function for each of many Services.
func inParallel(ctx context.Context, call func(int)) {
	workqueue.ParallelizeUntil(ctx, 10, manyServices, func(i int) {
		defer GinkgoRecover()
		call(i)
	})
}
