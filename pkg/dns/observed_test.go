// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

type answering struct{ err error }

func (a answering) Apply(context.Context, dns.Request) error  { return a.err }
func (a answering) Remove(context.Context, dns.Request) error { return a.err }

func TestOperationsAreMeasuredByTheirResult(t *testing.T) {
	for result, err := range map[string]error{
		"success":  nil,
		"conflict": fmt.Errorf("applying: %w", dns.Record{}.Conflict(dns.Holder{}, types.NamespacedName{}, "older")),
		"mistake":  dns.ConfigurationProblem(errors.New("no such zone")),
		"error":    errors.New("no answer"),
	} {
		t.Run(result, func(t *testing.T) {
			g := NewWithT(t)
			registry := prometheus.NewRegistry()
			m, errNew := metrics.New(registry)
			g.Expect(errNew).NotTo(HaveOccurred())
			provider := dns.Observed(answering{err}, configv1alpha1.DNSProviderCoreDNS, m.DNS)
			g.Expect(errors.Is(provider.Apply(t.Context(), dns.Request{}), err)).To(BeTrue())
			g.Expect(errors.Is(provider.Remove(t.Context(), dns.Request{}), err)).To(BeTrue())

			families, errGather := registry.Gather()
			g.Expect(errGather).NotTo(HaveOccurred())
			var seen []string
			for _, family := range families {
				for _, metric := range family.GetMetric() {
					if family.GetName() != "provider_local_dns_operation_duration_seconds" {
						continue
					}
					g.Expect(metric.GetHistogram().GetSampleCount()).To(BeEquivalentTo(1))
					var labels []string
					for _, label := range metric.GetLabel() {
						labels = append(labels, label.GetValue())
					}
					seen = append(seen, strings.Join(labels, " "))
				}
			}
			g.Expect(seen).To(HaveExactElements("apply coredns "+result, "remove coredns "+result))
		})
	}
}
