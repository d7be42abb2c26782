// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Resources are the metrics of pkg/resources.
type Resources struct {
	applies           *prometheus.CounterVec
	plain, compressed prometheus.Counter
	ratio             prometheus.Histogram
}

func newResources(b *builder) *Resources {
	return &Resources{
		applies: b.counters("managedresource_applies_total",
			"ManagedResources that a controller wanted applied, by result: unchanged (nothing had to be written), written or error.", "result"),
		plain:      b.counter("managedresource_uncompressed_bytes_total", "Size of the objects of ManagedResources before they were compressed."),
		compressed: b.counter("managedresource_compressed_bytes_total", "Size of the objects of ManagedResources after they were compressed, as in their Secrets."),
		ratio: b.histogram("managedresource_compression_ratio", "How many times smaller compression made the objects of a ManagedResource.",
			[]float64{1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24}),
	}
}

// Unchanged tells of a ManagedResource for which nothing had to be written.
func (r *Resources) Unchanged() {
	if r != nil {
		r.applies.WithLabelValues("unchanged").Inc()
	}
}

// Written tells of a ManagedResource that was written, or could not be applied.
func (r *Resources) Written(err error) {
	switch {
	case r == nil:
	case err != nil:
		r.applies.WithLabelValues(resultError).Inc()
	default:
		r.applies.WithLabelValues("written").Inc()
	}
}

// Compressed tells the size of objects in bytes before and after compression.
func (r *Resources) Compressed(before, after int) {
	if r != nil && after > 0 {
		r.plain.Add(float64(before))
		r.compressed.Add(float64(after))
		r.ratio.Observe(float64(before) / float64(after))
	}
}
