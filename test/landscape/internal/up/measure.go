// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/host"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/measurement"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/snapshot"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/usage"
)

const (
	// lookInterval is how often Measure reads all processes. More often finds more of those that end soon, and takes CPU time itself.
	lookInterval = 2 * time.Second
	// settle is how long a landscape that has become healthy gets before it counts as idle, and idleInterval how long that is measured.
	settle       = 2 * time.Minute
	idleInterval = time.Minute
)

// measuredSnapshot is what Measure saves, starts and deletes.
const measuredSnapshot = "times"

// edited is a file that Measure adds to a package of both programs, as an edit that changes them. Git ignores it.
const edited = "pkg/reconciler/zz_landscape_times.go"

// Measure brings the landscape up, through stop, start and a change, and down, and writes what that took to bin/times, and to docs if
// asked. It refuses to work where there is a landscape, or where it would have to build first. If a part fails, the landscape stays.
func (l Landscape) Measure(ctx context.Context, docs bool) error {
	if err := l.measurable(ctx); err != nil {
		return err
	}
	machine, err := measurement.ThisMachine(usage.Root)
	if err != nil {
		return err
	}
	machine.ReadTime = measurement.ReadTime()
	pods, own, back, err := host.EnterCgroup()
	if err != nil {
		return err
	}
	result := &measurement.Result{Machine: machine, Date: l.Now().UTC().Truncate(time.Second), Commit: l.commit(ctx)}
	err = l.measureWith(ctx, result, pods, own)
	// `down` removes the cgroup, and with it what is still in it.
	if err := errors.Join(err, back()); err != nil {
		return err
	}
	if err := l.timed(ctx, result, "make down", l.Down); err != nil {
		return err
	}
	restore := func(ctx context.Context) error { return l.Restore(ctx, measuredSnapshot) }
	if err := l.timed(ctx, result, "make up FROM=: everything healthy", restore); err != nil {
		return err
	}
	if err := errors.Join(l.measureSnapshot(ctx, result), l.Down(ctx)); err != nil {
		return err
	}
	if !docs {
		return nil
	}
	folder := filepath.Join(l.Layout.Root, "docs", "development")
	return errors.Join(result.WriteDocs(folder), l.Invoker.Own(folder))
}

// measurable returns an error unless there is no landscape and nothing to build.
func (l Landscape) measurable(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("measuring the landscape needs root: run sudo make times")
	}
	if exists(l.Layout.State()) {
		return errors.New("there is a landscape, and only a new one can be measured: run make down first")
	}
	store, tag, err := snapshot.Open(ctx, l.Layout.Snapshots(), measuredSnapshot)
	if err != nil {
		return err
	}
	if _, err := store.Resolve(ctx, tag); err == nil {
		return fmt.Errorf("there is a snapshot %q, which measuring would replace and delete: make snapshots NAME=%s deletes it", tag, tag)
	}
	for _, program := range l.programs() {
		if !exists(l.Layout.Binary(program.Name)) {
			return fmt.Errorf("%s has to be built, which must not be measured: run make up and make down first", program.Name)
		}
	}
	return nil
}

func (l Landscape) measureWith(ctx context.Context, result *measurement.Result, pods, own string) error {
	recorder, err := usage.NewRecorder(usage.Root, pods, own)
	if err != nil {
		return err
	}
	looking, cancel := context.WithCancel(ctx)
	defer cancel()
	go wait.UntilWithContext(looking, func(context.Context) { _, _ = recorder.Look() }, lookInterval)

	var last usage.Reading
	var errs []error
	first := l
	first.reached = func(title string) {
		reading, err := recorder.Look()
		errs = append(errs, err)
		result.AddPhase(title, reading.Sub(last))
		last = reading
	}
	const up = "make up: everything healthy"
	if err := l.timed(ctx, result, up, func(ctx context.Context) error { return first.Up(ctx, "") }); err != nil {
		return err
	}
	first.reached("everything healthy")
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := l.milestoneValues(result); err != nil {
		return err
	}
	result.Add("CPU time of make up", last.Total.Sum(), "s")
	if err := l.idle(ctx, result, recorder); err != nil {
		return err
	}
	// Nobody needs more of the recorder.
	cancel()

	again := func(ctx context.Context) error { return l.Up(ctx, "") }
	for _, part := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"make up again, nothing changed", again},
		{"make up after a change of both programs", l.withEdit(again)},
		{"reboot of the machine: its Node Ready", l.reboot},
		{"make stop", l.Stop},
		{"make start: everything healthy", l.Start},
		{"make save, and everything healthy again", func(ctx context.Context) error { return l.Save(ctx, measuredSnapshot) }},
	} {
		if err := l.timed(ctx, result, part.title, part.do); err != nil {
			return err
		}
	}
	return nil
}

