// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Charts are the metrics of pkg/chart.
type Charts struct {
	renders  *prometheus.CounterVec
	duration prometheus.Histogram
}

func newCharts(b *builder) *Charts {
	return &Charts{
		renders: b.counters("chart_renders_total",
			"Requests for a rendered chart, by result: cached (the same was rendered before), rendered or error.", "result"),
		duration: b.histogram("chart_render_duration_seconds", "Time to render a chart that was not rendered before.",
			prometheus.ExponentialBuckets(0.001, 2, 12)),
	}
}

// Cached tells that a chart was found rendered.
func (c *Charts) Cached() {
	if c != nil {
		c.renders.WithLabelValues("cached").Inc()
	}
}

// Rendered tells how long a chart took to render, or to fail.
func (c *Charts) Rendered(took time.Duration, err error) {
	switch {
	case c == nil:
	case err != nil:
		c.renders.WithLabelValues(resultError).Inc()
	default:
		c.renders.WithLabelValues("rendered").Inc()
		c.duration.Observe(took.Seconds())
	}
}
