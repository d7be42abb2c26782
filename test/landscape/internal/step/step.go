// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package step runs an ordered list of small actions and says what happens on one line each. `up` is such a list; it is
// the shape that kind uses to create a cluster. Every action first looks whether it is already done, which is why running
// the list again continues where it stopped.
package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Step is one action.
type Step struct {
	// Name is short and stable: it is what --until takes.
	Name string
	// Title says in a few words what the step brings about.
	Title string
	// Remedy says what to do if the step fails.
	Remedy string
	// Execute does it, unless it is done already. The string says what was found or done, for the status line.
	Execute func(ctx context.Context, progress Progress) (string, error)
}

// Progress reports something worth a line of its own while a step runs. The line has the time since the first step began.
type Progress func(format string, args ...any)

// Runner runs steps. Now is the clock.
type Runner struct {
	Out io.Writer
	Now func() time.Time
	// Done is called with the name of each step that has succeeded; it may be nil.
	Done func(name string)
}

// Names lists the steps' names in order.
func Names(steps []Step) []string {
	names := make([]string, 0, len(steps))
	for _, s := range steps {
		names = append(names, s.Name)
	}
	return names
}

// ErrUnknown says that there is no step of that name.
var ErrUnknown = errors.New("there is no step")

// Until cuts the list after the step of that name; the empty name keeps all.
func Until(steps []Step, name string) ([]Step, error) {
	if name == "" {
		return steps, nil
	}
	i := slices.IndexFunc(steps, func(s Step) bool { return s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w %q; the steps are: %s", ErrUnknown, name, strings.Join(Names(steps), ", "))
	}
	return steps[:i+1], nil
}

// Run executes the steps in order and stops at the first that fails. The error names the step, the cause and the remedy. If ctx
// is cancelled it is the error of ctx, whatever became of the step.
func (r Runner) Run(ctx context.Context, steps []Step) error {
	begin := r.Now()
	for i, s := range steps {
		started := r.Now()
		progress := func(format string, args ...any) {
			_, _ = fmt.Fprintf(r.Out, "        %-14s at %8s  %s\n", s.Name, seconds(r.Now().Sub(begin)), fmt.Sprintf(format, args...))
		}
		err := ctx.Err()
		result := ""
		if err == nil {
			result, err = s.Execute(ctx, progress)
		}
		took := seconds(r.Now().Sub(started))
		if ctx.Err() != nil {
			_, _ = fmt.Fprintf(r.Out, "[%2d/%2d] %-14s in %8s  interrupted: %s\n", i+1, len(steps), s.Name, took, s.Title)
			return fmt.Errorf("step %s: %w", s.Name, ctx.Err())
		}
		if err != nil {
			_, _ = fmt.Fprintf(r.Out, "[%2d/%2d] %-14s in %8s  FAILED: %s\n", i+1, len(steps), s.Name, took, s.Title)
			return fmt.Errorf("step %s (%s): %w\nwhat to do: %s; then run it again, it continues here", s.Name, s.Title, err, s.Remedy)
		}
		_, _ = fmt.Fprintf(r.Out, "[%2d/%2d] %-14s in %8s  %s (%s)\n", i+1, len(steps), s.Name, took, s.Title, result)
		if r.Done != nil {
			r.Done(s.Name)
		}
	}
	_, _ = fmt.Fprintf(r.Out, "%d steps in %s\n", len(steps), seconds(r.Now().Sub(begin)))
	return nil
}

func seconds(d time.Duration) string {
	return fmt.Sprintf("%.1fs", d.Seconds())
}
