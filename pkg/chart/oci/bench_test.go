// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"testing"
	"time"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
)

// warm measures loads of a chart that is there, and reports how many requests each made.
func warm(b *testing.B, reference string, change ...func(*oci.Options)) {
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

func BenchmarkWarmFromDisk(b *testing.B) {
	warm(b, "v1", func(o *oci.Options) { o.MemoryBytes = 1 })
}

// BenchmarkCheckedTag is a load that finds the interval to be over.
func BenchmarkCheckedTag(b *testing.B) {
	warm(b, "v1", func(o *oci.Options) { o.CheckInterval, o.Clock = time.Nanosecond, nil })
}

// BenchmarkCold is a load of a chart for which there is no room, so that each one is a pull.
func BenchmarkCold(b *testing.B) {
	warm(b, "v1", func(o *oci.Options) { o.MemoryBytes, o.MaxBytes = 1, 1 })
}
