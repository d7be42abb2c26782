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

// Results that several metrics have.
const (
	resultSuccess = "success"
	resultError   = "error"
)

func resultOf(err error) string {
	if err != nil {
		return resultError
	}
	return resultSuccess
}
