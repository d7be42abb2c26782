// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package usage measures what a landscape takes of its machine: the memory and CPU of its processes and of its pods. It
// reads /proc, because the cgroups' own numbers count the page cache too, which is not needed but merely left.
package usage

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/host"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/process"
)

// Root is where the kernel tells about processes.
const Root = procfs.DefaultMountPoint

// Process is one process of the landscape.
type Process struct {
	PID int
	// Pod is the UID of its pod; empty for one on the machine itself. What runs in a pod that is a machine belongs to that.
	Pod string
	// Command is the program's name, of at most 15 characters.
	Command string
	// Program is the name that a Recorder gives it.
	Program string
	// Memory is its share of the memory in RAM, in bytes: a page that n processes have counts as 1/n of a page in each.
	Memory uint64
	// CPU is the time it has run.
	CPU time.Duration
	// start tells it from a later process of the same PID.
	start uint64
}

// podInCgroup finds the UID in the path of a cgroup below the landscape's, as kubelet writes it for either of its cgroup drivers: the first,
// as the pods in a machine are below that of the machine.
var podInCgroup = regexp.MustCompile(`/` + host.Cgroup + `/(?:.*?/)?(?:kubepods[^/]*-)?pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})`)

// Read returns the processes of all pods, and those with a path below the folder state in their command line: the ones that
// the landscape started on the machine itself. What ends meanwhile is left out. root is a mounted proc file system.
func Read(root, state string) ([]Process, error) {
	fs, err := procfs.NewFS(root)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", root, err)
	}
	all, err := fs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", root, err)
	}
	var found []Process
	for _, p := range all {
		pod := podOf(p)
		if pod == "" && !mentions(p, state) {
			continue
		}
		stat, err := p.Stat()
		if err != nil {
			continue
		}
		process := Process{
			PID: p.PID, Pod: pod, Command: stat.Comm, Program: programOf(p, stat.Comm, pod != ""), Memory: uint64(max(stat.ResidentMemory(), 0)), start: stat.Starttime,
			CPU: time.Duration(stat.CPUTime() * float64(time.Second)),
		}
		if rollup, err := p.ProcSMapsRollup(); err == nil {
			process.Memory = rollup.Pss
		}
		found = append(found, process)
	}
	return found, nil
}

func podOf(p procfs.Proc) string {
	cgroups, err := p.Cgroups()
	if err != nil {
		return ""
	}
	for _, cgroup := range cgroups {
		if match := podInCgroup.FindStringSubmatch(cgroup.Path); match != nil {
			return strings.ReplaceAll(match[1], "_", "-")
		}
	}
	return ""
}

func mentions(p procfs.Proc, state string) bool {
	args, err := p.CmdLine()
	return err == nil && process.NamesFolder(args, state)
}

// Memory is what all of them take together, in bytes.
func Memory(processes []Process) uint64 {
	var sum uint64
	for _, p := range processes {
		sum += p.Memory
	}
	return sum
}

// Group is what processes of one name take together.
type Group struct {
	Name string `json:"name"`
	// Memory is in bytes.
	Memory uint64 `json:"memory"`
	// Cores is how many CPUs were busy with them on average.
	Cores float64 `json:"cores"`
}

// Groups compares two readings that are elapsed apart and sums them up by name, the one with the most memory first. A process
// that is only in the second counts from its start.
func Groups(before, after []Process, elapsed time.Duration, name func(Process) string) []Group {
	earlier := map[int]Process{}
	for _, p := range before {
		earlier[p.PID] = p
	}
	byName := map[string]Group{}
	for _, p := range after {
		g := byName[name(p)]
		g.Name = name(p)
		g.Memory += p.Memory
		ran := p.CPU
		if was, known := earlier[p.PID]; known && was.start == p.start {
			ran -= was.CPU
		}
		if elapsed > 0 {
			g.Cores += ran.Seconds() / elapsed.Seconds()
		}
		byName[g.Name] = g
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.Name, b.Name))
	})
}
