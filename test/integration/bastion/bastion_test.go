// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

var _ = Describe("a Bastion in the seed", func() {
	It("has an address once its pod is ready, and costs nothing afterwards", func(ctx SpecContext) {
		s := newShoot(ctx, nil)
		idle.Store(true)
		b := s.newBastion(ctx, "ready", "192.0.2.0/24", "2001:db8::/64")
		Eventually(ctx, status(ctx, b)).Should(Equal("Processing: waiting for Pod " + s.namespace + "/bastion-ready: it does not run yet"))
		Expect(b.Status.Ingress).To(BeNil())
		Expect(b.Status.LastError).To(BeNil())

		idle.Store(false)
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded 172.18.255."))
		service := get(ctx, s, "ready", &corev1.Service{})
		Expect(service.Status.LoadBalancer.Ingress).To(HaveLen(2), "one of each family")
		Expect(service.Spec.Ports[0].NodePort).To(BeZero())
		Expect(get(ctx, s, "ready", &networkingv1.NetworkPolicy{}).Spec.Ingress[0].From).To(HaveLen(2))

		requests.Reset()
		Consistently(ctx, requestsIn(s), time.Second).Should(BeEmpty())

		By("reconciling again")
		change(ctx, b, func(*extensionsv1alpha1.Bastion) {})
		Eventually(ctx, requests.Writes).Should(HaveLen(5), "the annotation, three objects, and the end of the operation")
		Expect(status(ctx, b)()).To(HavePrefix("Succeeded "))
		Expect(get(ctx, s, "ready", &corev1.Service{}).ResourceVersion).To(Equal(service.ResourceVersion), "nothing has changed")

		By("restarting the instance")
		instance.Stop()
		requests.Reset()
		instance = run()
		other := newShoot(ctx, nil)
		Eventually(ctx, status(ctx, other.newBastion(ctx, "started"))).Should(HavePrefix("Succeeded "), "it has started")
		Expect(requestsIn(s)()).To(BeEmpty())
	})

	It("is open to nobody without ranges", func(ctx SpecContext) {
		s := newShoot(ctx, nil)
		b := s.newBastion(ctx, "nobody")
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded "))
		Expect(get(ctx, s, "nobody", &networkingv1.NetworkPolicy{}).Spec.Ingress).To(BeEmpty())
		Expect(get(ctx, s, "nobody", &corev1.Service{}).Spec.LoadBalancerSourceRanges).To(ConsistOf("255.255.255.255/32", "::/128"))
	})

	It("follows its ranges", func(ctx SpecContext) {
		s := newShoot(ctx, nil)
		b := s.newBastion(ctx, "ranges", "192.0.2.0/24")
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded "))
		pod := get(ctx, s, "ranges", &corev1.Pod{})

		change(ctx, b, func(b *extensionsv1alpha1.Bastion) {
			b.Spec.Ingress = ingress("198.51.100.7/32")
			b.Spec.Ingress = append(b.Spec.Ingress, extensionsv1alpha1.BastionIngressPolicy{
				IPBlock: networkingv1.IPBlock{CIDR: "2001:db8::/32", Except: []string{"2001:db8:1::/48"}},
			})
		})
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded "))
		Expect(get(ctx, s, "ranges", &corev1.Service{}).Spec.LoadBalancerSourceRanges).To(Equal([]string{"198.51.100.7/32", "2001:db8::/32"}))
		Expect(get(ctx, s, "ranges", &networkingv1.NetworkPolicy{}).Spec.Ingress[0].From).To(Equal([]networkingv1.NetworkPolicyPeer{
			{IPBlock: &networkingv1.IPBlock{CIDR: "198.51.100.7/32"}},
			{IPBlock: &networkingv1.IPBlock{CIDR: "2001:db8::/32", Except: []string{"2001:db8:1::/48"}}},
		}))
		Expect(get(ctx, s, "ranges", &corev1.Pod{}).UID).To(Equal(pod.UID), "people stay connected")
	})

	It("removes its own fields, and keeps what others have added", func(ctx SpecContext) {
		s := newShoot(ctx, nil)
		b := s.newBastion(ctx, "fields", "192.0.2.0/24")
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded "))
		policy := get(ctx, s, "fields", &networkingv1.NetworkPolicy{})
		Expect(policy.Spec.Ingress).To(HaveLen(1))
		before := policy.DeepCopy()
		metav1.SetMetaDataLabel(&policy.ObjectMeta, "somebody", "else")
		Expect(seed.Patch(ctx, policy, client.MergeFrom(before), client.FieldOwner("kubectl-label"))).To(Succeed())

		change(ctx, b, func(b *extensionsv1alpha1.Bastion) { b.Spec.Ingress = ingress() })
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded "))
		policy = get(ctx, s, "fields", policy)
		Expect(policy.Spec.Ingress).To(BeEmpty(), "nobody gets in any more")
		Expect(policy.Labels).To(Equal(map[string]string{"app": "bastion", "bastion": "fields", "somebody": "else"}))
	})

	It("gets another pod for other user data, and for one that was drained, without a poll", func(ctx SpecContext) {
		s := newShoot(ctx, nil)
		b := s.newBastion(ctx, "pod", "192.0.2.0/24")
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded "))
		first := get(ctx, s, "pod", &corev1.Pod{})

		change(ctx, b, func(b *extensionsv1alpha1.Bastion) { b.Spec.UserData = []byte("#!/bin/sh\n") })
		second := replaced(ctx, first)
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded "))
		Expect(get(ctx, s, "pod", &corev1.Secret{}).Data).To(HaveKeyWithValue("userdata", []byte("#!/bin/sh\n")))

		Expect(seed.Delete(ctx, second)).To(Succeed())
		replaced(ctx, second)
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded "))
	})

	It("follows its Service to another address", func(ctx SpecContext) {
		s := newShoot(ctx, nil)
		b := s.newBastion(ctx, "address", "192.0.2.0/24")
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded "))
		service := get(ctx, s, "address", &corev1.Service{})
		before := service.DeepCopy()
		service.Spec.LoadBalancerIP = "172.18.255.200"
		Expect(seed.Patch(ctx, service, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, status(ctx, b)).WithTimeout(10 * time.Second).Should(Equal("Succeeded 172.18.255.200"))
	})

	It("is gone when its pod has ended, and not before", func(ctx SpecContext) {
		s := newShoot(ctx, nil)
		b := s.newBastion(ctx, "gone", "192.0.2.0/24")
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded "))

		idle.Store(true)
		Expect(seed.Delete(ctx, b)).To(Succeed())
		Eventually(ctx, left(ctx, s, "gone")).Should(ConsistOf("Pod", "NetworkPolicy", "Secret"))
		Consistently(ctx, left(ctx, s, "gone"), 500*time.Millisecond).Should(ConsistOf("Pod", "NetworkPolicy", "Secret"))
		idle.Store(false)
		Eventually(ctx, isGone(ctx, b)).WithTimeout(10 * time.Second).Should(BeTrue())
		Expect(left(ctx, s, "gone")()).To(BeEmpty())
	})

	It("is gone at once if it is deleted before it was ready", func(ctx SpecContext) {
		s := newShoot(ctx, nil)
		all := func() (found []string, err error) {
			for i := range 10 {
				kinds, err := left(ctx, s, fmt.Sprintf("early-%d", i))()
				if err != nil {
					return nil, err
				}
				found = append(found, kinds...)
			}
			return found, nil
		}
		for i := range 10 {
			b := s.newBastion(ctx, fmt.Sprintf("early-%d", i), "192.0.2.0/24")
			Expect(seed.Delete(ctx, b)).To(Succeed())
			Eventually(ctx, isGone(ctx, b)).WithTimeout(10 * time.Second).Should(BeTrue())
		}
		Eventually(ctx, all).Should(BeEmpty())
		Consistently(ctx, all, time.Second).Should(BeEmpty())
	})

	It("is deleted by force although its pod does not end, and although its shoot is gone", func(ctx SpecContext) {
		s := newShoot(ctx, nil)
		b := s.newBastion(ctx, "force", "192.0.2.0/24")
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded "))
		idle.Store(true)
		Expect(seed.Delete(ctx, &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).To(Succeed())
		change(ctx, b, func(b *extensionsv1alpha1.Bastion) {
			metav1.SetMetaDataAnnotation(&b.ObjectMeta, "confirmation.gardener.cloud/force-deletion", "true")
		})
		Expect(seed.Delete(ctx, b)).To(Succeed())
		Eventually(ctx, isGone(ctx, b)).Should(BeTrue())
		Expect(left(ctx, s, "force")()).To(BeEmpty())
	})

	It("says what a user has to put right", func(ctx SpecContext) {
		s := newShoot(ctx, nil)
		b := s.newBastion(ctx, "mistake", "everybody")
		Eventually(ctx, status(ctx, b)).Should(ContainSubstring(`spec.ingress[0].ipBlock.cidr: Invalid value: "everybody"`))
		Expect(b.Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
		requests.Reset()
		Consistently(ctx, requestsIn(s), time.Second).Should(BeEmpty(), "it is left alone")

		change(ctx, b, func(b *extensionsv1alpha1.Bastion) { b.Spec.Ingress = ingress("192.0.2.0/24") })
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded "))
		Expect(b.Status.LastError).To(BeNil())
	})

	It("is none of ours if it is of another type", func(ctx SpecContext) {
		s := newShoot(ctx, nil)
		other := &extensionsv1alpha1.Bastion{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "other"},
			Spec: extensionsv1alpha1.BastionSpec{
				DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "stackit"}, UserData: []byte("x"), Ingress: ingress("192.0.2.0/24"),
			},
		}
		Expect(seed.Create(ctx, other)).To(Succeed())
		Consistently(ctx, left(ctx, s, "other"), 500*time.Millisecond).Should(BeEmpty())
		Expect(seed.Delete(ctx, other)).To(Succeed())
	})
})

var _ = Describe("a Bastion in another cluster", func() {
	It("waits for the namespace of the machines, is looked at every few seconds, and leaves nothing", func(ctx SpecContext) {
		s := newRemoteShoot(ctx)
		b := s.newBastion(ctx, "remote", "192.0.2.0/24")
		Eventually(ctx, status(ctx, b)).Should(ContainSubstring("the shoot's Infrastructure has to be reconciled first"))
		Expect(left(ctx, shoot{machines: s.namespace}, "remote")()).To(BeEmpty(), "it is not made in the seed instead")

		Expect(env.CreateNamespaces(ctx, s.machines)).To(Succeed())
		Eventually(ctx, status(ctx, b)).Should(HavePrefix("Succeeded 172.18.255."))
		Expect(get(ctx, s, "remote", &corev1.Service{}).Spec.Ports[0].NodePort).NotTo(BeZero())

		Expect(seed.Delete(ctx, b)).To(Succeed())
		Eventually(ctx, isGone(ctx, b)).Should(BeTrue())
		Expect(left(ctx, s, "remote")()).To(BeEmpty())
	})
})

// replaced waits until there is another pod in the place of the given one, and returns it.
func replaced(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	another := &corev1.Pod{}
	Eventually(ctx, func(g Gomega) {
		g.Expect(seed.Get(ctx, client.ObjectKeyFromObject(pod), another)).To(Succeed())
		g.Expect(another.UID).NotTo(Equal(pod.UID))
	}).Should(Succeed())
	return another
}
