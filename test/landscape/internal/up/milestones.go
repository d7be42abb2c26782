// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/usage"
)

// memoryGoal is what the whole landscape, with a seed and both example shoots, may take, in bytes.
const memoryGoal = 7_000_000_000

// stepMilestones are the steps whose end is a milestone by itself.
var stepMilestones = map[string]string{"machine-image": "Programs and images ready", "node": "Node Ready"}

// reachedMilestone is a milestone and when it was reached. Times are in seconds since the `up` began that reached it.
type reachedMilestone struct {
	Title   string  `json:"title"`
	Seconds float64 `json:"seconds"`
	// Goal is the time by which it should be reached when programs and images are there already; 0: none.
	Goal float64 `json:"goal,omitempty"`
	// Continued says that an `up` before this one had come some way already, so that the time can't be judged.
	Continued bool `json:"continued,omitempty"`
}

// verdict says whether the goal is met; "" if there is nothing to judge.
func (m reachedMilestone) verdict() string {
	switch {
	case m.Continued:
		return "not measured from the start"
	case m.Goal == 0:
		return ""
	case m.Seconds <= m.Goal:
		return "met"
	}
	return fmt.Sprintf("MISSED by %.1f", m.Seconds-m.Goal)
}

// times keeps when what was reached, in a file that lives as long as the landscape: a milestone has the time of the `up` that
// brought it, and running `up` again doesn't make it look faster. A nil one keeps nothing.
type times struct {
	path string
	now  func() time.Time

	mu        sync.Mutex
	started   time.Time
	continued bool
	content   timesFile
	err       error
}

// timesFile is the content of milestones.json.
type timesFile struct {
	// Started is when the first `up` began.
	Started    time.Time          `json:"started"`
	Milestones []reachedMilestone `json:"milestones"`
	// Steps are the ends of the steps, by name.
	Steps map[string]float64 `json:"steps"`
	// Memory is what the landscape's processes and pods had in use at the end of the last `up`, in bytes.
	Memory uint64 `json:"memory,omitempty"`
}

// begin starts the clock.
func (t *times) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = t.now()
	content, err := os.ReadFile(t.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		t.content = timesFile{Started: t.started}
	case err != nil:
		return fmt.Errorf("reading the milestones: %w", err)
	default:
		t.continued = true
		if err := json.Unmarshal(content, &t.content); err != nil {
			return fmt.Errorf("reading the milestones of %s: %w", t.path, err)
		}
	}
	if t.content.Steps == nil {
		t.content.Steps = map[string]float64{}
	}
	t.save()
	return t.err
}

// reach notes that a milestone is reached now.
func (t *times) reach(title string, goal time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(t.content.Milestones, func(m reachedMilestone) bool { return m.Title == title }) {
		return
	}
	t.content.Milestones = append(t.content.Milestones, reachedMilestone{
		Title: title, Seconds: t.seconds(), Goal: goal.Seconds(), Continued: t.continued,
	})
	t.save()
}

// seconds is the time since begin, to a tenth: more is noise.
func (t *times) seconds() float64 {
	return t.now().Sub(t.started).Round(100 * time.Millisecond).Seconds()
}

// watch has the ends of the steps noted.
func (t *times) watch(steps []step.Step) []step.Step {
	watched := slices.Clone(steps)
	for i, s := range steps {
		watched[i].Execute = func(ctx context.Context, progress step.Progress) (string, error) {
			result, err := s.Execute(ctx, progress)
			if err == nil {
				t.end(s.Name)
			}
			return result, err
		}
	}
	return watched
}

func (t *times) end(name string) {
	if title := stepMilestones[name]; title != "" {
		t.reach(title, 0)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.content.Steps[name]; !known {
		t.content.Steps[name] = t.seconds()
		t.save()
	}
}

// save is called with the lock held. A failure doesn't stop `up`; finish returns it.
func (t *times) save() {
	content, err := json.MarshalIndent(t.content, "", "  ")
	if err == nil {
		err = os.WriteFile(t.path+".new", append(content, '\n'), 0o644) // #nosec G306 -- nothing secret.
	}
	if err == nil {
		err = os.Rename(t.path+".new", t.path)
	}
	if err != nil && t.err == nil {
		t.err = fmt.Errorf("writing the milestones: %w", err)
	}
}

// finish prints all milestones, beside their goals if they are asked for.
func (t *times) finish(out io.Writer, memory uint64, goals bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.content.Memory = memory
	t.save()
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	row := func(title, value, goal, verdict string) {
		if goals {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", title, value, goal, verdict)
		} else {
			_, _ = fmt.Fprintf(table, "%s\t%s\n", title, value)
		}
	}
	_, _ = fmt.Fprintln(table)
	row("MILESTONE", " SECONDS", "GOAL", "")
	for _, m := range t.content.Milestones {
		row(m.Title, fmt.Sprintf("%8.1f", m.Seconds), goal(m.Goal), m.verdict())
	}
	verdict := "met"
	if memory > memoryGoal {
		verdict = fmt.Sprintf("MISSED by %.1f GB", float64(memory-memoryGoal)/1e9)
	}
	row("memory in use", fmt.Sprintf("%5.1f GB", float64(memory)/1e9), fmt.Sprintf("%d GB", memoryGoal/1_000_000_000), verdict)
	err := errors.Join(table.Flush(), t.err)
	if goals {
		_, _ = fmt.Fprintf(out, "The goals are for two idle cores, with programs and images that are there already. Written to %s\n", t.path)
	}
	return err
}

func goal(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	return fmt.Sprintf("%5.0f", seconds)
}

// summary ends an `up`, also one that failed.
func (l Landscape) summary() error {
	processes, err := usage.Read(usage.Root, l.Layout.State())
	if err != nil {
		return err
	}
	return l.times.finish(l.Out, usage.Memory(processes), l.Goals)
}
