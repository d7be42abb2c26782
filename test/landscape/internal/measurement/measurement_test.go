// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package measurement_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/golden"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/measurement"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/usage"
)

// resultOf is a Result in which etcd takes so many seconds per phase.
func resultOf(commit string, etcd float64) *measurement.Result {
	r := &measurement.Result{
		Machine: measurement.Machine{CPU: "A|B", Cores: 2, Memory: 24 << 30, Kernel: "6.1", ReadTime: 99.6},
		Date:    time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Commit: commit,
	}
	r.AddPhase("Garden Succeeded", usage.Reading{
		Programs: map[string]usage.Program{"etcd": {CPU: usage.CPU{User: etcd, System: 1}, Processes: 2, Children: 0.25}},
		Total:    usage.CPU{User: etcd, System: 1}, Machine: usage.CPU{User: etcd + 1, System: 1},
	})
	r.AddPhase("everything healthy", usage.Reading{
		Programs: map[string]usage.Program{"etcd": {CPU: usage.CPU{User: etcd}}, "runc init": {CPU: usage.CPU{System: 200}, Processes: 1}},
		Total:    usage.CPU{User: etcd, System: 200}, Machine: usage.CPU{User: etcd, System: 200},
	})
	r.Add("make stop", 1, "s")
	r.Add("make stop", etcd, "s")
	r.Idle = []usage.Group{{Name: "etcd", Memory: 200_000_000, Cores: etcd / 100}, {Name: "polls", Memory: 1_000_000, Cores: 1}}
	return r
}

func TestThePageComparesWithTheRunBefore(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	read := func() string {
		content, err := os.ReadFile(filepath.Join(folder, "times.md"))
		g.Expect(err).NotTo(HaveOccurred())
		return string(content)
	}
	g.Expect(resultOf("one", 10).WriteDocs(folder)).To(Succeed())
	g.Expect(read()).To(ContainSubstring("|commit||one|\n"))
	g.Expect(resultOf("two", 5).WriteDocs(folder)).To(Succeed())
	golden.Check(t, "times.md", []byte(read()))
	g.Expect(resultOf("three", 4).WriteDocs(folder)).To(Succeed())
	g.Expect(read()).To(ContainSubstring("|commit|one|three|\n"), "the first stays")
	g.Expect(os.WriteFile(filepath.Join(folder, "times.json"), []byte("{"), 0o600)).To(Succeed())
	g.Expect(resultOf("four", 4).WriteDocs(folder)).To(MatchError(ContainSubstring("reading the times of before")))
}

func TestThePageNamesTheLargest(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	r := &measurement.Result{}
	programs := map[string]usage.Program{}
	for i := range 40 {
		programs[fmt.Sprintf("program%d.", i)] = usage.Program{CPU: usage.CPU{User: float64(i)}}
	}
	r.AddPhase("everything healthy", usage.Reading{Programs: programs})
	g.Expect(r.WriteDocs(folder)).To(Succeed())
	content, err := os.ReadFile(filepath.Join(folder, "times.md"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(string(content), "|program")).To(Equal(27), "two heads and 25 programs")
	g.Expect(string(content)).To(And(ContainSubstring("|program39.|"), Not(ContainSubstring("|program14.|"))))
}

func TestThisMachine(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	for name, content := range map[string]string{
		"cpuinfo":              "processor\t: 0\nvendor_id\t: V\nmodel name\t: Model\n\nprocessor\t: 1\nvendor_id\t: V\nmodel name\t: Model\n",
		"meminfo":              "MemTotal:       1024 kB\n",
		"sys/kernel/osrelease": "6.1.0\n",
	} {
		path := filepath.Join(root, name)
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}
	g.Expect(measurement.ThisMachine(root)).To(Equal(measurement.Machine{CPU: "Model", Cores: 2, Memory: 1 << 20, Kernel: "6.1.0"}))
}

func TestReadTime(t *testing.T) {
	g := NewWithT(t)
	// A cache of any processor takes a nanosecond, and no memory a microsecond where nothing else runs.
	g.Expect(measurement.ReadTime()).To(And(BeNumerically(">", 1), BeNumerically("<", 10_000)))
}
