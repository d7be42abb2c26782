// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Runner runs variants.
type Runner struct {
	Store       Store
	Work        string
	Accelerator string
	// Programs has the programs check and probe.
	Programs string
	// Logs keeps what machines printed if their variant failed.
	Logs   string
	Report func(format string, args ...any)
}

// Run runs one variant and returns what it did not find as expected. Each part of it is reported with the time it took.
func (r Runner) Run(ctx context.Context, v Variant) []error {
	logs := filepath.Join(r.Logs, v.Name)
	if err := errors.Join(os.RemoveAll(logs), os.MkdirAll(logs, 0o755)); err != nil { // #nosec G301 -- build output.
		return []error{err}
	}
	v.Up, v.Down = v.commands(r.Accelerator)
	run := &variantRun{Runner: r, Variant: v, logs: logs}
	run.execute(ctx)
	if err := context.Cause(ctx); err != nil {
		run.errs = append(run.errs, err)
	}
	if len(run.errs) == 0 {
		_ = os.RemoveAll(logs)
	}
	return run.errs
}

type variantRun struct {
	Runner
	Variant
	logs string
	vm   *VM
	errs []error
}

// phase does one part and reports how long it took. It returns whether to go on.
func (r *variantRun) phase(name string, do func() error) bool {
	begin := time.Now()
	err := do()
	r.Report("%-28s %6.1fs  %s", name, time.Since(begin).Seconds(), map[bool]string{true: "ok", false: "FAILED"}[err == nil])
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s: %w", name, err))
	}
	return err == nil
}

func (r *variantRun) execute(ctx context.Context) {
	var before State
	if !r.phase("boot", func() error { return r.boot(ctx) }) {
		return
	}
	defer r.vm.Stop()
	if !r.phase("prepare", func() error { return r.prepare(ctx) }) || !r.still(ctx, "still, before") {
		return
	}
	if !r.phase("state before", func() (err error) { before, err = r.state(ctx, "before"); return err }) {
		return
	}
	if r.Expect == Refuses {
		r.phase("refused", func() error { return r.refused(ctx) })
		r.phase("unchanged", func() error { return r.compare(ctx, before, "refused", nil) })
	} else {
		r.serve(ctx)
	}
	r.phase("down", func() error {
		_, err := r.command(ctx, "down", r.Down)
		return err
	})
	r.still(ctx, "still, after")
	r.phase("as it was", func() error { return r.compare(ctx, before, "after", r.Kept) })
}

// serve brings the landscape up and uses it.
func (r *variantRun) serve(ctx context.Context) {
	if r.Halfway != "" && !r.phase("power cut", func() error { return r.cutPower(ctx) }) {
		return
	}
	if !r.phase("up", func() error { _, err := r.command(ctx, "up", r.Up); return err }) {
		return
	}
	r.check(ctx)
	if r.Reboots {
		if !r.phase("reboot", func() error { return r.vm.Reboot(ctx, true) }) ||
			!r.phase("up again", func() error { _, err := r.command(ctx, "up-again", r.Up); return err }) {
			return
		}
		r.check(ctx)
	}
	if r.Accelerator == "kvm" && r.Up == "make up" {
		r.phase("examples", func() error { _, err := r.command(ctx, "examples", "make e2e LABELS=examples"); return err })
	}
	if r.Used != "" {
		r.phase("used", func() error { _, err := r.command(ctx, "used", r.Used); return err })
	}
	r.still(ctx, "still, with the landscape")
	if r.Meanwhile != "" && r.phase("meanwhile", func() error { _, err := r.vm.Output(ctx, "set -e\n"+r.Meanwhile); return err }) {
		r.check(ctx)
	}
}

func (r *variantRun) boot(ctx context.Context) error {
	disk, err := r.Store.Build(ctx, r.Image)
	if err != nil {
		return err
	}
	key, err := r.Store.Key()
	if err != nil {
		return err
	}
	r.vm, err = Start(ctx, Boot{Disk: disk, Work: r.Work, Memory: cmp.Or(r.Memory, 6000), Accelerator: r.Accelerator, Folder: r.logs, Key: key})
	return err
}

