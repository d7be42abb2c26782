// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const (
	typeA     = extensionsv1alpha1.DNSRecordTypeA
	typeAAAA  = extensionsv1alpha1.DNSRecordTypeAAAA
	typeCNAME = extensionsv1alpha1.DNSRecordTypeCNAME
	typeTXT   = extensionsv1alpha1.DNSRecordTypeTXT
)

var _ = Describe("DNSRecord", func() {
	DescribeTable("resolves as soon as it is Succeeded, and no more once it is gone",
		func(ctx SpecContext, name string, recordType extensionsv1alpha1.DNSRecordType, values []string, asked string, qtype uint16, answer []string) {
			record := create(ctx, newRecord("table", name, recordType, values...))
			Eventually(get(ctx, record)).Should(matchers.HaveSucceeded())
			for _, network := range []string{"udp", "tcp"} {
				Expect(resolve(ctx, network, asked, qtype)).To(Equal(answer), network)
			}

			remove(ctx, record)
			for _, network := range []string{"udp", "tcp"} {
				Eventually(resolve).WithContext(ctx).WithArguments(network, asked, qtype).Should(Equal([]string{"NXDOMAIN"}), network)
			}
		},
		Entry("A", "a.local.gardener.cloud", typeA, []string{"192.0.2.1", "192.0.2.2"}, "a.local.gardener.cloud", dns.TypeA, []string{"192.0.2.1", "192.0.2.2"}),
		Entry("AAAA", "aaaa.local.gardener.cloud", typeAAAA, []string{"2001:db8::1"}, "aaaa.local.gardener.cloud", dns.TypeAAAA, []string{"2001:db8::1"}),
		Entry("CNAME", "cname.local.gardener.cloud", typeCNAME, []string{"target.local.gardener.cloud"}, "cname.local.gardener.cloud", dns.TypeCNAME, []string{"target.local.gardener.cloud."}),
		Entry("TXT", "txt.local.gardener.cloud", typeTXT, []string{`say "hello"; {}`}, "txt.local.gardener.cloud", dns.TypeTXT, []string{`say \"hello\"; {}`}),
		Entry("a wildcard", "*.wild.local.gardener.cloud", typeA, []string{"192.0.2.3"}, "any.thing.wild.local.gardener.cloud", dns.TypeA, []string{"192.0.2.3"}),
		Entry("a deep name", "api.x.y.z.internal.local.gardener.cloud", typeA, []string{"192.0.2.4"}, "API.x.y.z.internal.local.gardener.cloud", dns.TypeA, []string{"192.0.2.4"}),
	)

	DescribeTable("says what is wrong with it",
		func(ctx SpecContext, name string, recordType extensionsv1alpha1.DNSRecordType, values []string, message string) {
			record := create(ctx, newRecord("bad", name, recordType, values...))
			Eventually(get(ctx, record)).Should(matchers.HaveConfigurationProblem(message))
			before := reconciled(ctx)
			Consistently(get(ctx, record)).WithTimeout(time.Second).Should(HaveField("ResourceVersion", record.ResourceVersion))
			Expect(reconciled(ctx)).To(BeNumerically("<=", before+1), "it is not retried hot")
		},
		Entry("an IPv4 address in an AAAA record", "x.local.gardener.cloud", typeAAAA, []string{"192.0.2.1"}, "192.0.2.1"),
		Entry("an IPv6 address in an A record", "x.local.gardener.cloud", typeA, []string{"2001:db8::1"}, "2001:db8::1"),
		Entry("a hostname in an A record", "x.local.gardener.cloud", typeA, []string{"example.com"}, "example.com"),
		Entry("two targets of a CNAME", "x.local.gardener.cloud", typeCNAME, []string{"a.example.com", "b.example.com"}, "CNAME"),
		Entry("a name outside of the zones", "x.example.com", typeA, []string{"192.0.2.1"}, "local.gardener.cloud"),
		Entry("a name that would be a directive", "x\nforward . 192.0.2.1", typeA, []string{"192.0.2.1"}, "forward"),
	)

	It("is taken once it has been mended", func(ctx SpecContext) {
		record := create(ctx, newRecord("mended", "mended.local.gardener.cloud", typeA, "not an address"))
		Eventually(get(ctx, record)).Should(matchers.HaveConfigurationProblem("not an address"))
		reconcile(ctx, record, func() { record.Spec.Values = []string{"192.0.2.5"} })
		Eventually(get(ctx, record)).Should(matchers.HaveSucceeded())
		Expect(resolve(ctx, "tcp", "mended.local.gardener.cloud", dns.TypeA)).To(Equal([]string{"192.0.2.5"}))
	})

	It("follows a change of its values", func(ctx SpecContext) {
		record := create(ctx, newRecord("changed", "changed.local.gardener.cloud", typeA, "192.0.2.6"))
		Eventually(get(ctx, record)).Should(matchers.HaveSucceeded())
		reconcile(ctx, record, func() { record.Spec.Values = []string{"192.0.2.7"} })
		Eventually(get(ctx, record)).Should(matchers.HaveSucceeded())
		Expect(resolve(ctx, "tcp", "changed.local.gardener.cloud", dns.TypeA)).To(Equal([]string{"192.0.2.7"}))
	})

	It("points pods at the gateway's Service and others at the gateway's address", func(ctx SpecContext) {
		Expect(env.CreateNamespaces(ctx, "virtual-garden-istio-ingress")).To(Succeed())
		gateway := create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "virtual-garden-istio-ingress", Name: "istio-ingressgateway"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443}}},
		})
		Eventually(get(ctx, gateway)).Should(And(
			HaveField("Status.LoadBalancer.Ingress", HaveExactElements(HaveField("IP", "172.18.255.3"))),
			HaveField("Spec.Ports", HaveExactElements(HaveField("NodePort", int32(31433)))),
		), "the garden instance serves it, as there is no seed")
		record := create(ctx, newRecord("gateway", "api.virtual-garden.local.gardener.cloud", typeA, "172.18.255.3"))

		// There is no cluster DNS behind this CoreDNS that knew the Service: what counts here is the configuration.
		Eventually(func(g Gomega) {
			g.Expect(overrides(ctx, g)).To(HaveKeyWithValue("api.virtual-garden.local.gardener.cloud.override", And(
				HavePrefix("rewrite stop name regex "), HaveSuffix(" istio-ingressgateway.virtual-garden-istio-ingress.svc.cluster.local answer auto\n"),
			)))
			g.Expect(resolve(ctx, "tcp", record.Spec.Name, dns.TypeA)).To(Equal([]string{"172.18.255.3"}))
		}).Should(Succeed(), "the gateway is found by the record's value")

		remove(ctx, gateway)
		Eventually(func(g Gomega) {
			g.Expect(overrides(ctx, g)).NotTo(HaveKey("api.virtual-garden.local.gardener.cloud.override"))
			g.Expect(resolve(ctx, "udp", record.Spec.Name, dns.TypeA)).To(Equal([]string{"172.18.255.3"}))
		}).Should(Succeed(), "without the gateway the values are served as they are")
		Eventually(get(ctx, record)).Should(matchers.HaveSucceeded())
	})

	It("is healed when its configuration is lost or changed by hand", func(ctx SpecContext) {
		record := create(ctx, newRecord("healed", "healed.local.gardener.cloud", typeA, "192.0.2.8"))
		Eventually(get(ctx, record)).Should(matchers.HaveSucceeded())

		Expect(c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(coreDNSNamespace), client.MatchingLabels{"local.provider.extensions.gardener.cloud/dns-config": "true"})).To(Succeed())
		var configMaps []corev1.ConfigMap
		Eventually(func(g Gomega) {
			configMaps = configOf(ctx, g)
			g.Expect(configMaps).NotTo(BeEmpty())
			g.Expect(resolve(ctx, "tcp", record.Spec.Name, dns.TypeA)).To(Equal([]string{"192.0.2.8"}))
		}).Should(Succeed(), "a watch sees that they are gone")

		for _, configMap := range configMaps {
			configMap.Data = map[string]string{"evil.override": "forward . 192.0.2.66"}
			Expect(c.Update(ctx, &configMap)).To(Succeed())
		}
		Eventually(func(g Gomega) {
			g.Expect(overrides(ctx, g)).NotTo(HaveKey("evil.override"))
			g.Expect(resolve(ctx, "tcp", record.Spec.Name, dns.TypeA)).To(Equal([]string{"192.0.2.8"}))
		}).Should(Succeed())
	})

	It("resolves again after CoreDNS was killed", func(ctx SpecContext) {
		record := create(ctx, newRecord("killed", "killed.local.gardener.cloud", typeA, "192.0.2.9"))
		Eventually(get(ctx, record)).Should(matchers.HaveSucceeded())

		Expect(coreDNS.Kill(ctx)).To(Succeed())
		late := create(ctx, newRecord("late", "late.local.gardener.cloud", typeA, "192.0.2.10"))
		Consistently(get(ctx, late)).WithTimeout(time.Second).ShouldNot(matchers.HaveSucceeded(), "nobody can resolve it")

		coreDNS = startCoreDNS(ctx)
		Eventually(resolve).WithContext(ctx).WithArguments("tcp", record.Spec.Name, dns.TypeA).Should(Equal([]string{"192.0.2.9"}))
		Eventually(get(ctx, late)).Should(matchers.HaveSucceeded(), "it is tried again")
	})

	It("survives a restart; what went meanwhile is gone", func(ctx SpecContext) {
		stays := create(ctx, newRecord("stays", "stays.local.gardener.cloud", typeA, "192.0.2.11"))
		goes := create(ctx, newRecord("goes", "goes.local.gardener.cloud", typeA, "192.0.2.12"))
		Eventually(get(ctx, stays)).Should(matchers.HaveSucceeded())
		Eventually(get(ctx, goes)).Should(matchers.HaveSucceeded())

		restart(func() {
			patch := client.MergeFrom(goes.DeepCopy())
			goes.Finalizers = nil
			Expect(c.Patch(ctx, goes, patch)).To(Succeed())
			Expect(c.Delete(ctx, goes)).To(Succeed())
			Expect(resolve(ctx, "tcp", stays.Spec.Name, dns.TypeA)).To(Equal([]string{"192.0.2.11"}), "names resolve while no instance runs")
		})
		Eventually(resolve).WithContext(ctx).WithArguments("tcp", goes.Spec.Name, dns.TypeA).Should(Equal([]string{"NXDOMAIN"}), "nobody else would remove it")
		Expect(resolve(ctx, "tcp", stays.Spec.Name, dns.TypeA)).To(Equal([]string{"192.0.2.11"}))
	})

	It("of one owner goes without that of another who has the same name", func(ctx SpecContext) {
		first := create(ctx, newRecord("first", "same.local.gardener.cloud", typeA, "192.0.2.14"))
		Eventually(get(ctx, first)).Should(matchers.HaveSucceeded())
		second := create(ctx, newRecord("second", "same.local.gardener.cloud", typeA, "192.0.2.14"))
		Eventually(get(ctx, second)).Should(matchers.HaveSucceeded())

		remove(ctx, first)
		Consistently(resolve).WithContext(ctx).WithArguments("tcp", "same.local.gardener.cloud", dns.TypeA).WithTimeout(500 * time.Millisecond).Should(Equal([]string{"192.0.2.14"}))
	})

	It("is one of many", func(ctx SpecContext) {
		const many = 300
		records := make([]*extensionsv1alpha1.DNSRecord, many)
		for i := range records {
			records[i] = create(ctx, newRecord(fmt.Sprintf("many-%d", i), fmt.Sprintf("many-%d.local.gardener.cloud", i), typeA, fmt.Sprintf("192.0.2.%d", i%256)))
		}
		for i, record := range records {
			Eventually(get(ctx, record)).Should(matchers.HaveSucceeded())
			Expect(resolve(ctx, "udp", record.Spec.Name, dns.TypeA)).To(Equal([]string{fmt.Sprintf("192.0.2.%d", i%256)}))
		}
		Expect(len(configOf(ctx, Default))).To(BeNumerically("<", 10), "many records share a ConfigMap")
	})
})

func configOf(ctx context.Context, g Gomega) []corev1.ConfigMap {
	configMaps := &corev1.ConfigMapList{}
	g.Expect(c.List(ctx, configMaps, client.InNamespace(coreDNSNamespace), client.MatchingLabels{"local.provider.extensions.gardener.cloud/dns-config": "true"})).To(Succeed())
	return configMaps.Items
}

func overrides(ctx context.Context, g Gomega) map[string]string {
	all := map[string]string{}
	for _, configMap := range configOf(ctx, g) {
		for key, value := range configMap.Data {
			all[key] = value
		}
	}
	return all
}
