// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/binaries"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/preflight"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/usage"
)

// The needs in bytes, by the steps that are executed: memory for the cluster alone, for a Garden in it, and for the Seed and Shoots
// as well; disk for the Go build and module caches of a first build, and of one with full caches, for what is built, for what runs, and
// what more of that there may be.
const (
	memoryNode   = 1_800_000_000
	memoryGarden = 4_500_000_000
	memoryAll    = 7_000_000_000

	diskCaches  = 16_000_000_000
	diskRebuild = 4_000_000_000
	diskBuilt   = 5_000_000_000
	diskState   = 3_000_000_000
	diskMore    = 500_000_000
	diskTmp     = 1_000_000_000
)

// Doctor prints how the machine fits a landscape up to the step, and changes nothing. The error says how many problems there are.
func (l Landscape) Doctor(ctx context.Context, until string) error {
	steps, err := step.Until(l.Steps(), until)
	if err != nil {
		return err
	}
	checks, err := l.checks(ctx, steps[len(steps)-1].Name)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(l.Out, 0, 4, 2, ' ', 0)
	for _, check := range checks {
		mark := good
		if len(check.Problems) > 0 {
			mark = bad
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", mark, check.Name, check.Found)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return refuse(checks)
}

// preflight is the first step. It leaves alone a machine that can't take a landscape.
func (l Landscape) preflight(ctx context.Context, progress step.Progress) (string, error) {
	checks, err := l.checks(ctx, l.until)
	if err != nil {
		return "", err
	}
	if before, rebooted := l.rebooted(); rebooted {
		progress("the machine was booted since %s: everything is started anew", before)
	}
	return fmt.Sprintf("%d checks", len(checks)), refuse(checks)
}

// refuse lists all problems, each with its remedy.
func refuse(checks []preflight.Check) error {
	problems := preflight.Problems(checks)
	if len(problems) == 0 {
		return nil
	}
	var lines strings.Builder
	for _, problem := range problems {
		fmt.Fprintf(&lines, "\n- %s\n  what to do: %s", problem.Cause, problem.Remedy)
	}
	return fmt.Errorf("this machine can't take the landscape as it is:%s", lines.String())
}

func (l Landscape) checks(ctx context.Context, until string) ([]preflight.Check, error) {
	needs, err := l.needs(until)
	if err != nil {
		return nil, err
	}
	var own []int
	for _, component := range node.Components(l.Layout) {
		record, running, err := l.Processes().Find(component.Name)
		if err != nil {
			return nil, err
		}
		if running {
			own = append(own, record.PID)
		} else {
			needs.Sockets = append(needs.Sockets, component.Sockets...)
		}
	}
	machine, err := preflight.Read(ctx, needs, own, l.present())
	if err != nil {
		return nil, err
	}
	// What the landscape has already is there for it.
	processes, err := usage.Read(usage.Root, l.Layout.State())
	if err != nil {
		return nil, err
	}
	machine.Available += usage.Memory(processes)
	return preflight.Judge(machine, needs), nil
}

// present reports whether the landscape's own devices and rules may be on the machine.
func (l Landscape) present() bool {
	_, rebooted := l.rebooted()
	return exists(l.snapshotPath()) && !rebooted
}

// needs are those of the steps up to and including the one named until.
func (l Landscape) needs(until string) (preflight.Needs, error) {
	names := step.Names(l.Steps())
	upTo := slices.Index(names, until)
	needs := preflight.Needs{Go: !l.starts, Network: l.Layout.Network, Memory: memoryAll}
	switch {
	case upTo < slices.Index(names, "deploy"):
		needs.Memory = memoryNode
	case upTo <= slices.Index(names, "garden"):
		needs.Memory = memoryGarden
	}
	state := preflight.Disk{Folder: l.Layout.State(), Purpose: "what runs", Need: diskState}
	if l.present() {
		state.Need = diskMore
	}
	needs.Disks = []preflight.Disk{state, {Folder: os.TempDir(), Purpose: "temporary files", Need: diskTmp}}
	if !l.starts && !l.built() {
		folders := l.goCaches()
		needs.Disks = append(needs.Disks,
			preflight.Disk{Folder: l.Layout.Binary(""), Purpose: "programs and images", Need: diskBuilt},
			preflight.Disk{Folder: folders[0], Purpose: "Go's caches", Need: max(diskCaches-min(size(folders...), diskCaches), diskRebuild)})
	}
	return needs, nil
}

// built reports whether all programs have been built before, if not in this version.
func (l Landscape) built() bool {
	return !slices.ContainsFunc(l.programs(), func(p binaries.Program) bool { return !exists(l.Layout.Binary(p.Name)) })
}

// goCaches returns the folders of the Go build cache and the module cache.
func (l Landscape) goCaches() []string {
	cmd := exec.Command("go", "env", "GOCACHE", "GOMODCACHE")
	cmd.Dir = "/"
	out, err := l.Invoker.Run(cmd).Output()
	if folders := strings.Split(strings.TrimSpace(string(out)), "\n"); err == nil && len(folders) == 2 {
		return folders
	}
	return []string{l.Layout.Binary("")}
}

// size returns the bytes of the files in the folders. What cannot be read does not count.
func size(folders ...string) uint64 {
	var sum uint64
	for _, folder := range folders {
		_ = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return nil
			}
			if info, err := entry.Info(); err == nil {
				sum += uint64(info.Size()) // #nosec G115 -- a file's size is not negative.
			}
			return nil
		})
	}
	return sum
}
