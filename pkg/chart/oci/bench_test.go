// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"testing"
	"time"
)

// warm measures loads of a chart that is there, and reports how many requests each made.
func warm(b *testing.B, reference string, change ...func(*setup)) {
	registry, w := newRegistry(b), newWorld(b, change...)
	manifest := registry.push(b, "v1", pack(b, "1.0.0", nil))
	if reference == "" {
		reference = manifest.String()
	}
	config := ref(registry.host(), reference)
	w.expect(config, "1.0.0")
	source := w.source(config)
	registry.asked()

	b.ReportAllocs()
	for b.Loop() {
		if _, err := source.Load(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(registry.asked()))/float64(b.N), "requests/op")
}

func BenchmarkWarmByDigest(b *testing.B) { warm(b, "") }

func BenchmarkWarmByTag(b *testing.B) { warm(b, "v1") }

// BenchmarkFirstFromDisk is the first load after a restart.
func BenchmarkFirstFromDisk(b *testing.B) { first(b, func(*world) {}) }

// BenchmarkFirstCold is the first load there is.
func BenchmarkFirstCold(b *testing.B) {
	first(b, func(w *world) { w.opts.Directory = b.TempDir() })
}

// first measures the first load of each of many pullers, and reports how many requests each made.
func first(b *testing.B, change func(*world)) {
	registry, w := newRegistry(b), newWorld(b)
	registry.push(b, "v1", pack(b, "1.0.0", nil))
	config := ref(registry.host(), "v1")
	w.expect(config, "1.0.0")
	registry.asked()

	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		change(w)
		w.restart()
		source := w.source(config)
		b.StartTimer()
		if _, err := source.Load(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(registry.asked()))/float64(b.N), "requests/op")
}

// BenchmarkCheckedTag is a load that finds the interval to be over.
func BenchmarkCheckedTag(b *testing.B) {
	registry, w := newRegistry(b), newWorld(b)
	registry.push(b, "v1", pack(b, "1.0.0", nil))
	source := w.source(ref(registry.host(), "v1"))
	for b.Loop() {
		w.clock.Step(time.Minute)
		if _, err := source.Load(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(registry.asked()))/float64(b.N), "requests/op")
}
