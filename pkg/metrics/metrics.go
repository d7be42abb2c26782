// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package metrics has what the instances tell Prometheus about themselves, beyond what controller-runtime does. A component
// gets its part of a Set and calls its methods; on a nil part these do nothing, so that a component works, and is tested,
// without. It is one package so that one test sees every name and help text, which docs/operations/observability.md lists. Only the
// cache of pulled charts has its own (pkg/chart/oci), whose gauges end with it.
//
// No label takes a name of an object: the number of series does not grow with the number of shoots.
package metrics

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// prefix begins the names of all metrics.
const prefix = "provider_local_"

// Set has the metrics of an instance, a part for each component.
type Set struct {
	Charts    *Charts
	Classes   *Classes
	DNS       *DNS
	Resources *Resources
}

// New returns the metrics of an instance and registers them. An instance that starts again in the same process, as
// integration tests have it, goes on with those that are there. With a nil registerer they are counted for nobody.
func New(registerer prometheus.Registerer) (*Set, error) {
	b := &builder{registerer: registerer}
	return &Set{Charts: newCharts(b), Classes: newClasses(b), DNS: newDNS(b), Resources: newResources(b)}, b.err()
}

// builder makes metrics, registers them and gathers the errors of that.
type builder struct {
	registerer prometheus.Registerer
	errs       []error
}

func (b *builder) err() error {
	if err := errors.Join(b.errs...); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

func (b *builder) counter(name, help string) prometheus.Counter {
	return register(b, prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help}))
}

func (b *builder) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(b, prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels))
}

func (b *builder) gauge(name, help string) prometheus.Gauge {
	return register(b, prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help}))
}

func (b *builder) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(b, prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}))
}

func (b *builder) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(b, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, labels))
}

// register returns the collector, or the one that has been registered in its place.
func register[C prometheus.Collector](b *builder, collector C) C {
	if b.registerer == nil {
		return collector
	}
	err := b.registerer.Register(collector)
	if already := (prometheus.AlreadyRegisteredError{}); errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	if err != nil {
		b.errs = append(b.errs, err)
	}
	return collector
}

// resultOf returns success, or the result of an error.
func resultOf(err error, success string) string {
	if err != nil {
		return "error"
	}
	return success
}

// Charts are the metrics of pkg/chart.
type Charts struct {
	renders *prometheus.CounterVec
}

func newCharts(b *builder) *Charts {
	return &Charts{
		renders: b.counters("chart_renders_total",
			"Requests for a rendered chart, by result: cached (the same was rendered before), rendered or error.", "result"),
	}
}

// Cached tells that a chart was found rendered.
func (c *Charts) Cached() {
	if c != nil {
		c.renders.WithLabelValues("cached").Inc()
	}
}

// Rendered tells that a chart was rendered, or could not be.
func (c *Charts) Rendered(err error) {
	if c != nil {
		c.renders.WithLabelValues(resultOf(err, "rendered")).Inc()
	}
}

// Classes are the metrics of pkg/class.
type Classes struct {
	filtered *prometheus.CounterVec
}

func newClasses(b *builder) *Classes {
	return &Classes{filtered: b.counters("class_filtered_events_total",
		"Events of objects of a type of this extension that were left to the instance which serves their class (garden, seed, shoot or other), by kind.",
		"kind", "class")}
}

// Filtered tells of an event of an object of a kind that is of a class which the instance does not serve.
func (c *Classes) Filtered(kind, class string) {
	if c == nil {
		return
	}
	switch class {
	case "garden", "seed", "shoot":
	default:
		class = "other"
	}
	c.filtered.WithLabelValues(kind, class).Inc()
}

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

// Written tells of the write of one ConfigMap: how long it took, and how many names there are now.
func (d *DNS) Written(took time.Duration, names int, err error) {
	if d != nil {
		result := resultOf(err, "success")
		d.writes.WithLabelValues(result).Inc()
		d.flushDuration.WithLabelValues(result).Observe(took.Seconds())
		d.names.Set(float64(names))
	}
}

// Operation tells how long a provider took to apply or remove a record. The labels have the few values that package dns knows.
func (d *DNS) Operation(provider, operation, result string, took time.Duration) {
	if d != nil {
		d.operation.WithLabelValues(provider, operation, result).Observe(took.Seconds())
	}
}

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
	if r != nil {
		r.applies.WithLabelValues(resultOf(err, "written")).Inc()
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