func (r *variantRun) prepare(ctx context.Context) error {
	for _, program := range []string{"probe", "check"} {
		file, err := os.Open(filepath.Join(r.Programs, program))
		if err != nil {
			return err
		}
		err = r.vm.Copy(ctx, file, "/usr/local/bin/"+program)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	_, err := r.vm.Output(ctx, unpack)
	if err == nil && r.Prepare != "" {
		_, err = r.vm.Output(ctx, "set -e\n"+r.Prepare)
	}
	return err
}

// still runs the script Still and returns whether to go on.
func (r *variantRun) still(ctx context.Context, name string) bool {
	return r.Still == "" || r.phase(name, func() error { _, err := r.vm.Output(ctx, r.Still); return err })
}

// command runs a command in the clone, as somebody types it, and keeps its output.
func (r *variantRun) command(ctx context.Context, name, command string, watchers ...io.Writer) (string, error) {
	file, err := os.Create(filepath.Join(r.logs, name+".log"))
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	var out bytes.Buffer
	writers := io.MultiWriter(append([]io.Writer{file, &out}, watchers...)...)
	// A pipe has no terminal's width, and no colours.
	if err := r.vm.Run(ctx, "cd "+Clone+" && "+command, nil, writers); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s", command, err, tail(out.String(), 15))
	}
	return out.String(), nil
}

// refused expects that `make up` fails with the words of the variant.
func (r *variantRun) refused(ctx context.Context) error {
	out, err := r.command(ctx, "refused", r.Up)
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return errors.New("it was not refused")
	case !errors.As(err, &exit):
		return err
	}
	var missing []string
	for _, pattern := range r.Refusal {
		if !regexp.MustCompile(pattern).MatchString(out) {
			missing = append(missing, pattern)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("refused, but not in words that match %s:\n%s", strings.Join(missing, " and "), tail(out, 15))
	}
	for line := range strings.Lines(out) {
		if slices.ContainsFunc(r.Refusal, func(pattern string) bool { return regexp.MustCompile(pattern).MatchString(line) }) {
			r.Report("%s", strings.TrimRight(line, "\n"))
		}
	}
	return nil
}

// cutPower begins to bring the landscape up, and takes the power away once it has come to a step.
func (r *variantRun) cutPower(ctx context.Context) error {
	reached, ended := make(chan struct{}), make(chan error)
	go func() {
		_, err := r.command(ctx, "up-halfway", r.Up, &finder{text: r.Halfway, found: func() { close(reached) }})
		ended <- err
	}()
	select {
	case err := <-ended:
		return errors.Join(fmt.Errorf("it ended and never printed %q", r.Halfway), err)
	case <-reached:
	}
	err := r.vm.Reboot(ctx, false)
	<-ended
	return err
}

// check runs the network checks.
func (r *variantRun) check(ctx context.Context) {
	var out string
	ran := r.phase("network checks", func() (err error) {
		command := "check -kubeconfig .landscape/kubeconfig -probe /usr/local/bin/probe"
		if r.Network != "" {
			command += " -network " + r.Network
		}
		out, err = r.command(ctx, "checks", command)
		return err
	})
	results := 0
	for scanner := bufio.NewScanner(strings.NewReader(out)); scanner.Scan(); {
		var result struct {
			Name, Detail, Error string
			Seconds             float64
		}
		if json.Unmarshal(scanner.Bytes(), &result) != nil {
			continue
		}
		results++
		r.Report("  %-52s %5.1fs  %s", result.Name, result.Seconds, cmp.Or(result.Error, "ok, "+result.Detail))
	}
	if ran && results == 0 {
		r.errs = append(r.errs, errors.New("network checks: none was made"))
	}
}

// state looks at the machine and keeps what it sees.
func (r *variantRun) state(ctx context.Context, name string) (State, error) {
	state, err := r.vm.State(ctx)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, part := range slices.Sorted(maps.Keys(state)) {
		_, _ = fmt.Fprintf(&text, "=== %s\n%s\n", part, strings.Join(state[part], "\n"))
	}
	return state, os.WriteFile(filepath.Join(r.logs, "state-"+name+".txt"), []byte(text.String()), 0o644) // #nosec G306 -- a log.
}

// compare expects that nothing differs but for what is explained. What ends takes a moment.
func (r *variantRun) compare(ctx context.Context, before State, name string, explained []string) error {
	var left []string
	for range 5 {
		after, err := r.state(ctx, name)
		if err != nil {
			return err
		}
		if left = Unexplained(Compare(before, after), explained); len(left) == 0 {
			return nil
		}
	}
	shown := left[:min(len(left), 40)]
	return fmt.Errorf("%d differences (state-before.txt, state-%s.txt):\n  %s", len(left), name, strings.Join(shown, "\n  "))
}
