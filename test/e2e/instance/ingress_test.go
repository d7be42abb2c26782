// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

var _ = Describe("An Ingress of a shoot", Ordered, Serial, func() {
	const (
		first    = "one.ingress-e2e.local.gardener.cloud"
		second   = "two.ingress-e2e.local.gardener.cloud"
		wildcard = "*.many.ingress-e2e.local.gardener.cloud"
	)
	var (
		controller *corev1.Service
		ingress    *networkingv1.Ingress
	)

	BeforeAll(func(ctx SpecContext) {
		controller = gateway(ctx, gardenNamespace, "nginx-ingress-controller", current.Translate("172.18.255.4"))
		ingress = create(ctx, newIngress(first, wildcard))
	})

	It("is found by its hosts, from pods and from the host", func(ctx SpecContext) {
		for _, host := range []string{first, "any.many.ingress-e2e.local.gardener.cloud"} {
			eventuallyResolves(ctx, host, addressOf(controller))
			expectServed(ctx, host, controller)
		}
		expectGateway(ctx, controller, 30448)
		Expect(recordsOf(ctx, ingress)).To(ConsistOf(HaveField("Spec.Name", first), HaveField("Spec.Name", wildcard)))
		for _, record := range recordsOf(ctx, ingress) {
			Expect(&record).To(matchers.HaveSucceeded(), record.Spec.Name)
		}
	})

	It("is followed when its hosts change", func(ctx SpecContext) {
		patch := client.MergeFrom(ingress.DeepCopy())
		ingress.Spec.Rules = newIngress(second).Spec.Rules
		Expect(c.Patch(ctx, ingress, patch)).To(Succeed())
		eventuallyResolves(ctx, second, addressOf(controller))
		expectServed(ctx, second, controller)
		eventuallyResolves(ctx, first, "NXDOMAIN")
		Expect(recordsOf(ctx, ingress)).To(ConsistOf(HaveField("Spec.Name", second)))
	})

	It("takes its names along when it goes", func(ctx SpecContext) {
		Expect(recordsOf(ctx, ingress)).NotTo(BeEmpty())
		Expect(c.Delete(ctx, ingress)).To(Succeed())
		Eventually(func() []extensionsv1alpha1.DNSRecord { return recordsOf(ctx, ingress) }).Should(BeEmpty(), "nobody else takes them away")
		eventuallyResolves(ctx, second, "NXDOMAIN")
		eventuallyGone(ctx, ingress)
	})
})

func newIngress(hosts ...string) *networkingv1.Ingress {
	ingress := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: shootNamespace, Name: "e2e"},
		Spec:       networkingv1.IngressSpec{IngressClassName: new("nginx-ingress-gardener")},
	}
	for _, host := range hosts {
		ingress.Spec.Rules = append(ingress.Spec.Rules, networkingv1.IngressRule{
			Host: host,
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: new(networkingv1.PathTypePrefix),
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "any", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}}},
		})
	}
	return ingress
}

// recordsOf are the DNSRecords that an Ingress owns.
func recordsOf(ctx context.Context, ingress *networkingv1.Ingress) []extensionsv1alpha1.DNSRecord {
	GinkgoHelper()
	list := &extensionsv1alpha1.DNSRecordList{}
	Expect(c.List(ctx, list, client.InNamespace(ingress.Namespace))).To(Succeed())
	var owned []extensionsv1alpha1.DNSRecord
	for _, record := range list.Items {
		for _, owner := range record.OwnerReferences {
			if owner.UID == ingress.UID {
				owned = append(owned, record)
			}
		}
	}
	return owned
}

// eventuallyResolves waits until the host is told this address of a name, or this rcode.
func eventuallyResolves(ctx context.Context, name, expected string) {
	GinkgoHelper()
	server := hostDNSAddress(ctx)
	Eventually(func() ([]string, error) { return matchers.Resolve(ctx, "udp", server, name, dns.TypeA) }).Should(ConsistOf(expected), name)
}
