// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

// counts returns the counters of a registry by name and labels, and the number and the sum of histograms.
func counts(t *testing.T, gatherer prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := gatherer.Gather()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	out := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			if histogram := metric.GetHistogram(); histogram != nil {
				out[name] = float64(histogram.GetSampleCount())
				continue
			}
			out[name] = metric.GetCounter().GetValue()
		}
	}
	return out
}

func TestAppliesAndCompressionAreCounted(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	g.Expect(err).NotTo(HaveOccurred())
	c := newCluster(t)
	writer := New(c.client())
	writer.Metrics = m.Resources

	g.Expect(writer.Apply(t.Context(), wanted("a", "b"))).To(Succeed())
	g.Expect(writer.Apply(t.Context(), wanted("a", "b"))).To(Succeed())
	c.before = failOnce("create Secret", errors.New("no"))
	g.Expect(writer.Apply(t.Context(), wanted("c"))).NotTo(Succeed())
	c.before = nil
	// As its Secret is gone, it is written although nothing else has changed.
	secret := c.secret(c.managedResource().Spec.SecretRefs[0].Name)
	g.Expect(c.Delete(t.Context(), secret)).To(Succeed())
	restarted := New(c.client())
	restarted.Metrics = m.Resources
	g.Expect(restarted.Apply(t.Context(), wanted("a", "b"))).To(Succeed())

	got := counts(t, registry)
	for name, value := range map[string]float64{"written": 2, "unchanged": 1, "error": 1} {
		g.Expect(got).To(HaveKeyWithValue(fmt.Sprintf("provider_local_managedresource_applies_total %s", name), value))
	}
	g.Expect(got).To(HaveKeyWithValue("provider_local_managedresource_compression_ratio", 2.0))
	g.Expect(got).To(HaveKeyWithValue("provider_local_managedresource_compressed_bytes_total", 2*float64(len(secret.Data["data.yaml.br"]))))
	g.Expect(got["provider_local_managedresource_uncompressed_bytes_total"]).To(BeNumerically(">", 100))
}