// measureSnapshot adds the size of the snapshot and deletes it.
func (l Landscape) measureSnapshot(ctx context.Context, result *measurement.Result) error {
	store, tag, err := snapshot.Open(ctx, l.Layout.Snapshots(), measuredSnapshot)
	if err != nil {
		return err
	}
	manifest, err := snapshot.Manifest(ctx, store, tag)
	if err != nil {
		return err
	}
	result.Add("size of the snapshot", gigabytes(snapshot.Size(manifest)), "GB")
	return errors.Join(l.saveTimes(result), l.Snapshots(ctx, measuredSnapshot))
}

// timed measures how long a part takes. Results are kept after each, as all of them take half an hour.
func (l Landscape) timed(ctx context.Context, result *measurement.Result, title string, do func(context.Context) error) error {
	_, _ = fmt.Fprintf(l.Out, "\n--- times: %s\n", title)
	begin := l.Now()
	if err := do(ctx); err != nil {
		return fmt.Errorf("measuring %s: %w", title, err)
	}
	result.Add(title, l.Now().Sub(begin).Seconds(), "s")
	return l.saveTimes(result)
}

func (l Landscape) saveTimes(result *measurement.Result) error {
	path, err := l.keep("times", result.Date, result)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(l.Out, "--- times: kept in %s\n", path)
	return err
}

// keep writes the result of a measurement to a folder of bin, and returns the path of the file.
func (l Landscape) keep(folder string, date time.Time, result any) (string, error) {
	path := filepath.Join(l.Layout.Root, "bin", folder, date.Format("2006-01-02T150405Z")+".json")
	return path, errors.Join(measurement.Save(path, result), l.Invoker.Own(filepath.Dir(path)))
}

// milestoneValues adds the milestones that end phases, and those of steps, as the first `up` has written them.
func (l Landscape) milestoneValues(result *measurement.Result) error {
	file, err := readTimes(l.Layout.Milestones())
	if err != nil {
		return err
	}
	for _, m := range file.Milestones {
		if m.Title == imagesReady || m.Title == nodeReady || slices.Contains(result.Phases, m.Title) {
			result.Add(m.Title, m.Seconds, "s")
		}
	}
	return nil
}

// idle measures memory and CPU of a landscape in which nobody does anything.
func (l Landscape) idle(ctx context.Context, result *measurement.Result, recorder *usage.Recorder) error {
	_, _ = fmt.Fprintf(l.Out, "\n--- times: idle, which takes %s\n", settle+idleInterval)
	if err := pause(ctx, settle); err != nil {
		return err
	}
	begin := l.Now()
	before, err := recorder.Look()
	if err != nil {
		return err
	}
	if err := pause(ctx, idleInterval); err != nil {
		return err
	}
	after, err := recorder.Look()
	elapsed := l.Now().Sub(begin).Seconds()
	if err != nil {
		return err
	}
	processes, err := usage.Read(usage.Root, l.Layout.State())
	if err != nil {
		return err
	}
	spent := after.Sub(before)
	groups := usage.Groups(nil, processes, 0, func(p usage.Process) string { return p.Program })
	for i, g := range groups {
		groups[i].Cores = spent.Programs[g.Name].Sum() / elapsed
		delete(spent.Programs, g.Name)
	}
	for name, p := range spent.Programs {
		groups = append(groups, usage.Group{Name: name, Cores: p.Sum() / elapsed})
	}
	result.Idle = groups
	result.Add("memory, idle", float64(usage.Memory(processes))/1e9, "GB (PSS)")
	result.Add("CPU, idle", spent.Total.Sum()/elapsed, "CPUs")
	return l.saveTimes(result)
}

// withEdit does something while there is an edit, which it takes back however that ends.
func (l Landscape) withEdit(do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		path := filepath.Join(l.Layout.Root, filepath.FromSlash(edited))
		// The variable is written, so that the linker keeps it.
		content := fmt.Sprintf("package %s\n\nvar edited int64\n\nfunc init() { edited = %d }\n", filepath.Base(filepath.Dir(path)), l.Now().UnixNano())
		defer func() {
			if removed := os.Remove(path); !errors.Is(removed, os.ErrNotExist) {
				err = errors.Join(err, removed)
			}
		}()
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil { // #nosec G306 -- the user builds it.
			return fmt.Errorf("changing the programs: %w", err)
		}
		return do(ctx)
	}
}

// commit describes the working tree, nothing if there is no Git.
func (l Landscape) commit(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty")
	cmd.Dir = l.Layout.Root
	out, _ := l.Invoker.Run(cmd).Output()
	return strings.TrimSpace(string(out))
}

// pause waits unless ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err()
}
