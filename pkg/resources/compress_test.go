// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"bytes"
	"fmt"
	"go/build"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	. "github.com/onsi/gomega"
)

// sample returns about size bytes of YAML as charts have it: names and numbers differ, the structure repeats.
func sample(size int) []byte {
	var (
		out    strings.Builder
		random = rand.New(rand.NewPCG(1, uint64(size))) // #nosec G404 -- the same text in each run is what is wanted
	)
	for out.Len() < size {
		name := fmt.Sprintf("component-%x", random.Uint32())
		fmt.Fprintf(&out, `apiVersion: v1
kind: ServiceAccount
metadata:
  name: %[1]s
  namespace: kube-system
  labels:
    app.kubernetes.io/name: %[1]s
    checksum/config: %016[2]x%016[3]x
automountServiceAccountToken: false
---
`, name, random.Uint64(), random.Uint64())
	}
	return []byte(out.String()[:size])
}

func TestCompressorsUsedAgainGiveTheSameBytesAsNewOnes(t *testing.T) {
	g := NewWithT(t)

	used := newCompressor(defaultLevel)
	for _, size := range []int{300_000, 0, 1, 200, 15_000, 200, 300_000} {
		again, err := used.compress(sample(size))
		g.Expect(err).NotTo(HaveOccurred())
		fresh, err := newCompressor(defaultLevel).compress(sample(size))
		g.Expect(err).NotTo(HaveOccurred())

		g.Expect(again).To(Equal(fresh), "%d bytes", size)
		text, err := io.ReadAll(brotli.NewReader(bytes.NewReader(again)))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(text).To(BeEquivalentTo(sample(size)))
	}
}

func TestCompressorsMayBeUsedConcurrently(t *testing.T) {
	used := newCompressor(defaultLevel)
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			text := sample(1000 * (i + 1))
			data, err := used.compress(text)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(io.ReadAll(brotli.NewReader(bytes.NewReader(data)))).To(Equal(text))
		})
	}
}

// seedCRDs returns the first size bytes of the CustomResourceDefinitions that Gardener installs in a seed: real YAML, as
// its module has it.
func seedCRDs(b *testing.B, size int) []byte {
	b.Helper()
	gardener, err := build.Import("github.com/gardener/gardener/cmd/gardenlet", ".", build.FindOnly)
	if err != nil {
		b.Skipf("gardener's module is not there: %v", err)
	}
	paths, err := filepath.Glob(filepath.Join(gardener.Dir, "..", "..", "example", "seed-crds", "*.yaml"))
	if err != nil {
		b.Fatal(err)
	}

	var out []byte
	for _, path := range paths {
		data, err := os.ReadFile(path) // #nosec G304 -- of a module
		if err != nil {
			b.Fatal(err)
		}
		out = append(append(out, data...), "---\n"...)
	}
	if len(out) < size {
		b.Skipf("there are just %d bytes of CRDs", len(out))
	}
	return out[:size]
}

func BenchmarkCompress(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"200B", 200}, {"15KB", 15 << 10}, {"200KB", 200 << 10}, {"1MB", 1 << 20}} {
		text := seedCRDs(b, size.bytes)
		for _, level := range []int{4, 6, 9, 11} {
			pooled := newCompressor(level)
			for _, writer := range []struct {
				name     string
				compress func() ([]byte, error)
			}{
				{"new", func() ([]byte, error) {
					var out bytes.Buffer
					w := brotli.NewWriterLevel(&out, level)
					_, _ = w.Write(text)
					err := w.Close()
					return out.Bytes(), err
				}},
				{"pooled", func() ([]byte, error) { return pooled.compress(text) }},
			} {
				b.Run(fmt.Sprintf("size=%s/level=%d/writer=%s", size.name, level, writer.name), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if _, err := writer.compress(); err != nil {
							b.Fatal(err)
						}
					}
					data, _ := pooled.compress(text)
					b.ReportMetric(float64(len(text))/float64(len(data)), "x-smaller")
				})
			}
		}
	}
}
