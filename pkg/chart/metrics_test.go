// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

func TestRenderingsAreCounted(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	g.Expect(err).NotTo(HaveOccurred())
	counting := renderer(t)
	counting.Metrics = m.Charts
	other, err := counting.For("1.35.0")
	g.Expect(err).NotTo(HaveOccurred())

	values := map[string]any{"replicas": 3}
	for _, r := range []*chart.Renderer{counting, counting, other} {
		_, err := r.Render(t.Context(), embedded(), release, values)
		g.Expect(err).NotTo(HaveOccurred())
	}
	_, err = counting.Render(t.Context(), embedded(), release, map[string]any{"replicas": "many"})
	g.Expect(err).To(HaveOccurred())

	g.Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP provider_local_chart_renders_total Requests for a rendered chart, by result: cached (the same was rendered before), rendered or error.
# TYPE provider_local_chart_renders_total counter
provider_local_chart_renders_total{result="cached"} 1
provider_local_chart_renders_total{result="error"} 1
provider_local_chart_renders_total{result="rendered"} 2
`), "provider_local_chart_renders_total")).To(Succeed())
}
