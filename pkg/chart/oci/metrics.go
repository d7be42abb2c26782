// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are described in docs/operations/observability.md.
type metrics struct {
	hits, pulls, requests, stale *prometheus.CounterVec
	misses, corruptions          prometheus.Counter
	// unregister makes room for a Puller after this one in the same process.
	unregister func()
}

const (
	memoryLevel = "memory"
	diskLevel   = "disk"
)

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	const prefix = "provider_local_chart_"
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}

	m := &metrics{
		hits:        vec("cache_hits_total", "Charts from an OCI registry that were found in memory or on the disk.", "level"),
		misses:      counter("cache_misses_total", "Charts from an OCI registry that were found neither in memory nor on the disk."),
		corruptions: counter("cache_corruptions_total", "Charts on the disk that were not what their digest says, and were removed."),
		pulls:       vec("pulls_total", "Pulls of charts, by result: Success, or why there was none.", "result"),
		requests:    vec("registry_requests_total", "Requests to registries and their token servers, by status code, or \"error\" if there was no answer.", "registry", "method", "code"),
		stale:       vec("stale_uses_total", "Charts that were used although the registry did not tell about them when it was time to ask, by reason.", "reason"),
	}
	m.unregister = func() {}
	if registerer == nil {
		return m, nil
	}
	collectors := []prometheus.Collector{m.hits, m.misses, m.corruptions, m.pulls, m.requests, m.stale}
	var errs []error
	for _, collector := range collectors {
		errs = append(errs, registerer.Register(collector))
	}
	m.unregister = func() {
		for _, collector := range collectors {
			registerer.Unregister(collector)
		}
	}
	return m, errors.Join(errs...)
}
