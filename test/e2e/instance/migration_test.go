// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// There is one cluster and so one CoreDNS, which source and destination share as two namespaces: the worst case, as the names
// of two seeds are in different servers otherwise.
var _ = Describe("The DNSRecord of a shoot that moves", Ordered, Serial, func() {
	const (
		source, destination = "shoot--e2e--source", "shoot--e2e--destination"
		name                = "api.moves.e2e.external.local.gardener.cloud"
	)
	var from, to *corev1.Service

	BeforeAll(func(ctx SpecContext) {
		services := gateways(ctx, []string{gatewayNamespace + "--0", gatewayNamespace + "--1"}, zoneAddresses[:2])
		from, to = services[0], services[1]
		createShoots(ctx, map[string][]string{source: {"0"}, destination: {"1"}})
	})

	It("stays when the source goes after the destination has it", func(ctx SpecContext) {
		before := deployRecord(ctx, source, "moves-external", name, addressOf(from))
		expectServed(ctx, name, from)

		By("leaving the source")
		Expect(before.Migrate(ctx)).To(Succeed())
		Expect(before.WaitMigrate(ctx)).To(Succeed())
		Expect(matchers.Resolve(ctx, "tcp", coreDNSAddress(ctx), name, dns.TypeA)).To(ConsistOf("NXDOMAIN"), "the source doesn't serve it any more")

		By("being restored in the destination")
		after := recordOf(destination, "moves-external", name, addressOf(to))
		DeferCleanup(func(ctx SpecContext) {
			Expect(after.Destroy(ctx)).To(Succeed())
			Expect(after.WaitCleanup(ctx)).To(Succeed())
		})
		Expect(after.Restore(ctx, &gardencorev1beta1.ShootState{})).To(Succeed())
		Expect(after.Wait(ctx)).To(Succeed())
		expectServed(ctx, name, to)

		By("being deleted in the source")
		Expect(before.Destroy(ctx)).To(Succeed())
		Expect(before.WaitCleanup(ctx)).To(Succeed())
		expectServed(ctx, name, to)
	})
})
