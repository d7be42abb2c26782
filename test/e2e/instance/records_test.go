// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

var _ = Describe("A thousand DNSRecords", Ordered, Serial, func() {
	const (
		count, namespaces, zoneCount = 1000, 10, 3
		// clients is how many write and ask at a time, as the tests have half of a small machine at best.
		clients = 20
		// patience is for machines that are busy otherwise; how long it takes is reported, not asserted.
		patience = 5 * time.Minute
	)
	var services []*corev1.Service
	namespaceOf := func(i int) string { return fmt.Sprintf("shoot--e2e--many%d", i%namespaces) }
	gatewayOf := func(i int) *corev1.Service { return services[i%namespaces%zoneCount] }

	BeforeAll(func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) { l.Deploy(ctx, "0") })
		l.Deploy(ctx, "0", "1", "2")
		services = gateways(ctx, []string{gatewayNamespace + "--0", gatewayNamespace + "--1", gatewayNamespace + "--2"}, zoneAddresses)
		shoots := map[string][]string{}
		for i := range namespaces {
			shoots[namespaceOf(i)] = []string{strconv.Itoa(i % zoneCount)}
		}
		createShoots(ctx, shoots)
	})

	It("all resolve, for pods and for the host", func(ctx SpecContext) {
		var records []*extensionsv1alpha1.DNSRecord
		for i := range count {
			record := newRecord(namespaceOf(i), fmt.Sprintf("r%d", i), fmt.Sprintf("api.r%d.many-e2e.external.local.gardener.cloud", i),
				extensionsv1alpha1.ExtensionClassShoot, addressOf(gatewayOf(i)))
			record.Annotations = map[string]string{landscape.ConfirmDeletion: "true"}
			records = append(records, record)
		}
		DeferCleanup(func(ctx SpecContext) {
			begin := time.Now()
			inParallel(clients, records, func(_ int, record *extensionsv1alpha1.DNSRecord) error {
				return client.IgnoreNotFound(c.Delete(ctx, record))
			})
			Eventually(func() (int, error) { return left(ctx, namespaceOf, namespaces) }).WithTimeout(patience).Should(BeZero())
			GinkgoWriter.Printf("%d DNSRecords are gone after %.1fs\n", count, time.Since(begin).Seconds())
		})

		begin := time.Now()
		inParallel(clients, records, func(_ int, record *extensionsv1alpha1.DNSRecord) error { return c.Create(ctx, record) })
		created := time.Since(begin)

		// Both are looked at while the records are still on their way, each by itself.
		var resolved, succeeded time.Duration
		var wait errgroup.Group
		wait.Go(func() error {
			defer GinkgoRecover()
			server := coreDNSAddress(ctx)
			pending := slices.Clone(records)
			Eventually(func() int {
				pending = slices.DeleteFunc(pending, func(record *extensionsv1alpha1.DNSRecord) bool {
					i := slices.Index(records, record)
					return resolvesAs(ctx, server, record.Spec.Name, gatewayOf(i))
				})
				return len(pending)
			}).WithTimeout(patience).WithPolling(20 * time.Millisecond).Should(BeZero())
			resolved = time.Since(begin)
			return nil
		})
		wait.Go(func() error {
			defer GinkgoRecover()
			Eventually(func() (int, error) { return notSucceeded(ctx, namespaceOf, namespaces) }).WithTimeout(patience).Should(BeZero())
			succeeded = time.Since(begin)
			return nil
		})
		Expect(wait.Wait()).To(Succeed())

		report := fmt.Sprintf("%d DNSRecords in %d namespaces: created after %.1fs, all resolve for pods and for the host after %.1fs, all Succeeded after %.1fs",
			count, namespaces, created.Seconds(), resolved.Seconds(), succeeded.Seconds())
		AddReportEntry("time", report)

		By("resolving in a pod and by the name servers of the host as well")
		for i := 0; i < count; i += count / 20 {
			expectServed(ctx, records[i].Spec.Name, gatewayOf(i))
		}
	})
})

// resolvesAs reports whether pods are told the address of the gateway in the cluster, and the host the one outside of it.
func resolvesAs(ctx context.Context, server, name string, service *corev1.Service) bool {
	for network, address := range map[string]string{"udp": service.Spec.ClusterIP, "tcp": addressOf(service)} {
		answer, err := matchers.Resolve(ctx, network, server, name, dns.TypeA)
		if err != nil || !slices.Equal(answer, []string{address}) {
			return false
		}
	}
	return true
}

// inParallel calls a function for all items, and expects each call to succeed.
func inParallel[T any](clients int, items []T, call func(int, T) error) {
	GinkgoHelper()
	var group errgroup.Group
	group.SetLimit(clients)
	for i, item := range items {
		group.Go(func() error { return call(i, item) })
	}
	Expect(group.Wait()).To(Succeed())
}

// left counts the DNSRecords in namespaces.
func left(ctx context.Context, namespaceOf func(int) string, namespaces int) (int, error) {
	return countRecords(ctx, namespaceOf, namespaces, func(*extensionsv1alpha1.DNSRecord) bool { return true })
}

// notSucceeded counts those that are not ready.
func notSucceeded(ctx context.Context, namespaceOf func(int) string, namespaces int) (int, error) {
	return countRecords(ctx, namespaceOf, namespaces, func(record *extensionsv1alpha1.DNSRecord) bool {
		succeeded, err := matchers.HaveSucceeded().Match(record)
		return err != nil || !succeeded
	})
}

func countRecords(ctx context.Context, namespaceOf func(int) string, namespaces int, counts func(*extensionsv1alpha1.DNSRecord) bool) (int, error) {
	found := 0
	for i := range namespaces {
		list := &extensionsv1alpha1.DNSRecordList{}
		if err := c.List(ctx, list, client.InNamespace(namespaceOf(i))); err != nil {
			return 0, err
		}
		for _, record := range list.Items {
			if counts(&record) {
				found++
			}
		}
	}
	return found, nil
}
