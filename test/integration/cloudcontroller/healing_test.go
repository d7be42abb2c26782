// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cloudcontroller_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer/shoot"
)

var _ = Describe("cloud-controller", func() {
	It("ends if its token has expired, as it gets another one when it starts again", func(ctx SpecContext) {
		refused := rest.AnonymousClientConfig(inShoot)
		refused.BearerToken = "expired"
		mgr, err := shoot.New(shoot.Options{
			Log: logf.Log.WithName("cloud-controller"), Namespace: technicalID, Seed: inSeed, Shoot: refused,
			Server: metricsserver.Options{BindAddress: "0"},
		})
		Expect(err).NotTo(HaveOccurred())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		Eventually(ctx, ended).WithTimeout(time.Minute).Should(Receive(MatchError(ContainSubstring("caches to sync"))))
	})
})

var _ = Describe("what is in the seed", func() {
	It("heals when somebody deletes or changes it", func(ctx SpecContext) {
		run()
		newMachine(ctx, "a", "10.200.0.1")
		s := newService("heals")
		create(ctx, s)
		Eventually(ctx, addresses(ctx, s)).Should(HaveLen(1))
		before := inTheSeed(ctx, s)
		expected := before.Spec.DeepCopy()

		By("a changed Service")
		change(ctx, seed, before.DeepCopy(), func(there *corev1.Service) {
			there.Labels = nil
			there.Spec.Selector = map[string]string{"app": "etcd"}
			there.Spec.Ports[0].Port, there.Spec.ExternalIPs = 22, []string{"192.0.2.1"}
		})
		Eventually(ctx, func(g Gomega) {
			there := inTheSeed(ctx, s)
			g.Expect(there.Labels).To(Equal(before.Labels))
			g.Expect(there.Spec).To(Equal(*expected))
		}).Should(Succeed())

		By("a changed EndpointSlice, and one that is gone")
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: technicalID, Name: before.Name + "-ipv4"}}
		change(ctx, seed, slice, func(slice *discoveryv1.EndpointSlice) { slice.Endpoints[0].Addresses = []string{"192.0.2.1"} })
		Eventually(ctx, machinesBehind(ctx, s)).Should(Equal([]string{"10.200.0.1"}))
		Expect(seed.Delete(ctx, slice)).To(Succeed())
		Eventually(ctx, machinesBehind(ctx, s)).Should(Equal([]string{"10.200.0.1"}))

		By("a Service that is gone")
		Expect(seed.Delete(ctx, before)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			there := &corev1.Service{}
			g.Expect(seed.Get(ctx, client.ObjectKeyFromObject(before), there)).To(Succeed())
			g.Expect(there.UID).NotTo(Equal(before.UID))
			g.Expect(there.Status.LoadBalancer.Ingress).To(HaveLen(1))
			g.Expect(addresses(ctx, s)()).To(Equal([]string{there.Status.LoadBalancer.Ingress[0].IP + " VIP"}))
		}).Should(Succeed())
	})

	It("has its address in the shoot's status as soon as it changes or is gone", func(ctx SpecContext) {
		run()
		s := newService("moves")
		create(ctx, s)
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"10.1.0.0 VIP"}))

		change(ctx, shootClient, s, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.2.0.0" })
		Eventually(ctx, addresses(ctx, s)).Should(BeEmpty(), "an address that is another's by now is no address")
		Eventually(ctx, events(ctx, s)).Should(ContainElement(ContainSubstring("AddressNotInPool: spec.loadBalancerIP 10.2.0.0 is in none of the pools")))

		change(ctx, shootClient, s, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.1.0.7" })
		Eventually(ctx, addresses(ctx, s)).Should(Equal([]string{"10.1.0.7 VIP"}))
	})

	It("stays as it is over a restart, and catches up with what was missed", func(ctx SpecContext) {
		stop := run()
		newMachine(ctx, "a", "10.200.0.1")
		same, deleted, orphan := newService("same"), newService("deleted"), newService("orphan")
		create(ctx, same, deleted, orphan)
		for _, s := range []*corev1.Service{same, deleted, orphan} {
			Eventually(ctx, addresses(ctx, s)).Should(HaveLen(1))
		}
		stop()

		Expect(shootClient.Delete(ctx, deleted)).To(Succeed())
		change(ctx, shootClient, orphan, func(s *corev1.Service) { s.Finalizers = nil })
		Expect(shootClient.Delete(ctx, orphan)).To(Succeed())
		newMachine(ctx, "b", "10.200.0.2")
		requests.Reset()
		run()
		Eventually(ctx, machinesBehind(ctx, same)).Should(Equal([]string{"10.200.0.1", "10.200.0.2"}))
		Eventually(ctx, left(ctx)).Should(ConsistOf("lb-"+string(same.UID), "lb-"+string(same.UID)+"-ipv4"))
		Eventually(ctx, func() error { return shootClient.Get(ctx, client.ObjectKeyFromObject(deleted), &corev1.Service{}) }).Should(Satisfy(apierrors.IsNotFound))
		Expect(writes()).NotTo(ContainElement(ContainSubstring("/services/lb-"+string(same.UID)+" ")), "its Service is as it was")
	})

	It("is only deleted if it is nobody else's", func(ctx SpecContext) {
		foreign := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: technicalID, Name: "foreign", Labels: map[string]string{shoot.LabelUID: "0000"}, Annotations: map[string]string{shoot.AnnotationService: "default/foreign"}},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		Expect(seed.Create(ctx, foreign)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(seed.Delete(ctx, foreign)).To(Succeed()) })
		requests.Reset()
		run()
		s := newService("ours")
		create(ctx, s)
		Eventually(ctx, addresses(ctx, s)).Should(HaveLen(1))
		Expect(writes()).NotTo(ContainElement(HavePrefix("DELETE ")))
	})
})
