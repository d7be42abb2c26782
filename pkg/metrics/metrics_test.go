// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

// all returns a registry in which each metric has a value.
func all(t *testing.T) *prometheus.Registry {
	t.Helper()
	g := NewWithT(t)
	registry := prometheus.NewPedanticRegistry()
	m, err := metrics.New(registry)
	g.Expect(err).NotTo(HaveOccurred())

	m.Charts.Cached()
	m.Charts.Rendered(nil)
	m.Charts.Rendered(errors.New("no"))
	m.Classes.Filtered("DNSRecord", "shoot")
	m.Classes.Filtered("DNSRecord", "moon")
	m.DNS.Batch(0)
	m.DNS.Batch(30)
	m.DNS.Written(time.Second, 30, errors.New("no"))
	m.DNS.Written(10*time.Millisecond, 31, nil)
	m.DNS.Operation("coredns", "apply", "conflict", time.Second)
	m.Resources.Unchanged()
	m.Resources.Written(nil)
	m.Resources.Written(errors.New("no"))
	m.Resources.Compressed(1000, 250)
	return registry
}

func TestNamesAndHelpTextsAreAsPrometheusRecommends(t *testing.T) {
	g := NewWithT(t)
	problems, err := testutil.GatherAndLint(all(t))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(problems).To(BeEmpty())
}

func TestEventsAreCounted(t *testing.T) {
	g := NewWithT(t)
	g.Expect(testutil.GatherAndCompare(all(t), strings.NewReader(`
# HELP provider_local_chart_renders_total Requests for a rendered chart, by result: cached (the same was rendered before), rendered or error.
# TYPE provider_local_chart_renders_total counter
provider_local_chart_renders_total{result="cached"} 1
provider_local_chart_renders_total{result="error"} 1
provider_local_chart_renders_total{result="rendered"} 1
# HELP provider_local_class_filtered_events_total Events of objects of a type of this extension that were left to the instance which serves their class (garden, seed, shoot or other), by kind.
# TYPE provider_local_class_filtered_events_total counter
provider_local_class_filtered_events_total{class="other",kind="DNSRecord"} 1
provider_local_class_filtered_events_total{class="shoot",kind="DNSRecord"} 1
# HELP provider_local_dns_configmap_writes_total ConfigMaps of CoreDNS that were created, updated or deleted, by result: success or error.
# TYPE provider_local_dns_configmap_writes_total counter
provider_local_dns_configmap_writes_total{result="error"} 1
provider_local_dns_configmap_writes_total{result="success"} 1
# HELP provider_local_dns_names Names that this instance has CoreDNS serve.
# TYPE provider_local_dns_names gauge
provider_local_dns_names 31
# HELP provider_local_managedresource_applies_total ManagedResources that a controller wanted applied, by result: unchanged (nothing had to be written), written or error.
# TYPE provider_local_managedresource_applies_total counter
provider_local_managedresource_applies_total{result="error"} 1
provider_local_managedresource_applies_total{result="unchanged"} 1
provider_local_managedresource_applies_total{result="written"} 1
# HELP provider_local_managedresource_compressed_bytes_total Size of the objects of ManagedResources after they were compressed, as in their Secrets.
# TYPE provider_local_managedresource_compressed_bytes_total counter
provider_local_managedresource_compressed_bytes_total 250
# HELP provider_local_managedresource_uncompressed_bytes_total Size of the objects of ManagedResources before they were compressed.
# TYPE provider_local_managedresource_uncompressed_bytes_total counter
provider_local_managedresource_uncompressed_bytes_total 1000
`), "provider_local_chart_renders_total", "provider_local_class_filtered_events_total", "provider_local_dns_configmap_writes_total",
		"provider_local_dns_names", "provider_local_managedresource_applies_total",
		"provider_local_managedresource_compressed_bytes_total", "provider_local_managedresource_uncompressed_bytes_total")).To(Succeed())
}

func TestTimesAndSizesFallIntoBuckets(t *testing.T) {
	g := NewWithT(t)
	families, err := all(t).Gather()
	g.Expect(err).NotTo(HaveOccurred())
	sums := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if histogram := metric.GetHistogram(); histogram != nil {
				g.Expect(histogram.GetSampleCount()).To(BeEquivalentTo(1), family.GetName())
				sums[family.GetName()] = histogram.GetSampleSum()
			}
		}
	}
	g.Expect(sums).To(Equal(map[string]float64{
		"provider_local_dns_batch_names":                   30,
		"provider_local_dns_flush_duration_seconds":        0.01,
		"provider_local_dns_operation_duration_seconds":    1,
		"provider_local_managedresource_compression_ratio": 4,
	}))
}

func TestASecondSetCountsOnWithTheFirst(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	first, err := metrics.New(registry)
	g.Expect(err).NotTo(HaveOccurred())
	second, err := metrics.New(registry)
	g.Expect(err).NotTo(HaveOccurred())
	first.DNS.Batch(1)
	second.DNS.Batch(1)
	g.Expect(testutil.GatherAndCount(registry, "provider_local_dns_batch_names")).To(Equal(1))
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(families).To(ContainElement(And(
		HaveField("GetName()", "provider_local_dns_batch_names"),
		HaveField("GetMetric()", ContainElement(HaveField("GetHistogram().GetSampleCount()", BeEquivalentTo(2)))))))
}

func TestANameThatIsTakenIsAnError(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "provider_local_dns_names", Help: "Something else."}))
	_, err := metrics.New(registry)
	g.Expect(err).To(MatchError(ContainSubstring("provider_local_dns_names")))
}

func TestNothingIsCountedWithoutMetrics(t *testing.T) {
	g := NewWithT(t)
	g.Expect(func() {
		none := &metrics.Set{}
		none.Charts.Cached()
		none.Charts.Rendered(nil)
		none.Classes.Filtered("Worker", "shoot")
		none.DNS.Batch(1)
		none.DNS.Written(time.Second, 1, nil)
		none.DNS.Operation("coredns", "apply", "success", time.Second)
		none.Resources.Unchanged()
		none.Resources.Written(nil)
		none.Resources.Compressed(2, 1)
	}).NotTo(Panic())
}

func TestEveryMetricIsDocumented(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("../../docs/operations/observability.md")
	g.Expect(err).NotTo(HaveOccurred())
	families, err := all(t).Gather()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(families).NotTo(BeEmpty())
	for _, family := range families {
		g.Expect(string(content)).To(ContainSubstring("`" + family.GetName() + "`"))
		for _, label := range family.GetMetric()[0].GetLabel() {
			g.Expect(string(content)).To(ContainSubstring("`" + label.GetName() + "`"))
		}
	}
}
