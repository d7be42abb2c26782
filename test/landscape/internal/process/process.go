// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package process keeps the books about the landscape's child processes. They outlive the program that started them: each
// has a session of its own, a log file, and a record on disk of its pid and start time, so that a later `up`, `status` or
// `down` finds exactly that process again and never a stranger who was given the same pid.
package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

const pollInterval = 100 * time.Millisecond

// Spec is what to run.
type Spec struct {
	// Name is unique in the landscape; record and log are named after it.
	Name string
	// Command is the program's path and its arguments.
	Command []string
	// Env is added to the environment of the starting program.
	Env []string
	// Inputs are files the process reads at its start only: if one changes, the process is started anew.
	Inputs []string
	// Sockets are those on which it listens. Somebody else's process on one of them is never taken for this one.
	Sockets []Socket
	// Nice is how the process is preferred to others when CPU is short, -20 (most) to 19; 0 like any other.
	Nice int
}

// Record is what is kept on disk about a process.
type Record struct {
	Name    string    `json:"name"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Ticks is the kernel's start time of the process; together with PID it identifies a process until the next boot.
	Ticks uint64 `json:"ticks"`
	// Boot is the machine's boot id, as Ticks count from boot.
	Boot string `json:"boot"`
	// Digest is taken over command, environment and inputs.
	Digest string `json:"digest"`
}

// Keeper starts, finds and stops processes. RunDir has the records, LogDir the logs.
type Keeper struct {
	RunDir, LogDir string
}

// Ensure makes sure that the process runs as specified: it leaves a matching one alone, replaces one whose command or
// inputs changed, and starts one that is missing. It reports whether it started something.
func (k Keeper) Ensure(ctx context.Context, spec Spec) (bool, error) {
	digest, err := spec.digest()
	if err != nil {
		return false, err
	}
	record, running, err := k.Find(spec.Name)
	if err != nil {
		return false, err
	}
	if running {
		if record.Digest == digest {
			return false, nil
		}
		if err := k.Stop(ctx, spec.Name, 30*time.Second); err != nil {
			return false, err
		}
	}
	return true, k.start(spec, digest)
}

// listens reports an error unless the process has all of its sockets.
func listens(spec Spec, pid int) error {
	if len(spec.Sockets) == 0 {
		return nil
	}
	listeners, err := Listeners()
	if err != nil {
		return err
	}
	for _, socket := range spec.Sockets {
		if !slices.ContainsFunc(listeners, func(l Listener) bool { return l.Collides(socket) && slices.Contains(l.PIDs, pid) }) {
			return fmt.Errorf("it does not listen on %s yet", socket)
		}
	}
	return nil
}

func (k Keeper) start(spec Spec, digest string) error {
	for _, dir := range []string{k.RunDir, k.LogDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- holds nothing secret.
			return fmt.Errorf("starting %s: %w", spec.Name, err)
		}
	}
	// The log of the run before is what explains why a new one is needed.
	if err := os.Rename(k.LogPath(spec.Name), k.LogPath(spec.Name)+".old"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	log, err := os.OpenFile(k.LogPath(spec.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	defer func() { _ = log.Close() }()

	boot, err := BootID()
	if err = errors.Join(err, closeOnExec()); err != nil {
		return fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	// Not CommandContext: the process must outlive this program.
	cmd := exec.Command(spec.Command[0], spec.Command[1:]...) // #nosec G204 -- the landscape's own command lines.
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	pid := cmd.Process.Pid
	// Reaps the child if it dies while this program still runs.
	go func() { _ = cmd.Wait() }()

	stat, err := readStat(pid)
	if err != nil {
		return fmt.Errorf("starting %s: it ended at once: %w\n%s", spec.Name, err, k.Tail(spec.Name, 10))
	}
	if err = prefer(pid, spec.Nice); err == nil {
		record := Record{Name: spec.Name, PID: pid, Started: time.Now().UTC().Truncate(time.Second), Ticks: stat.Starttime, Boot: boot, Digest: digest}
		err = layout.WriteJSON(k.recordPath(spec.Name), record, 0o600)
	}
	if err != nil {
		// Without a record nobody would find it again.
		return errors.Join(fmt.Errorf("starting %s: %w", spec.Name, err), cmd.Process.Kill())
	}
	return nil
}

// prefer sets the nice value of a process that has just been started: of the process group, which has the threads that there are by now, from
// which others take it. Where the kernel shares the CPU between sessions first (sched_autogroup_enabled), it is the session's that counts,
// and each process of a Keeper is a session. Where that is not allowed, as in some containers, it goes on like any other.
func prefer(pid, nice int) error {
	if nice == 0 {
		return nil
	}
	err := syscall.Setpriority(syscall.PRIO_PGRP, pid, nice)
	if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("setting its nice value to %d: %w", nice, err)
	}
	err = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(nice)), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("setting the nice value of its session to %d: %w", nice, err)
	}
	return nil
}

// closeOnExec keeps a child from holding on to what this program was given besides its standard streams, such as a lock
// or the pipe of whoever called it: they would wait for as long as the landscape is up.
func closeOnExec() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// Find returns the record of a process and whether that very process runs. A name without record is not an error.
func (k Keeper) Find(name string) (Record, bool, error) {
	var record Record
	err := layout.ReadJSON(k.recordPath(name), &record)
	if errors.Is(err, os.ErrNotExist) {
		return Record{Name: name}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("reading the record of %s: %w; remove %s if the process is gone", name, err, k.recordPath(name))
	}
	boot, err := BootID()
	if err != nil {
		return Record{}, false, err
	}
	stat, err := readStat(record.PID)
	if err != nil || record.Boot != boot {
		return record, false, nil
	}
	return record, stat.Starttime == record.Ticks && stat.State != "Z" && stat.State != "X", nil
}

// Stop ends a process: SIGTERM, and SIGKILL once grace has passed. A process that does not run is not an error.
func (k Keeper) Stop(ctx context.Context, name string, grace time.Duration) error {
	record, running, err := k.Find(name)
	if err != nil {
		return err
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if !running {
			break
		}
		if err := syscall.Kill(record.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stopping %s (pid %d): %w", name, record.PID, err)
		}
		err = wait.PollUntilContextTimeout(ctx, pollInterval/2, grace, true, func(context.Context) (bool, error) {
			_, running, err = k.Find(name)
			return !running, err
		})
		if ctx.Err() != nil {
			return fmt.Errorf("stopping %s: %w", name, ctx.Err())
		}
		if err != nil && !wait.Interrupted(err) {
			return err
		}
	}
	if running {
		return fmt.Errorf("stopping %s: pid %d survived SIGKILL", name, record.PID)
	}
	if err := os.Remove(k.recordPath(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	return nil
}

// WaitReady waits until the process runs, check succeeds, and the process itself is who listens on its sockets. It gives up at
// the timeout, and at once when the process ends; the error then has the last lines of the log.
func (k Keeper) WaitReady(ctx context.Context, spec Spec, timeout time.Duration, check func(context.Context) error) error {
	var last error
	name := spec.Name
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		record, running, err := k.Find(name)
		if err != nil {
			return false, err
		}
		if !running {
			return false, errors.New("the process ended")
		}
		if last = check(ctx); last == nil {
			last = listens(spec, record.PID)
		}
		return last == nil, nil
	})
	if err == nil {
		return nil
	}
	if wait.Interrupted(err) && last != nil {
		err = fmt.Errorf("not ready after %s: %w", timeout, last)
	}
	return fmt.Errorf("%s: %w; last lines of %s:\n%s", name, err, k.LogPath(name), k.Tail(name, 10))
}

// Tail returns the last lines of a process's log, or "" if there are none.
func (k Keeper) Tail(name string, lines int) string {
	content, err := os.ReadFile(k.LogPath(name))
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// LogPath is where a process writes its log.
func (k Keeper) LogPath(name string) string { return filepath.Join(k.LogDir, name+".log") }

func (k Keeper) recordPath(name string) string { return filepath.Join(k.RunDir, name+".json") }

// digest changes with whatever would make a running process differ from one started now. The program itself counts by
// size and time only, as it may have 100 MB.
func (s Spec) digest() (string, error) {
	hash := sha256.New()
	program, err := os.Stat(s.Command[0])
	if err != nil {
		return "", fmt.Errorf("starting %s: %w", s.Name, err)
	}
	_, _ = fmt.Fprintf(hash, "%q %q %d %d %d\n", s.Command, s.Env, s.Nice, program.Size(), program.ModTime().UnixNano())
	for _, path := range s.Inputs {
		content, err := os.ReadFile(path) // #nosec G304 -- the landscape's own files.
		if err != nil {
			return "", fmt.Errorf("starting %s: %w", s.Name, err)
		}
		_, _ = fmt.Fprintf(hash, "%s %d\n", path, len(content))
		_, _ = hash.Write(content)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// readStat reads what the kernel tells about a process, its state and start time among it.
func readStat(pid int) (procfs.ProcStat, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return process.Stat()
}

// BootID returns an id that is new after each boot of the machine.
func BootID() (string, error) {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the machine's boot id: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// NamesFolder reports whether an argument names what is in a folder, by its path alone or after another word, as in "--config=PATH" and
// "unix://PATH".
func NamesFolder(args []string, folder string) bool {
	named := regexp.MustCompile(`(^|[=:,]|://)` + regexp.QuoteMeta(filepath.Clean(folder)+"/"))
	return slices.ContainsFunc(args, named.MatchString)
}
