// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// job is the instance in a seed.
const job = `job="gardener-extension-provider-local-seed"`

// steps is the number of samples.
const steps = int(2*window/resolution) + 1

// samples writes series in the notation of promtool: name{labels} value value ...
type samples struct{ strings.Builder }

// rate is how often something happens, a second, at a step.
type rate func(step int) float64

// sampleSeries is two hours in a seed: in the second one, thirty shoots are created at once, and their records are
// corrected later on.
func sampleSeries() string {
	s := &samples{}
	_, _ = fmt.Fprintf(s, "load %s\n", resolution)
	shoots := func(base, peak float64) rate {
		return func(step int) float64 {
			return base*(1+0.3*wobble(step)) + peak*hill(step, 80, 6) + 0.4*peak*hill(step, 105, 3)
		}
	}

	s.gauge("up", "", func(int) float64 { return 1 })
	s.dns(shoots)
	s.deployed(shoots)
	for controller, peak := range map[string]float64{"dnsrecord": 3, "infrastructure": 0.8, "worker": 1.2, "controlplane": 1.5, "operatingsystemconfig": 2} {
		labels := fmt.Sprintf(`,controller="%s"`, controller)
		s.counter("controller_runtime_reconcile_total", labels, shoots(0.05*peak, peak))
		s.counter("controller_runtime_reconcile_errors_total", labels, shoots(0, 0.02*peak))
		s.gauge("workqueue_depth", fmt.Sprintf(`,name="%s"`, controller), func(step int) float64 { return math.Floor(9 * peak * hill(step, 79, 3)) })
	}
	s.gauge("process_resident_memory_bytes", "", func(step int) float64 { return 62e6 + 21e6*hill(step, 84, 9) + 1e6*wobble(step) })
	s.counter("process_cpu_seconds_total", "", shoots(0.015, 0.3))
	return s.String()
}

func (s *samples) dns(shoots func(base, peak float64) rate) {
	s.gauge("provider_local_dns_names", "", func(step int) float64 { return 24 + math.Floor(90*rise(step, 80, 6)) })
	s.histogram("provider_local_dns_batch_names", "", []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}, shoots(0.02, 1), func(step int) float64 {
		return 1.4 + 16*hill(step, 80, 6)
	})
	s.histogram("provider_local_dns_flush_duration_seconds", `,result="success"`, doubling(0.002, 13), shoots(0.02, 1), func(step int) float64 {
		return 0.009 + 0.012*hill(step, 80, 6)
	})
	bounds := []float64{0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20}
	s.histogram("provider_local_dns_operation_duration_seconds", `,provider="coredns",operation="apply",result="success"`, bounds, shoots(0.1, 2.6), func(step int) float64 {
		return 0.13 + 0.16*hill(step, 80, 6)
	})
	s.histogram("provider_local_dns_operation_duration_seconds", `,provider="coredns",operation="remove",result="success"`, bounds, shoots(0.01, 0.2), func(int) float64 { return 0.06 })
	s.histogram("provider_local_dns_operation_duration_seconds", `,provider="coredns",operation="apply",result="conflict"`, bounds, shoots(0.004, 0), func(int) float64 { return 0.03 })
}

func (s *samples) deployed(shoots func(base, peak float64) rate) {
	s.counter("provider_local_managedresource_applies_total", `,result="unchanged"`, shoots(0.3, 1.4))
	s.counter("provider_local_managedresource_applies_total", `,result="written"`, shoots(0.01, 0.9))
	s.counter("provider_local_managedresource_uncompressed_bytes_total", "", shoots(150, 13500))
	s.counter("provider_local_managedresource_compressed_bytes_total", "", shoots(40, 3200))
	s.histogram("provider_local_managedresource_compression_ratio", "", []float64{1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24}, shoots(0.01, 0.9), func(step int) float64 {
		return 3.1 + 0.8*hill(step, 80, 6)
	})
	s.counter("provider_local_chart_renders_total", `,result="cached"`, shoots(0.35, 1.7))
	s.counter("provider_local_chart_renders_total", `,result="rendered"`, shoots(0.002, 0.5))
	s.counter("provider_local_chart_cache_hits_total", `,level="memory"`, shoots(0.3, 1.5))
	s.counter("provider_local_chart_cache_hits_total", `,level="disk"`, shoots(0.004, 0.02))
	s.counter("provider_local_chart_cache_misses_total", "", shoots(0.001, 0.004))
	for kind, base := range map[string]float64{"DNSRecord": 0.03, "BackupBucket": 0.008, "Extension": 0.02} {
		s.counter("provider_local_class_filtered_events_total", fmt.Sprintf(`,kind="%s",class="garden"`, kind), shoots(base, 0))
	}
}

func (s *samples) gauge(name, labels string, value func(step int) float64) {
	_, _ = fmt.Fprintf(s, "  %s{%s%s}", name, job, labels)
	for step := range steps {
		_, _ = fmt.Fprintf(s, " %.6g", value(step))
	}
	s.WriteString("\n")
}

func (s *samples) counter(name, labels string, perSecond rate) {
	total := 0.0
	s.gauge(name, labels, func(step int) float64 {
		total += math.Max(perSecond(step), 0) * resolution.Seconds()
		return total
	})
}

// histogram spreads what happens around a median.
func (s *samples) histogram(name, labels string, bounds []float64, perSecond rate, median func(step int) float64) {
	for _, bound := range append(bounds, math.Inf(1)) {
		below := func(step int) float64 { return perSecond(step) / (1 + math.Pow(bound/median(step), -4)) }
		s.counter(name+"_bucket", fmt.Sprintf(`%s,le="%s"`, labels, fmt.Sprint(bound)), below)
	}
	s.counter(name+"_count", labels, perSecond)
}

func doubling(first float64, count int) []float64 {
	var out []float64
	for range count {
		out = append(out, first)
		first *= 2
	}
	return out
}

// hill is 1 at a step and 0 far from it, rise goes from 0 to 1 there, and wobble is anything between -1 and 1.
func hill(step, at, width int) float64 {
	distance := float64(step-at) / float64(width)
	return math.Exp(-distance * distance)
}

func rise(step, at, width int) float64 {
	return 1 / (1 + math.Exp(-2*float64(step-at)/float64(width)))
}

func wobble(step int) float64 {
	x := float64(step)
	return 0.6*math.Sin(x*1.7) + 0.4*math.Sin(x*0.61)
}

// startOfPicture is the time of its left edge, in milliseconds.
func startOfPicture() int64 { return time.Unix(0, 0).Add(window).UnixMilli() }
