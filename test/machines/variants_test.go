// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build machines

package machines_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/machines"
)

// TestMachines runs the variants that the environment variable VARIANT names, or all. With DOCS it writes the page in docs.
func TestMachines(t *testing.T) {
	g := NewWithT(t)
	g.Expect(os.Geteuid()).To(BeZero(), "mmdebstrap and mke2fs make disks with files of root: run it with sudo")
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := filepath.Abs("../..")
	g.Expect(err).NotTo(HaveOccurred())
	selected, err := machines.Select(machines.Variants(), os.Getenv("VARIANT"))
	g.Expect(err).NotTo(HaveOccurred())

	folder := filepath.Join(root, "bin", "machines")
	report := func(format string, args ...any) {
		_, _ = fmt.Printf("%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
	}
	store := machines.Store{Folder: folder, Report: report}
	runner := machines.Runner{Store: store, Report: report, Programs: filepath.Join(folder, "programs"), Logs: filepath.Join(folder, "logs")}
	for name, pkg := range map[string]string{"check": "./test/machines/check", "probe": "./test/probe/cmd"} {
		build := exec.CommandContext(ctx, "go", "build", "-C", root, "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(runner.Programs, name), pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
	}
	// Of these errors the message says it all, such as that the disk is full.
	if runner.Work, err = store.Work(ctx, root); err != nil {
		t.Fatal(err)
	}
	disk, err := store.Build(ctx, selected[0].Image)
	if err != nil {
		t.Fatal(err)
	}
	runner.Accelerator = machines.Accelerator(ctx, disk)
	report("machines run with %s", runner.Accelerator)
	commit, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty").Output()
	g.Expect(err).NotTo(HaveOccurred())

	results := filepath.Join(folder, "results.json")
	outcomes, err := machines.LoadOutcomes(results)
	g.Expect(err).NotTo(HaveOccurred())
	for _, variant := range selected {
		if ctx.Err() != nil {
			break
		}
		t.Run(variant.Name, func(t *testing.T) {
			report("=== %s: %s", variant.Name, variant.About)
			begin := time.Now()
			errs := runner.Run(ctx, variant)
			if ctx.Err() != nil {
				t.Fatal("interrupted")
			}
			outcome := machines.Outcome{
				Variant: variant.Name, Passed: len(errs) == 0, Seconds: time.Since(begin).Seconds(),
				Accelerator: runner.Accelerator, Commit: strings.TrimSpace(string(commit)),
			}
			for _, err := range errs {
				first, _, _ := strings.Cut(err.Error(), "\n")
				outcome.Failures = append(outcome.Failures, first)
				t.Error(err)
			}
			if !outcome.Passed {
				t.Log("see " + filepath.Join(runner.Logs, variant.Name))
			}
			outcomes[variant.Name] = outcome
			NewWithT(t).Expect(outcomes.Save(results)).To(Succeed())
		})
	}
	_, _ = fmt.Println()
	err = outcomes.Table(os.Stdout, selected)
	if os.Getenv("DOCS") != "" {
		path := filepath.Join(root, "docs", "development", "tested-machines.md")
		former, readErr := os.ReadFile(path)
		err = errors.Join(err, readErr, os.WriteFile(path, []byte(outcomes.Page(machines.Variants(), string(former))), 0o644)) // #nosec G306 -- a document.
	}
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(context.Cause(ctx)).NotTo(HaveOccurred())
}
