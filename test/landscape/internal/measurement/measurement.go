// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package measurement holds the result of `make times`, and writes the page in docs about it.
package measurement

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/usage"
)

// Result is what one run of `make times` measured.
type Result struct {
	Machine Machine   `json:"machine"`
	Date    time.Time `json:"date"`
	Commit  string    `json:"commit"`
	// Values are durations, memory, idle CPU and sums of CPU time, in the order in which they were measured.
	Values []Value `json:"values"`
	// Phases are the milestones that end the phases of the first `up`, and Programs the CPU time in each.
	Phases   []string  `json:"phases"`
	Programs []Program `json:"programs"`
	// Total is the CPU time of the whole landscape per phase, as the kernel counted it, and Busy that of the whole machine.
	Total []usage.CPU `json:"total"`
	Busy  []usage.CPU `json:"busy"`
	// Idle is what the landscape took when all was healthy, by program.
	Idle []usage.Group `json:"idle"`
}

// Value is one row of the page.
type Value struct {
	Title string  `json:"title"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Machine is a machine on which a Result was measured.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory uint64 `json:"memory"`
	Kernel string `json:"kernel"`
	// ReadTime is what reading from memory takes where no cache has it, in nanoseconds.
	ReadTime float64 `json:"readTime"`
}

// Program is the CPU time of a program per phase.
type Program struct {
	Name      string      `json:"name"`
	Processes int         `json:"processes"`
	Phases    []usage.CPU `json:"phases"`
	// Children is that of its ended children, in seconds, which are in other rows, too.
	Children float64 `json:"children"`
}

func (p Program) sum() usage.CPU { return sum(p.Phases) }

func sum(phases []usage.CPU) (all usage.CPU) {
	for _, phase := range phases {
		all = all.Add(phase)
	}
	return all
}

// Add adds a row, or replaces the one with its title.
func (r *Result) Add(title string, value float64, unit string) {
	r.Values = slices.DeleteFunc(r.Values, func(v Value) bool { return v.Title == title })
	r.Values = append(r.Values, Value{title, value, unit})
}

// AddPhase adds the phase that ends with a milestone.
func (r *Result) AddPhase(milestone string, reading usage.Reading) {
	r.Phases = append(r.Phases, milestone)
	r.Total = append(r.Total, reading.Total)
	r.Busy = append(r.Busy, reading.Machine)
	for name, read := range reading.Programs {
		i := slices.IndexFunc(r.Programs, func(p Program) bool { return p.Name == name })
		if i < 0 {
			i = len(r.Programs)
			r.Programs = append(r.Programs, Program{Name: name})
		}
		p := &r.Programs[i]
		p.Processes += read.Processes
		p.Children += read.Children
		p.Phases = append(p.Phases, make([]usage.CPU, len(r.Phases)-1-len(p.Phases))...)
		p.Phases = append(p.Phases, read.CPU)
	}
	slices.SortFunc(r.Programs, func(a, b Program) int {
		return cmp.Or(cmp.Compare(b.sum().Sum(), a.sum().Sum()), cmp.Compare(a.Name, b.Name))
	})
}

// ThisMachine describes the machine. root is a mounted proc file system.
func ThisMachine(root string) (Machine, error) {
	fs, err := procfs.NewFS(root)
	if err != nil {
		return Machine{}, fmt.Errorf("describing the machine: %w", err)
	}
	cpus, errCPU := fs.CPUInfo()
	memory, errMemory := fs.Meminfo()
	kernel, errKernel := os.ReadFile(filepath.Join(root, "sys", "kernel", "osrelease"))
	if err := errors.Join(errCPU, errMemory, errKernel); err != nil {
		return Machine{}, fmt.Errorf("describing the machine: %w", err)
	}
	machine := Machine{Cores: len(cpus), Kernel: strings.TrimSpace(string(kernel)), Memory: ptr.Deref(memory.MemTotalBytes, 0)}
	if len(cpus) > 0 {
		machine.CPU = cpus[0].ModelName
	}
	return machine, nil
}

// ReadTime measures Machine.ReadTime. Times of a landscape follow it, and it differs by half between machines of the same name.
func ReadTime() float64 {
	// One cycle through all of 128 MiB, in random order (Sattolo).
	next := make([]uint32, 1<<25)
	for i := range next {
		next[i] = uint32(i) // #nosec G115 -- below 1<<25.
	}
	for i := len(next) - 1; i > 0; i-- {
		j := rand.IntN(i) // #nosec G404 -- no secret.
		next[i], next[j] = next[j], next[i]
	}
	const reads = 1 << 22
	begin, at := time.Now(), uint32(0)
	for range reads {
		at = next[at]
	}
	elapsed := time.Since(begin)
	runtime.KeepAlive(at)
	return float64(elapsed.Nanoseconds()) / reads
}

// Save writes a result to a file.
func Save(path string, result any) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755) // #nosec G301 -- nothing secret.
	if err == nil {
		err = layout.WriteJSON(path, result, 0o644)
	}
	if err != nil {
		return fmt.Errorf("keeping the times: %w", err)
	}
	return nil
}

// committed is times.json beside the page. Delete Before to compare with Now the next time.
type committed struct {
	Before *Result `json:"before,omitempty"`
	Now    *Result `json:"now"`
}

// WriteDocs writes times.md and times.json to a folder. The page compares the result with the one that times.json has as before,
// or else with the one that it has as now.
func (r *Result) WriteDocs(folder string) error {
	path := filepath.Join(folder, "times.json")
	var both committed
	if err := layout.ReadJSON(path, &both); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading the times of before: %w", err)
	}
	if both.Before == nil {
		both.Before = both.Now
	}
	both.Now = r
	page := filepath.Join(folder, "times.md")
	if err := layout.WriteFile(page, []byte(both.page()), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", page, err)
	}
	return Save(path, both)
}

const head = `---
title: Times
description: Times, memory and CPU time of the landscape, measured
---

# Times

` + "`sudo make times DOCS=1`" + ` writes this page, from a run with programs and images that were built before. *Before* is an earlier run.

`

const cpuHead = `
## CPU time of make up

Seconds until each milestone since the one before, user and system. The sums are the kernel's, by cgroup. Processes that ended too soon to be
seen are the difference. *Children*: ended ones that a program waited for, which other rows contain. *Node*: not in a pod.

`

const idleHead = `
## Idle

Memory (PSS) and CPUs with both Shoots, over a minute.

`

// rows is how many programs a table of the page names.
const rows = 25

// page renders Markdown. Cells have no padding.
func (c committed) page() string {
	var out strings.Builder
	row := func(cells ...string) {
		for i := range cells {
			cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
		}
		_, _ = fmt.Fprintf(&out, "|%s|\n", strings.Join(cells, "|"))
	}
	table := func(cells ...string) {
		row(cells...)
		row(strings.Split(strings.Repeat("- ", len(cells)-1)+"-", " ")...)
	}
	before, now := c.Before, c.Now
	if before == nil {
		before = &Result{}
	}

	out.WriteString(head)
	table("", "before", "now")
	for _, machine := range []struct {
		title string
		value func(*Result) string
	}{
		{"CPU", func(r *Result) string { return fmt.Sprintf("%d x %s", r.Machine.Cores, r.Machine.CPU) }},
		{"memory", func(r *Result) string { return fmt.Sprintf("%.0f GiB", float64(r.Machine.Memory)/(1<<30)) }},
		{"random read of memory, ns", func(r *Result) string { return fmt.Sprintf("%.0f", r.Machine.ReadTime) }},
		{"kernel", func(r *Result) string { return r.Machine.Kernel }},
		{"date", func(r *Result) string { return r.Date.Format(time.DateOnly) }},
		{"commit", func(r *Result) string { return r.Commit }},
	} {
		was := ""
		if c.Before != nil {
			was = machine.value(before)
		}
		row(machine.title, was, machine.value(now))
	}
	for _, v := range now.Values {
		was := ""
		if i := slices.IndexFunc(before.Values, func(w Value) bool { return w.Title == v.Title }); i >= 0 {
			was = number(before.Values[i].Value)
		}
		row(v.Title+", "+v.Unit, was, number(v.Value))
	}

	out.WriteString(cpuHead)
	table(slices.Concat([]string{"program", "processes", "before", "now", "user", "system"}, now.Phases, []string{"children"})...)
	cpu := func(name string, was float64, p Program) {
		count, sum := "", p.sum()
		if p.Processes > 0 {
			count = fmt.Sprint(p.Processes)
		}
		cells := []string{name, count, number(was), number(sum.Sum()), number(sum.User), number(sum.System)}
		for i := range now.Phases {
			phase := usage.CPU{}
			if i < len(p.Phases) {
				phase = p.Phases[i]
			}
			cells = append(cells, number(phase.Sum()))
		}
		row(append(cells, number(p.Children))...)
	}
	for _, p := range now.Programs[:min(rows, len(now.Programs))] {
		var was Program
		if i := slices.IndexFunc(before.Programs, func(w Program) bool { return w.Name == p.Name }); i >= 0 {
			was = before.Programs[i]
		}
		cpu(p.Name, was.sum().Sum(), p)
	}
	cpu("**the landscape**", sum(before.Total).Sum(), Program{Phases: now.Total})
	cpu("**the machine** (`/proc/stat`)", sum(before.Busy).Sum(), Program{Phases: now.Busy})

	out.WriteString(idleHead)
	table("program", "MB before", "now", "CPUs before", "now")
	// The first are those with most of either.
	var memory, cores float64
	for _, g := range now.Idle {
		memory, cores = memory+float64(g.Memory), cores+g.Cores
	}
	share := func(g usage.Group) float64 { return float64(g.Memory)/max(1, memory) + g.Cores/max(0.01, cores) }
	largest := slices.SortedStableFunc(slices.Values(now.Idle), func(a, b usage.Group) int { return cmp.Compare(share(b), share(a)) })
	for _, g := range largest[:min(rows, len(largest))] {
		var was usage.Group
		if i := slices.IndexFunc(before.Idle, func(w usage.Group) bool { return w.Name == g.Name }); i >= 0 {
			was = before.Idle[i]
		}
		row(g.Name, number(float64(was.Memory)/1e6), number(float64(g.Memory)/1e6), number(was.Cores), number(g.Cores))
	}
	return out.String()
}

// number has three digits at least where that helps; nothing is an empty cell.
func number(value float64) string {
	switch {
	case value < 0.005:
		return ""
	case value < 10:
		return fmt.Sprintf("%.2f", value)
	case value < 100:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.0f", value)
}
