// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/procfs"
)

// Rows of a Reading for processes that ended before a Recorder saw them, or after it saw them last.
const (
	EndedInPods = "processes that ended, pods"
	EndedOnNode = "processes that ended, node"
)

// userHZ is the unit of CPU time in /proc and in cgroup v1, per second. Linux has it fixed for programs.
const userHZ = 100

// CPU is time on CPUs, in seconds.
type CPU struct {
	User   float64 `json:"user"`
	System float64 `json:"system"`
}

// Add returns the sum of both.
func (c CPU) Add(other CPU) CPU { return CPU{c.User + other.User, c.System + other.System} }

// Sub returns what c has more than the other, and never less than nothing: the kernel rounds.
func (c CPU) Sub(other CPU) CPU {
	return CPU{max(0, c.User-other.User), max(0, c.System-other.System)}
}

// Sum is user and system time together.
func (c CPU) Sum() float64 { return c.User + c.System }

// Program is what all processes of one program took.
type Program struct {
	CPU
	// Processes is the number of processes that were seen.
	Processes int
	// Children is the CPU time, in seconds, of ended children that these processes waited for. It is in other rows, too.
	Children float64
}

// Reading is CPU time since a Recorder was made.
type Reading struct {
	// Programs has processes by the name of their program, and the two rows for processes that ended.
	Programs map[string]Program
	// Total is what the kernel counted for the cgroups, the sum of all Programs.
	Total CPU
	// Machine is what the kernel counted for the whole machine.
	Machine CPU
}

// Sub returns what was taken since an earlier Reading of the same Recorder.
func (r Reading) Sub(earlier Reading) Reading {
	since := Reading{Programs: map[string]Program{}, Total: r.Total.Sub(earlier.Total), Machine: r.Machine.Sub(earlier.Machine)}
	for name, p := range r.Programs {
		was := earlier.Programs[name]
		since.Programs[name] = Program{p.Sub(was.CPU), p.Processes - was.Processes, p.Children - was.Children}
	}
	return since
}

// Recorder sums up CPU time by program. It has to look often, as only the CPU time of a process that runs is known by name.
// The totals come from the cgroups, which count processes of any age, so that nothing is missed or counted twice.
type Recorder struct {
	proc procfs.FS
	// pods and node are the folders of the cgroups of pods and of all other processes.
	pods, node string

	mu       sync.Mutex
	running  map[int]recorded
	programs map[string]Program
	// began are the counters of pods, node and machine when the Recorder was made.
	began [3]CPU
}

// recorded is a process at the last look.
type recorded struct {
	start   uint64
	command string
	// program is empty for a process of others.
	program  string
	cpu      CPU
	children float64
}

// NewRecorder begins to record the processes in two cgroups, given by their folders: the one of pods, and the one of the other
// processes, which is the node. root is a mounted proc file system.
func NewRecorder(root, pods, node string) (*Recorder, error) {
	fs, err := procfs.NewFS(root)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", root, err)
	}
	r := &Recorder{proc: fs, pods: pods, node: node, programs: map[string]Program{}}
	if r.began, err = r.counters(); err == nil {
		err = r.look()
	}
	// What ran before counts from now.
	for name, p := range r.programs {
		r.programs[name] = Program{Processes: p.Processes}
	}
	return r, err
}

// Look reads all processes. It may be called at any time, from any goroutine.
func (r *Recorder) Look() (Reading, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.look(); err != nil {
		return Reading{}, err
	}
	now, err := r.counters()
	if err != nil {
		return Reading{}, err
	}
	for i := range now {
		now[i] = now[i].Sub(r.began[i])
	}
	reading := Reading{Programs: map[string]Program{}, Total: now[0].Add(now[1]), Machine: now[2]}
	ended := [2]CPU{now[0], now[1]}
	for name, p := range r.programs {
		reading.Programs[name] = p
		group := 0
		if strings.HasSuffix(name, onNode) {
			group = 1
		}
		ended[group] = ended[group].Sub(p.CPU)
	}
	reading.Programs[EndedInPods], reading.Programs[EndedOnNode] = Program{CPU: ended[0]}, Program{CPU: ended[1]}
	return reading, nil
}

