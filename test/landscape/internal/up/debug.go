// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// DebugAddress is where the debugger listens.
const DebugAddress = "127.0.0.1:2345"

// instancePrograms are the programs of the instances that can be debugged.
var instancePrograms = map[string]string{"garden": "operator-extension", "seed": "gardenlet-extension"}

// Debug deploys both instances so that a debugger may stop them, and attaches one to that of the garden or the seed until ctx ends.
func (l Landscape) Debug(ctx context.Context, instance string) error {
	if os.Geteuid() != 0 {
		return errors.New("a debugger of another user's process needs root: run sudo make debug")
	}
	step := map[string]string{"garden": "deploy", "seed": "seed"}[instance]
	if !l.came(step) {
		return fmt.Errorf("there is no instance of the %s yet; run make up first", instance)
	}
	if err := l.deployDebug(ctx); err != nil {
		return err
	}
	pid, err := instanceProcess("/proc", instancePrograms[instance])
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(l.Out, "connect with sudo bin/tools/dlv connect %s, or your editor (docs/development/inner-loop.md); ctrl-C detaches, and make up deploys the usual instances\n", DebugAddress)
	// #nosec G204 -- a tool of this repository.
	cmd := exec.CommandContext(ctx, filepath.Join(l.Layout.Root, "bin", "tools", "dlv"),
		"attach", strconv.Itoa(pid), "--headless", "--listen="+DebugAddress, "--accept-multiclient", "--continue")
	cmd.Stdout, cmd.Stderr = l.Out, os.Stderr
	// Killed, it would leave breakpoints in the instance.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("debugging process %d: %w", pid, err)
	}
	return nil
}

// deployDebug deploys both instances as they are built for a debugger, and waits until they run.
func (l Landscape) deployDebug(ctx context.Context) error {
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	l.debug = true
	if l.Gardener, err = l.lastGardener(); err != nil {
		return err
	}
	const remedy = "mend what is named above"
	err = step.Runner{Out: l.Out, Now: l.Now}.Run(ctx, []step.Step{
		{Name: "build", Title: "both instances are built for a debugger", Remedy: remedy, Execute: l.build},
		{Name: "deploy", Title: "Skaffold deployed them", Remedy: remedy, Execute: func(ctx context.Context, progress step.Progress) (string, error) {
			return l.deployChange(ctx, progress, change{module: "extension"})
		}},
		{Name: "serve", Title: "they serve", Remedy: remedy, Execute: l.serve},
	})
	return errors.Join(err, l.handOver())
}

// instanceProcess returns the youngest process of an instance that a debugger has symbols for: the one before it may still be ending.
func instanceProcess(proc, program string) (int, error) {
	filesystem, err := procfs.NewFS(proc)
	if err != nil {
		return 0, fmt.Errorf("looking for %s: %w", program, err)
	}
	processes, err := filesystem.AllProcs()
	if err != nil {
		return 0, fmt.Errorf("looking for %s: %w", program, err)
	}
	found, started := 0, uint64(0)
	for _, p := range processes {
		// Processes end meanwhile. Other commands of the program are sidecars.
		arguments, err := p.CmdLine()
		if err != nil || len(arguments) < 2 || arguments[0] != "/"+program || !strings.HasPrefix(arguments[1], "--config=") {
			continue
		}
		stat, err := p.Stat()
		if err != nil || !hasSymbols(filepath.Join(proc, strconv.Itoa(p.PID), "exe")) {
			continue
		}
		if stat.Starttime >= started {
			found, started = p.PID, stat.Starttime
		}
	}
	if found == 0 {
		return 0, fmt.Errorf("looking for %s: no process of it was built for a debugger; look at make status", program)
	}
	return found, nil
}

// hasSymbols reports whether a program has what a debugger needs.
func hasSymbols(path string) bool {
	file, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	return file.Section(".debug_info") != nil || file.Section(".zdebug_info") != nil
}
