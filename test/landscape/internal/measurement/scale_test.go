// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package measurement

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/golden"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/usage"
)

func TestScalePage(t *testing.T) {
	g := NewWithT(t)
	s := &Scale{
		Machine: Machine{CPU: "A", Cores: 2, Memory: 24 << 30, Kernel: "6.1", ReadTime: 200}, Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Commit: "abc",
		Shoots: 3, Nodes: 30,
		Phases: []ScalePhase{
			{
				Title: "create", Seconds: 100, Shoots: []float64{50, 60, 90}, Requests: map[string]float64{"gardenlet": 1000},
				Programs: []usage.Group{{Name: "etcd", Memory: 5e7, Cores: 0.1}, {Name: "kube-apiserver", Memory: 1e9, Cores: 0.5}},
			},
			{Title: "delete", Seconds: 40, Programs: []usage.Group{{Name: "kube-apiserver", Memory: 5e8, Cores: 0.25}}},
		},
	}
	for i := range 100 {
		s.Samples = append(s.Samples, ScaleSample{Seconds: float64(10 * i), Shoots: i / 10, Memory: uint64(i) * 1e8})
	}
	path := filepath.Join(t.TempDir(), "scale.md")
	g.Expect(s.WritePage(path)).To(Succeed())
	content, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	golden.Check(t, "scale.golden", content)
}

func TestQuantile(t *testing.T) {
	g := NewWithT(t)
	g.Expect(quantile(nil, 1)).To(BeZero())
	g.Expect(quantile([]float64{1, 2, 3, 4}, 0.5)).To(Equal(2.0))
	g.Expect(quantile([]float64{1, 2, 3, 4}, 1)).To(Equal(4.0))
}

func TestMemoryInUse(t *testing.T) {
	g := NewWithT(t)
	used, err := MemoryInUse(usage.Root)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(used).To(BeNumerically(">", 1<<20))
}
