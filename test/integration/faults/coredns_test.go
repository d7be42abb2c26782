// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

var _ = Describe("CoreDNS that is away", func() {
	// The pause between two attempts at a record ends at 30 seconds, so an hour differs in nothing from a minute.
	It("while records change serves them as they are when it is back", func(ctx SpecContext) {
		away := time.Duration(number("FAULT_COREDNS_AWAY_SECONDS", 5)) * time.Second
		i := newInstance()
		i.start(ctx)
		f := newFleet(ctx, "unserved", number("FAULT_OBJECTS", 12))
		f.do(ctx, append(f.some(0), f.some(1)...), creation)
		f.isAsWanted(ctx)

		By("ending CoreDNS, with its state and its ConfigMaps")
		Expect(coreDNS.Kill(ctx)).To(Succeed())
		deleteRecords(ctx)
		f.do(ctx, f.some(0), change)
		f.do(ctx, f.some(1), deletion)
		f.do(ctx, f.some(2), creation)
		waiting := &extensionsv1alpha1.DNSRecord{}
		get := func() (extensionsv1alpha1.Object, error) {
			// Decoding leaves fields that are not there.
			*waiting = extensionsv1alpha1.DNSRecord{}
			return waiting, c.Get(ctx, client.ObjectKey{Namespace: namespaceOf("unserved-0"), Name: "external"}, waiting)
		}
		Eventually(get).Should(HaveField("Status.LastError", HaveValue(HaveField("Description", ContainSubstring("doesn't resolve")))), "it says why")
		Consistently(get).WithContext(ctx).WithTimeout(away).WithPolling(time.Second).ShouldNot(matchers.HaveSucceeded())

		By("starting it again")
		startCoreDNS(ctx)
		f.isAsWanted(ctx)
		report("%d objects, %s without CoreDNS", len(f.objects), away)
		f.remove(ctx)
	}, SpecTimeout(10*time.Minute))
})