func (r *Recorder) look() error {
	all, err := r.proc.AllProcs()
	if err != nil {
		return fmt.Errorf("reading processes: %w", err)
	}
	running := map[int]recorded{}
	for _, p := range all {
		stat, err := p.Stat()
		if err != nil {
			// It has ended.
			continue
		}
		was := r.running[p.PID]
		now := recorded{
			start: stat.Starttime, command: stat.Comm, program: was.program, children: float64(stat.CUTime+stat.CSTime) / userHZ,
			cpu: CPU{float64(stat.UTime) / userHZ, float64(stat.STime) / userHZ},
		}
		if was.start != now.start {
			was = recorded{}
		}
		// A process that runs another program has another cgroup, too, if it is the first of a container.
		isNew := was.command != now.command
		if isNew {
			now.program = r.program(p, stat.Comm)
		}
		running[p.PID] = now
		if now.program == "" {
			continue
		}
		sum := r.programs[now.program]
		if isNew {
			sum.Processes++
		}
		sum.CPU = sum.Add(now.cpu.Sub(was.cpu))
		sum.Children += max(0, now.children-was.children)
		r.programs[now.program] = sum
	}
	r.running = running
	return nil
}

// program returns the name of a process of the landscape, and "" for one of others.
func (r *Recorder) program(p procfs.Proc, command string) string {
	cgroups, err := p.Cgroups()
	if err != nil {
		return ""
	}
	in := func(folder string) bool {
		return slices.ContainsFunc(cgroups, func(c procfs.Cgroup) bool {
			return strings.Contains(c.Path+"/", "/"+filepath.Base(folder)+"/")
		})
	}
	switch {
	case in(r.pods):
		return programOf(p, command, true)
	case in(r.node):
		return programOf(p, command, false)
	}
	return ""
}

// onNode ends the names of programs that do not run in pods.
const onNode = ", node"

var subcommand = regexp.MustCompile(`^[a-z][a-z-]*$`)

// programOf names the program of a process, with its subcommand: the kernel keeps only 15 characters of the command.
func programOf(p procfs.Proc, command string, inPod bool) string {
	args, err := p.CmdLine()
	if err == nil && len(args) > 0 {
		if name := filepath.Base(args[0]); strings.HasPrefix(name, command) {
			command = name
		}
		if len(args) > 1 && subcommand.MatchString(args[1]) {
			command += " " + args[1]
		}
	}
	if !inPod {
		command += onNode
	}
	return command
}

// counters reads what the kernel has counted for pods, node and machine.
func (r *Recorder) counters() ([3]CPU, error) {
	pods, errPods := cgroupCPU(r.pods)
	node, errNode := cgroupCPU(r.node)
	stat, err := r.proc.Stat()
	total := stat.CPUTotal
	machine := CPU{total.User + total.Nice, total.System + total.IRQ + total.SoftIRQ}
	return [3]CPU{pods, node, machine}, errors.Join(errPods, errNode, err)
}

// cgroupCPU reads the CPU time of a cgroup with all below it, also of those that are gone. One that is not there has none yet.
func cgroupCPU(folder string) (CPU, error) {
	name, unit, suffix := "cpu.stat", 1e6, "_usec"
	if _, err := os.Stat(filepath.Join(folder, "cpuacct.stat")); err == nil {
		name, unit, suffix = "cpuacct.stat", userHZ, ""
	}
	content, err := os.ReadFile(filepath.Join(folder, name)) // #nosec G304 -- a kernel file.
	if errors.Is(err, os.ErrNotExist) {
		return CPU{}, nil
	}
	if err != nil {
		return CPU{}, fmt.Errorf("reading the CPU time of a cgroup: %w", err)
	}
	var cpu CPU
	for line := range strings.Lines(string(content)) {
		var key string
		var value float64
		if _, err := fmt.Sscan(line, &key, &value); err != nil {
			return CPU{}, fmt.Errorf("reading the CPU time of cgroup %s: %q: %w", folder, line, err)
		}
		switch key {
		case "user" + suffix:
			cpu.User = value / unit
		case "system" + suffix:
			cpu.System = value / unit
		}
	}
	return cpu, nil
}
