// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/usage"
)

const (
	// statusTimeout bounds `status` as a whole, virtualTimeout what it asks of the virtual garden, which may be cut off.
	statusTimeout  = time.Minute
	virtualTimeout = 20 * time.Second
	// cpuInterval is over how long CPU is measured at least.
	cpuInterval = time.Second
	// largest is how many pods and processes are named that take the most memory.
	largest = 10
)

// Status prints what runs and how it is, first what is not healthy. The error says how many things that are.
func (l Landscape) Status(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	r := &report{}
	if l.Layout.Kind != "" {
		l.statusClusters(ctx, r)
	} else if err := l.statusMachine(ctx, r); err != nil {
		return err
	}
	if err := r.print(l.Out); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(l.Out, "export KUBECONFIG=%s\n%s get dnsrecords -n garden\n", l.Layout.Kubeconfig(), l.Layout.Kubectl())
	if exists(l.Layout.VirtualKubeconfig()) {
		_, _ = fmt.Fprintf(l.Out, "%s --kubeconfig %s get seeds,shoots -A\n", l.Layout.Kubectl(), l.Layout.VirtualKubeconfig())
	}
	_, _ = fmt.Fprintf(l.Out, "dig +short @%s api.virtual-garden.local.gardener.cloud\nlogs: %s\n", l.Layout.HostDNS(), l.Layout.State("logs"))
	return r.err()
}

// statusMachine shows the clusters with the processes on this machine of which they consist.
func (l Landscape) statusMachine(ctx context.Context, r *report) error {
	began := time.Now()
	before, err := usage.Read(usage.Root, l.Layout.State())
	if err != nil {
		return err
	}
	if err := l.statusProcesses(ctx, r.section("PROCESSES")); err != nil {
		return err
	}
	pods := l.statusClusters(ctx, r)
	return l.statusUsage(ctx, r.section("MEMORY AND CPU"), pods, before, began)
}

func (l Landscape) statusProcesses(ctx context.Context, s *section) error {
	for _, component := range node.Components(l.Layout) {
		record, running, err := l.Processes().Find(component.Name)
		if err != nil {
			return err
		}
		if !running {
			s.add(bad, "process", component.Name, "does not run")
			continue
		}
		verdict, health := good, "healthy"
		if err := component.Ready(ctx); errors.Is(err, os.ErrPermission) {
			health = "runs (only root may ask whether it is healthy)"
		} else if err != nil {
			verdict, health = bad, err.Error()
		}
		s.add(verdict, "process", component.Name, fmt.Sprintf("%s, PID %d, since %s", health, record.PID, l.Now().Sub(record.Started).Round(time.Second)))
	}
	return nil
}

// statusClusters returns the names of the pods by UID. What can't be asked is not healthy; the rest is shown all the same.
func (l Landscape) statusClusters(ctx context.Context, r *report) map[string]string {
	reach := r.section("API SERVERS")
	s := &survey{report: r}
	// Otherwise nothing is stubbed.
	if l.Layout.Kind == "" || exists(l.standIns()) {
		var err error
		if s.table, err = images.Load(l.Layout.Optional()); err != nil {
			reach.add(bad, "table", "images", err.Error())
		}
	}
	runtime, err := l.client(runtimeCluster)
	if err != nil {
		reach.add(bad, "cluster", "runtime", err.Error())
		return nil
	}
	s.runtime = runtime
	if exists(l.Layout.VirtualKubeconfig()) {
		virtual, err := l.client(virtualGarden)
		if err != nil {
			reach.add(bad, "cluster", string(virtualGarden), err.Error())
		} else {
			s.virtual = virtual
		}
	}
	return s.run(ctx, reach)
}

// run fills the report in an order in which each part knows what is on its way already.
func (s *survey) run(ctx context.Context, failures *section) map[string]string {
	virtual, cancel := context.WithTimeout(ctx, virtualTimeout)
	defer cancel()
	looked := func(name string, err error) {
		if err != nil {
			failures.add(bad, "cluster", name, err.Error())
		}
	}
	looked("runtime", s.garden(ctx))
	looked(string(virtualGarden), s.virtualGarden(virtual))
	looked("runtime", s.extensions(ctx))
	looked("runtime", s.workloads(ctx))
	pods, err := s.pods(ctx)
	looked("runtime", err)
	return pods
}

