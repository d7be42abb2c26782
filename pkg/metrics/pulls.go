// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/prometheus/client_golang/prometheus"

// Pulls are the metrics of pkg/chart/oci. They are not part of a Set, as they exist only where charts come from a registry.
type Pulls struct {
	Hits, Pulls, Requests, Stale *prometheus.CounterVec
	Misses, Corruptions          prometheus.Counter
}

// NewPulls returns the metrics of pulled charts and registers them.
func NewPulls(registerer prometheus.Registerer) (*Pulls, error) {
	b := &builder{registerer: registerer}
	return &Pulls{
		Hits:        b.counters("chart_cache_hits_total", "Charts from an OCI registry that were found in memory or on the disk.", "level"),
		Misses:      b.counter("chart_cache_misses_total", "Charts from an OCI registry that were found neither in memory nor on the disk."),
		Corruptions: b.counter("chart_cache_corruptions_total", "Charts on the disk that were not what their digest says, and were removed."),
		Pulls:       b.counters("chart_pulls_total", "Pulls of charts, by result: Success, or why there was none.", "result"),
		Requests:    b.counters("chart_registry_requests_total", "Requests to registries and their token servers, by status code, or \"error\" if there was no answer.", "registry", "method", "code"),
		Stale:       b.counters("chart_stale_uses_total", "Charts that were used although the registry did not tell about them when it was time to ask, by reason.", "reason"),
	}, b.err()
}
