// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Program bench measures this extension beside the in-tree one of Gardener in one run. `make bench` builds all that it needs
// and runs it; docs/development/performance.md says what is measured, and how.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/report"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/scenario"
)

// flags are what a user sets.
type flags struct {
	scenarios      []string
	quick, keep    bool
	n, rounds      int
	capped, shoots int
	programs       string
	out, docs      string
}

func main() {
	ctrl.SetLogger(logr.Discard())
	// A second signal ends it at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	f := &flags{}
	var names, lines []string
	for _, s := range scenario.All() {
		names = append(names, s.Name)
		lines = append(lines, fmt.Sprintf("  %-10s %s", s.Name, s.Short))
	}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this extension beside the in-tree one of Gardener",
		Long: "bench starts an etcd and a kube-apiserver of its own, and in them the programs, one after the other: ours, and the\n" +
			"in-tree one with and without its limit of requests. It prints a table, and writes result.json, requests.json and,\n" +
			"with --docs, a page with plots. It needs root, as the in-tree extension's name server has a fixed name and port.\n\nScenarios:\n" + strings.Join(lines, "\n"),
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, f) },
	}
	set := cmd.Flags()
	set.StringSliceVar(&f.scenarios, "scenario", names, "scenarios to run")
	set.BoolVar(&f.quick, "quick", false, "fewer objects and rounds, in 20 minutes")
	set.IntVar(&f.n, "n", 0, "objects of class garden, of type mock and of an instance that restarts; 0 for the scenarios' own numbers")
	set.IntVar(&f.rounds, "rounds", 0, "how often the programs take turns; default 3, or 1 with --quick")
	set.IntVar(&f.capped, "capped", -1, "objects for the in-tree extension with its limit, 0 for none; default 100, or 20 with --quick")
	set.IntVar(&f.shoots, "shoots", 0, "shoots at a time; default 50")
	set.BoolVar(&f.keep, "keep", false, "leave logs and configuration behind")
	set.StringVar(&f.programs, "programs", "../../bin/bench", "folder with the programs")
	set.StringVar(&f.out, "out", "../../bin/bench", "folder for result.json and requests.json")
	set.StringVar(&f.docs, "docs", "", "folder for the page with plots; none if empty")
	return cmd
}

func run(cmd *cobra.Command, f *flags) error {
	var chosen []scenario.Scenario
	for _, s := range scenario.All() {
		if slices.Contains(f.scenarios, s.Name) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) != len(f.scenarios) {
		return fmt.Errorf("there is no such scenario among %s: see --help", strings.Join(f.scenarios, ", "))
	}
	programs, err := filepath.Abs(f.programs)
	if err != nil {
		return err
	}

	begin := time.Now()
	opts := f.options(programs)
	opts.Say = func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%6.1f  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	bench := &scenario.Bench{Options: opts, Result: &report.Result{}}
	problems := bench.Run(cmd.Context(), chosen)

	rows := bench.Result.Rows()
	errs := []error{problems, report.Table(cmd.OutOrStdout(), rows), bench.Result.WriteJSON(f.out)}
	if f.docs != "" {
		// Also after an interruption, when what was measured is written.
		errs = append(errs, report.WritePage(f.docs, about(context.WithoutCancel(cmd.Context())), rows))
	}
	return errors.Join(errs...)
}

// options are the numbers of a run.
func (f *flags) options(programs string) scenario.Options {
	opts := scenario.Options{
		Sizes: []int{100, 1000}, OursSizes: []int{10000}, CappedSize: 100, Shoots: 50, Rounds: 3,
		Objects: 1000, Idle: time.Minute, Secrets: 5000, ConfigMaps: 2000, MockSizes: []int{1000, 10000, 30000}, Nodes: 1000,
	}
	if f.quick {
		opts.OursSizes, opts.CappedSize, opts.Rounds, opts.Idle, opts.MockSizes = nil, 20, 1, 20*time.Second, []int{1000}
	}
	if f.n > 0 {
		opts.Sizes, opts.OursSizes, opts.MockSizes, opts.Objects, opts.Nodes = []int{f.n}, nil, []int{f.n}, f.n, f.n
	}
	if f.rounds > 0 {
		opts.Rounds = f.rounds
	}
	if f.capped >= 0 {
		opts.CappedSize = f.capped
	}
	if f.shoots > 0 {
		opts.Shoots = f.shoots
	}
	opts.Programs, opts.Keep = programs, f.keep
	return opts
}

// about says where and how it was measured.
func about(ctx context.Context) report.About {
	output := func(name string, args ...string) string {
		out, err := exec.CommandContext(ctx, name, args...).Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	model := "unknown CPU"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return report.About{
		Machine:  fmt.Sprintf("%d CPUs of %s, Linux %s", runtime.NumCPU(), model, minor(output("uname", "-r"))),
		Versions: fmt.Sprintf("this extension at %s, gardener v1.149.3, Kubernetes v1.36.3, %s", output("git", "describe", "--always", "--dirty"), runtime.Version()),
		Command:  strings.Join(append([]string{"bench"}, withoutFolders(os.Args[1:])...), " "),
		Date:     time.Now().UTC().Format(time.DateOnly),
	}
}

// minor returns the first two numbers of a version.
func minor(version string) string {
	return strings.Join(strings.SplitN(version, ".", 3)[:min(2, strings.Count(version, ".")+1)], ".")
}

// withoutFolders returns arguments without those that only name folders, which say nothing about a run.
func withoutFolders(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		name, _, hasValue := strings.Cut(args[i], "=")
		if !slices.Contains([]string{"--programs", "--out", "--docs"}, name) {
			out = append(out, args[i])
		} else if !hasValue {
			i++
		}
	}
	return out
}
