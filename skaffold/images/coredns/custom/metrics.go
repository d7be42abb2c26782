// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are registered where the prometheus plugin looks for them.
type metrics struct {
	dropped prometheus.Counter
	merges  prometheus.Histogram
	records prometheus.Gauge
	shards  prometheus.Gauge
	updated prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	return &metrics{
		dropped: factory.NewCounter(prometheus.CounterOpts{
			Namespace: plugin.Namespace, Subsystem: pluginName, Name: "dropped_entries_total",
			Help: "Entries of ConfigMaps that were left out as this extension doesn't write such.",
		}),
		merges: factory.NewHistogram(prometheus.HistogramOpts{
			Namespace: plugin.Namespace, Subsystem: pluginName, Name: "merge_duration_seconds",
			Help: "Time to make the served table of the ConfigMaps.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8),
		}),
		records: factory.NewGauge(prometheus.GaugeOpts{
			Namespace: plugin.Namespace, Subsystem: pluginName, Name: "records",
			Help: "Resource records served.",
		}),
		shards: factory.NewGauge(prometheus.GaugeOpts{
			Namespace: plugin.Namespace, Subsystem: pluginName, Name: "configmaps",
			Help: "ConfigMaps served.",
		}),
		updated: factory.NewGauge(prometheus.GaugeOpts{
			Namespace: plugin.Namespace, Subsystem: pluginName, Name: "last_update_timestamp_seconds",
			Help: "When the served table was made.",
		}),
	}
}
