// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package measurement

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/usage"
)

// Scale is what one run of `make scale` measured.
type Scale struct {
	Machine Machine       `json:"machine"`
	Date    time.Time     `json:"date"`
	Commit  string        `json:"commit"`
	Shoots  int           `json:"shoots"`
	Nodes   int           `json:"nodes"`
	Phases  []ScalePhase  `json:"phases"`
	Samples []ScaleSample `json:"samples"`
}

// ScalePhase is one thing done to all Shoots at once.
type ScalePhase struct {
	Title string `json:"title"`
	// Seconds lasted all of it, and Shoots each Shoot, in order.
	Seconds float64   `json:"seconds"`
	Shoots  []float64 `json:"shoots"`
	// Requests are those of a program, or to an API server.
	Requests map[string]float64 `json:"requests"`
	// Programs have the memory at the end, and the CPUs during the phase.
	Programs []usage.Group `json:"programs"`
}

func (p ScalePhase) memory() (sum float64) {
	for _, g := range p.Programs {
		sum += float64(g.Memory)
	}
	return sum
}

func (p ScalePhase) cpu() (sum float64) {
	for _, g := range p.Programs {
		sum += g.Cores
	}
	return sum * p.Seconds
}

// ScaleSample is a moment of the run.
type ScaleSample struct {
	Seconds float64 `json:"seconds"`
	// Shoots are those that are done in the phase; while they are deleted, those that are left.
	Shoots int `json:"shoots"`
	// Memory is what all of the machine has in use, in bytes.
	Memory uint64 `json:"memory"`
}

// MemoryInUse is what all processes of the machine have in use, in bytes. root is a mounted proc file system.
func MemoryInUse(root string) (uint64, error) {
	fs, err := procfs.NewFS(root)
	if err != nil {
		return 0, err
	}
	memory, err := fs.Meminfo()
	if err != nil {
		return 0, err
	}
	if memory.MemTotalBytes == nil || memory.MemAvailableBytes == nil {
		return 0, errors.New("the kernel does not say how much memory is available")
	}
	return *memory.MemTotalBytes - *memory.MemAvailableBytes, nil
}

// Table is the result in Markdown.
func (s *Scale) Table() string {
	var out strings.Builder
	row := func(title string, value func(ScalePhase) string) {
		fmt.Fprintf(&out, "|%s|", title)
		for _, p := range s.Phases {
			out.WriteString(value(p) + "|")
		}
		out.WriteByte('\n')
	}
	row("", func(p ScalePhase) string { return p.Title })
	row("-", func(ScalePhase) string { return "-" })
	row("seconds until all are done", func(p ScalePhase) string { return number(p.Seconds) })
	row("seconds of a Shoot, median", func(p ScalePhase) string { return number(quantile(p.Shoots, 0.5)) })
	row("seconds of a Shoot, longest", func(p ScalePhase) string { return number(quantile(p.Shoots, 1)) })
	clients := map[string]bool{}
	cpu := map[string]float64{}
	for _, p := range s.Phases {
		for name := range p.Requests {
			clients[name] = true
		}
		for _, g := range p.Programs {
			cpu[g.Name] += g.Cores * p.Seconds
		}
	}
	for _, name := range slices.Sorted(maps.Keys(clients)) {
		row("requests, "+name, func(p ScalePhase) string { return number(p.Requests[name]) })
	}
	row("CPU seconds", func(p ScalePhase) string { return number(p.cpu()) })
	row("memory at the end, GB", func(p ScalePhase) string { return number(p.memory() / 1e9) })
	programs := slices.SortedFunc(maps.Keys(cpu), func(a, b string) int { return cmp.Or(cmp.Compare(cpu[b], cpu[a]), cmp.Compare(a, b)) })
	for _, name := range programs[:min(12, len(programs))] {
		row("CPU seconds; MB: "+name, func(p ScalePhase) string {
			i := slices.IndexFunc(p.Programs, func(g usage.Group) bool { return g.Name == name })
			if i < 0 {
				return ""
			}
			return number(p.Programs[i].Cores*p.Seconds) + "; " + number(float64(p.Programs[i].Memory)/1e6)
		})
	}
	return out.String()
}

// quantile returns a value of a sorted list, 0 of an empty one.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Ceil(q*float64(len(sorted))))-1]
}

const scaleHead = `---
title: Scale
description: Many Shoots with fake Nodes in the landscape, measured
---

# Scale

` + "`sudo make scale SHOOTS=%d NODES=%d DOCS=1`" + ` wrote this page, after ` + "`make up UNTIL=seed`" + `: Shoots of the [mock provider](../usage/mock.md) with
real control planes and fake Nodes: created, reconciled, given a label for their Nodes, and deleted, as many at a time as there are cores.

%d x %s, %.0f GiB, random read of memory %.0f ns, Linux %s; %s, commit %s. Memory is PSS. CPU time of processes that ended during a
phase is missing. Requests are without watches.

`

// WritePage writes a page with the table and its plots.
func (s *Scale) WritePage(path string) error {
	m := s.Machine
	page := fmt.Sprintf(scaleHead, s.Shoots, s.Nodes, m.Cores, m.CPU, float64(m.Memory)/(1<<30), m.ReadTime, m.Kernel, s.Date.Format(time.DateOnly), s.Commit) +
		s.Table() +
		s.plot("Shoots that are done, over minutes", func(x ScaleSample) float64 { return float64(x.Shoots) }) +
		s.plot("Memory in use on the machine, GB, over minutes", func(x ScaleSample) float64 { return float64(x.Memory) / 1e9 })
	if err := layout.WriteFile(path, []byte(page), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// points is how many samples a plot shows at most.
const points = 60

// plot draws the samples as a chart of Mermaid.
func (s *Scale) plot(title string, value func(ScaleSample) float64) string {
	if len(s.Samples) == 0 {
		return ""
	}
	var values []string
	for i := 0; i < len(s.Samples); i += len(s.Samples)/points + 1 {
		values = append(values, fmt.Sprintf("%.1f", value(s.Samples[i])))
	}
	first, last := s.Samples[0].Seconds/60, s.Samples[len(s.Samples)-1].Seconds/60
	return fmt.Sprintf("\n```mermaid\nxychart-beta\n  title %q\n  x-axis %.1f --> %.1f\n  line [%s]\n```\n", title, first, max(last, first+0.1), strings.Join(values, ", "))
}
