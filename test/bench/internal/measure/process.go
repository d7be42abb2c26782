// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ticksPerSecond is USER_HZ, which is 100 on all of Linux' platforms that Go knows.
const ticksPerSecond = 100

// sampleInterval is how often the memory is looked at for its peak.
const sampleInterval = 100 * time.Millisecond

// Memory of a process in bytes.
type Memory struct {
	// Anonymous is what the process itself has made: RssAnon of proc(5). Total RSS also has pages of the program's file,
	// whose number depends on how the file came into the page cache.
	Anonymous int64
	// Peak is the highest total RSS since the start: VmHWM of proc(5).
	Peak int64
}

// CPU returns how long a process has been running on CPUs, in user and kernel mode, in steps of 10 ms.
func CPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(proc(pid, "stat"))
	if err != nil {
		return 0, err
	}
	return parseCPU(stat)
}

func parseCPU(stat []byte) (time.Duration, error) {
	// The second field is the name in parentheses, which may have blanks and parentheses itself.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat has too few fields: %q", stat)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading /proc/PID/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// MemoryOf returns the memory of a process.
func MemoryOf(pid int) (Memory, error) {
	status, err := os.ReadFile(proc(pid, "status"))
	if err != nil {
		return Memory{}, err
	}
	return parseMemory(status)
}

func parseMemory(status []byte) (Memory, error) {
	var (
		out    Memory
		wanted = map[string]*int64{"RssAnon:": &out.Anonymous, "VmHWM:": &out.Peak}
	)
	for scanner := bufio.NewScanner(bytes.NewReader(status)); scanner.Scan(); {
		fields := strings.Fields(scanner.Text())
		if len(fields) != 3 || wanted[fields[0]] == nil {
			continue
		}
		kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("reading /proc/PID/status: %w", err)
		}
		*wanted[fields[0]] = kilobytes << 10
		delete(wanted, fields[0])
	}
	if len(wanted) > 0 {
		return Memory{}, errors.New("/proc/PID/status lacks RssAnon or VmHWM: the process has ended, or the kernel is too old")
	}
	return out, nil
}

func proc(pid int, file string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), file)
}

// Sampler knows the most anonymous memory that a process had.
type Sampler struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	peak int64
}

// Sample begins to look at a process, until Stop.
func Sample(pid int) *Sampler {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Sampler{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ticker := time.NewTicker(sampleInterval)
		defer ticker.Stop()
		for {
			if memory, err := MemoryOf(pid); err == nil {
				s.mu.Lock()
				s.peak = max(s.peak, memory.Anonymous)
				s.mu.Unlock()
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return s
}

// Peak returns the most that was seen since the last call.
func (s *Sampler) Peak() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	peak := s.peak
	s.peak = 0
	return peak
}

// Stop ends it.
func (s *Sampler) Stop() {
	s.cancel()
	<-s.done
}
