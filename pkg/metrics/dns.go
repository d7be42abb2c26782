// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DNS are the metrics of pkg/dns and of the packages below it.
type DNS struct {
	batchNames    prometheus.Histogram
	flushDuration *prometheus.HistogramVec
	writes        *prometheus.CounterVec
	names         prometheus.Gauge
	operation     *prometheus.HistogramVec
}

func newDNS(b *builder) *DNS {
	return &DNS{
		batchNames: b.histogram("dns_batch_names", "Names that changed since the last write for CoreDNS and went into the next one together.",
			[]float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}),
		flushDuration: b.histograms("dns_flush_duration_seconds", "Time to write what has changed to the ConfigMaps of CoreDNS, without the time to collect it, by result: success or error.",
			prometheus.ExponentialBuckets(0.002, 2, 13), "result"),
		writes: b.counters("dns_configmap_writes_total", "ConfigMaps of CoreDNS that were created, updated or deleted, by result: success or error.", "result"),
		names:  b.gauge("dns_names", "Names that this instance has CoreDNS serve."),
		operation: b.histograms("dns_operation_duration_seconds",
			"Time until a record resolves (apply) or is removed (remove), by provider and result: success, conflict (with another DNSRecord), mistake (of a user) or error.",
			[]float64{0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20}, "provider", "operation", "result"),
	}
}

// Batch tells how many names go into one write.
func (d *DNS) Batch(names int) {
	if d != nil && names > 0 {
		d.batchNames.Observe(float64(names))
	}
}

// Flushed tells how long it took to write a batch, and how many names there are now.
func (d *DNS) Flushed(took time.Duration, names int, err error) {
	if d != nil {
		d.flushDuration.WithLabelValues(resultOf(err)).Observe(took.Seconds())
		d.names.Set(float64(names))
	}
}

// Written tells of one ConfigMap.
func (d *DNS) Written(err error) {
	if d != nil {
		d.writes.WithLabelValues(resultOf(err)).Inc()
	}
}

// DNSOperation is what is done about a record.
type DNSOperation string

// The operations.
const (
	DNSApply  DNSOperation = "apply"
	DNSRemove DNSOperation = "remove"
)

// DNSResult is how an operation ended.
type DNSResult string

// The results.
const (
	DNSSuccess  DNSResult = resultSuccess
	DNSConflict DNSResult = "conflict"
	DNSMistake  DNSResult = "mistake"
	DNSError    DNSResult = resultError
)

// Operation tells how long a provider, of which there are as many as package dns has names, took for a record.
func (d *DNS) Operation(provider string, operation DNSOperation, result DNSResult, took time.Duration) {
	if d != nil {
		d.operation.WithLabelValues(provider, string(operation), string(result)).Observe(took.Seconds())
	}
}
