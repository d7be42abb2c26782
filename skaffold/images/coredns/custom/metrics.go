// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are registered where the prometheus plugin looks for them, by Register.
type metrics struct {
	dropped prometheus.Counter
	merges  prometheus.Histogram
	records prometheus.Gauge
	shards  prometheus.Gauge
	updated prometheus.Gauge
}

func newMetrics() *metrics {
	return &metrics{
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: plugin.Namespace, Subsystem: pluginName, Name: "dropped_entries_total",
			Help: "Entries of ConfigMaps that were left out as this extension doesn't write such.",
		}),
		merges: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: plugin.Namespace, Subsystem: pluginName, Name: "merge_duration_seconds",
			Help: "Time to make the served table of the ConfigMaps.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8),
		}),
		records: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: plugin.Namespace, Subsystem: pluginName, Name: "records",
			Help: "Resource records served.",
		}),
		shards: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: plugin.Namespace, Subsystem: pluginName, Name: "configmaps",
			Help: "ConfigMaps served.",
		}),
		updated: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: plugin.Namespace, Subsystem: pluginName, Name: "last_update_timestamp_seconds",
			Help: "When the served table was made.",
		}),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.dropped, m.merges, m.records, m.shards, m.updated}
}