func (l Landscape) statusUsage(ctx context.Context, s *section, pods map[string]string, before []usage.Process, began time.Time) error {
	if err := pause(ctx, max(0, cpuInterval-time.Since(began))); err != nil {
		return err
	}
	after, err := usage.Read(usage.Root, l.Layout.State())
	if err != nil {
		return err
	}
	elapsed := time.Since(began)
	show := func(groups []usage.Group, kind string) {
		for _, g := range groups[:min(largest, len(groups))] {
			// Not by add, which would take away what aligns the numbers.
			s.rows = append(s.rows, row{note, kind, g.Name, fmt.Sprintf("%6.0f MB  %5.2f CPUs", float64(g.Memory)/1e6, g.Cores)})
		}
	}
	show(usage.Groups(before, after, elapsed, func(usage.Process) string { return "in all" }), "total")
	show(usage.Groups(before, after, elapsed, func(p usage.Process) string {
		if p.Pod != "" {
			return "pods"
		}
		return "processes beside them"
	}), "total")
	show(usage.Groups(before, after, elapsed, func(p usage.Process) string {
		if p.Pod == "" {
			return p.Command
		}
		if name := pods[p.Pod]; name != "" {
			return name
		}
		return "pod " + p.Pod
	}), "largest")
	return nil
}

// Logs copies the log of a process, or of Skaffold, to Out.
func (l Landscape) Logs(name string) error {
	names, err := l.LogNames()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return errors.New("there are no logs; bring the landscape up with " + l.make("up"))
	}
	if !slices.Contains(names, name) {
		return fmt.Errorf("there is no log %q; the logs are: %s", name, strings.Join(names, ", "))
	}
	content, err := os.ReadFile(l.Processes().LogPath(name))
	if err == nil {
		_, err = l.Out.Write(content)
	}
	return err
}

// LogNames lists the logs that there are.
func (l Landscape) LogNames() ([]string, error) {
	paths, err := filepath.Glob(l.Processes().LogPath("*"))
	for i := range paths {
		paths[i] = strings.TrimSuffix(filepath.Base(paths[i]), ".log")
	}
	return paths, err
}

// mark is what a row of the report says about the health of what it shows.
type mark string

const (
	good mark = "ok"
	// note is for rows without health.
	note mark = ""
	// busy is what is on its way: reconciled, deleted, or part of something that is.
	busy mark = "busy"
	bad  mark = "BAD"
)

// maxDetail bounds the last column; errors of Gardener may be whole pages.
const maxDetail = 160

type row struct {
	mark
	Kind, Name, Detail string
}

type section struct {
	title string
	rows  []row
}

func (s *section) add(m mark, kind, name, detail string) {
	s.rows = append(s.rows, row{m, kind, name, oneLine(detail, maxDetail)})
}

// oneLine makes one line of a text, and cuts off what is longer than that many letters.
func oneLine(text string, longest int) string {
	// The owner of a shoot writes some of it, and a terminal obeys control characters.
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if letters := []rune(text); len(letters) > longest {
		return string(letters[:longest]) + "..."
	}
	return text
}

// report is what `status` shows.
type report struct {
	sections []*section
}

func (r *report) section(title string) *section {
	s := &section{title: title}
	r.sections = append(r.sections, s)
	return s
}

// marked returns the rows of all sections that have the mark.
func (r *report) marked(m mark) []row {
	var found []row
	for _, s := range r.sections {
		for _, row := range s.rows {
			if row.mark == m {
				found = append(found, row)
			}
		}
	}
	return found
}

// print writes what is not healthy first, then what is on its way, then everything by section.
func (r *report) print(out io.Writer) error {
	first := []*section{{title: "NOT HEALTHY", rows: r.marked(bad)}, {title: "ON THEIR WAY", rows: r.marked(busy)}}
	var errs []error
	for _, s := range append(first, r.sections...) {
		if len(s.rows) == 0 {
			continue
		}
		table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
		_, _ = fmt.Fprintf(table, "%s\n", s.title)
		for _, row := range s.rows {
			_, _ = fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", row.mark, row.Kind, row.Name, row.Detail)
		}
		_, _ = fmt.Fprintln(table)
		errs = append(errs, table.Flush())
	}
	return errors.Join(errs...)
}

// err says how many things are not healthy.
func (r *report) err() error {
	if count := len(r.marked(bad)); count > 0 {
		return fmt.Errorf("%d things are not healthy", count)
	}
	return nil
}
