// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

func TestTheRankOfADNSRecordIsThatOfItsClass(t *testing.T) {
	for _, test := range []struct {
		name      string
		class     *extensionsv1alpha1.ExtensionClass
		namespace string
		rank      int
	}{
		{"the garden", new(extensionsv1alpha1.ExtensionClassGarden), "garden", 2},
		{"a seed", new(extensionsv1alpha1.ExtensionClassSeed), "garden", 1},
		{"a seed's Ingress domain, as gardenlet makes it", nil, "garden", 1},
		{"a shoot", new(extensionsv1alpha1.ExtensionClassShoot), "shoot--p--s", 0},
		{"a shoot without a class", nil, "shoot--p--s", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			record, err := dns.Parse(&extensionsv1alpha1.DNSRecord{
				ObjectMeta: metav1.ObjectMeta{Namespace: test.namespace, Name: "it"},
				Spec: extensionsv1alpha1.DNSRecordSpec{
					DefaultSpec: extensionsv1alpha1.DefaultSpec{Class: test.class}, Name: "a.local.gardener.cloud", RecordType: "A", Values: []string{"192.0.2.1"},
				},
			}, 60)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(record.Holder().Rank()).To(Equal(test.rank))
		})
	}
	NewWithT(t).Expect(dns.Record{}.Holder().Rank()).To(BeZero(), "whoever is not known has the lowest")
}

func TestWildcardsAbove(t *testing.T) {
	g := NewWithT(t)
	g.Expect(dns.WildcardsAbove("a.b.c")).To(HaveExactElements("*.c", "*.b.c"))
	g.Expect(dns.WildcardsAbove("*.b.c")).To(HaveExactElements("*.c"))
	g.Expect(dns.WildcardsAbove("c")).To(BeEmpty())
}

func TestReservedDomainsAreNotForShootsToChoose(t *testing.T) {
	domains := []string{"internal.local.gardener.cloud", "ingress.local.seed.local.gardener.cloud", "Virtual-Garden.local.gardener.cloud."}
	for _, test := range []struct {
		name    string
		record  dns.Record
		refused bool
	}{
		{"the API server of the garden", dns.Record{Name: "api.virtual-garden.local.gardener.cloud"}, true},
		{"the reserved domain itself", dns.Record{Name: "virtual-garden.local.gardener.cloud"}, true},
		{"a wildcard of a reserved domain", dns.Record{Name: "*.ingress.local.seed.local.gardener.cloud"}, true},
		{"a wildcard above a reserved domain", dns.Record{Name: "*.local.gardener.cloud"}, true},
		{"a name above a reserved domain", dns.Record{Name: "local.gardener.cloud"}, false},
		{"the internal domain of another shoot", dns.Record{Name: "api.victim.p.internal.local.gardener.cloud"}, true},
		{"a name that only begins as the shoot's own", dns.Record{Name: "api.s.px.internal.local.gardener.cloud"}, true},
		{"below the shoot's own name", dns.Record{Name: "api.x.s.p.internal.local.gardener.cloud"}, true},
		{"the shoot's own part", dns.Record{Name: "api.s.p.internal.local.gardener.cloud"}, false},
		{"the shoot's own part with its Ingresses", dns.Record{Name: "*.ingress.s.p.internal.local.gardener.cloud"}, false},
		{"the internal domain as gardenlet makes it", dns.Record{Name: "api.renamed.x.internal.local.gardener.cloud", Internal: true}, false},
		{"the host of an Ingress in the seed", dns.Record{Name: "gu-p--s.ingress.local.seed.local.gardener.cloud", Ingress: true}, false},
		{"the seed's own", dns.Record{Name: "*.ingress.local.seed.local.gardener.cloud", Class: extensionsv1alpha1.ExtensionClassSeed}, false},
		{"the garden's own", dns.Record{Name: "api.virtual-garden.local.gardener.cloud", Class: extensionsv1alpha1.ExtensionClassGarden}, false},
		{"a domain that is not reserved", dns.Record{Name: "api.s.p.external.local.gardener.cloud"}, false},
		{"a domain that ends alike", dns.Record{Name: "api.my-internal.local.gardener.cloud"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			test.record.Owner.Namespace = "shoot--p--s"
			err := test.record.CheckReserved(domains)
			if !test.refused {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(And(ContainSubstring(test.record.Name), ContainSubstring("reserved: choose another domain"))))
			g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
		})
	}
}
