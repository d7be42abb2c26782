// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package seed_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// These show that the permissions of the chart suffice; test/integration/{service,ingress} have the rest.
var _ = Describe("The network of the seed", Ordered, func() {
	const gateways = "istio-ingress"
	BeforeAll(func(ctx SpecContext) {
		Expect(seedEnv.CreateNamespaces(ctx, gateways)).To(Succeed())
	})

	loadBalancer := func(namespace, name string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "tls", Port: 443}}},
		}
	}
	address := func(address string) OmegaMatcher {
		return HaveField("Status.LoadBalancer.Ingress", HaveExactElements(HaveField("IP", MatchRegexp(address))))
	}

	It("a gateway gets its address, and its node port even if another Service has that", func(ctx SpecContext) {
		other := loadBalancer(gardenNamespace, "other")
		other.Spec.Type = corev1.ServiceTypeNodePort
		other.Spec.Ports[0].NodePort = 30433
		create(ctx, other)

		gateway := create(ctx, loadBalancer(gateways, "istio-ingressgateway"))
		Eventually(get(ctx, seed, gateway)).Should(And(address(`^172\.18\.255\.1$`), HaveField("Spec.Ports", HaveExactElements(HaveField("NodePort", BeEquivalentTo(30433))))))
		Expect(seed.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
		Expect(other.Spec.Ports[0].NodePort).NotTo(BeElementOf(int32(0), int32(30433)), "it has another one")
		Eventually(func(g Gomega) {
			events := &eventsv1.EventList{}
			g.Expect(seed.List(ctx, events, client.InNamespace(gardenNamespace))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(HaveField("Regarding.Name", other.Name)))
		}).Should(Succeed(), "it is told")
	})

	It("another load balancer gets an address of the pool", func(ctx SpecContext) {
		service := create(ctx, loadBalancer(shootNamespace, "load-balancer"))
		Eventually(get(ctx, seed, service)).Should(address(`^172\.18\.255\.(12[89]|1[3-9][0-9]|2[0-9]{2})$`))
	})

	It("the hosts of a shoot's Ingress get DNSRecords, and only as long as they are hosts", func(ctx SpecContext) {
		create(ctx, loadBalancer(gateways, "istio-ingressgateway"))
		ingress := create(ctx, &networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Namespace: shootNamespace, Name: "plutono"},
			Spec: networkingv1.IngressSpec{
				DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "plutono", Port: networkingv1.ServiceBackendPort{Number: 3000}}},
				Rules:          []networkingv1.IngressRule{{Host: "gu.ingress.local.seed.local.gardener.cloud"}, {Host: "*.other.local.gardener.cloud"}},
			},
		})
		hosts := func() ([]string, error) {
			records := &extensionsv1alpha1.DNSRecordList{}
			err := seed.List(ctx, records, client.InNamespace(shootNamespace))
			var out []string
			for _, record := range records.Items {
				if metav1.IsControlledBy(&record, ingress) && record.DeletionTimestamp == nil {
					out = append(out, record.Spec.Name+" "+record.Spec.Values[0])
				}
			}
			return out, err
		}
		Eventually(hosts).Should(ConsistOf("gu.ingress.local.seed.local.gardener.cloud 172.18.255.1", "*.other.local.gardener.cloud 172.18.255.1"))

		patch := client.MergeFrom(ingress.DeepCopy())
		ingress.Spec.Rules = ingress.Spec.Rules[1:]
		Expect(seed.Patch(ctx, ingress, patch)).To(Succeed())
		Eventually(hosts).Should(ConsistOf("*.other.local.gardener.cloud 172.18.255.1"))

		// There is no garbage collector here.
		Expect(seed.DeleteAllOf(ctx, &extensionsv1alpha1.DNSRecord{}, client.InNamespace(shootNamespace))).To(Succeed())
		Eventually(hosts).Should(ConsistOf("*.other.local.gardener.cloud 172.18.255.1"), "one that somebody deletes comes back")
		Expect(seed.Delete(ctx, ingress)).To(Succeed())
		Expect(seed.DeleteAllOf(ctx, &extensionsv1alpha1.DNSRecord{}, client.InNamespace(shootNamespace))).To(Succeed())
		Consistently(hosts, 2*time.Second, 100*time.Millisecond).Should(BeEmpty())
	})
})
