// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package step_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

func recording(ran *[]string, name string, err error) step.Step {
	return step.Step{
		Name: name, Title: "title of " + name, Remedy: "mend " + name,
		Execute: func(context.Context, step.Progress) (string, error) {
			*ran = append(*ran, name)
			return "result of " + name, err
		},
	}
}

func TestUntil(t *testing.T) {
	var ran []string
	steps := []step.Step{recording(&ran, "a", nil), recording(&ran, "b", nil), recording(&ran, "c", nil)}
	for _, test := range []struct {
		name, until string
		want        []string
		err         string
	}{
		{name: "keeps everything without a name", want: []string{"a", "b", "c"}},
		{name: "includes the named step", until: "b", want: []string{"a", "b"}},
		{name: "names the steps there are if it doesn't know one", until: "x", err: `no step "x"; the steps are: a, b, c`},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := step.Until(steps, test.until)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(step.Names(got)).To(Equal(test.want))
		})
	}
}

func TestRunExecutesInOrderAndReportsEachStep(t *testing.T) {
	g := NewWithT(t)
	var ran []string
	var out bytes.Buffer
	now := time.Unix(0, 0)
	var done []string
	runner := step.Runner{
		Out: &out, Now: func() time.Time { now = now.Add(500 * time.Millisecond); return now },
		Done: func(name string) { done = append(done, name) },
	}
	g.Expect(runner.Run(t.Context(), []step.Step{recording(&ran, "a", nil), recording(&ran, "b", nil)})).To(Succeed())
	g.Expect(ran).To(Equal([]string{"a", "b"}))
	g.Expect(done).To(Equal(ran))
	g.Expect(out.String()).To(MatchRegexp(`\[ 1/ 2\] a +in +0\.5s  title of a \(result of a\)\n\[ 2/ 2\] b +in +0\.5s  title of b \(result of b\)\n2 steps in 2\.5s\n`))
}

func TestRunStopsAtTheFirstFailureAndSaysWhatToDo(t *testing.T) {
	g := NewWithT(t)
	var ran []string
	var out bytes.Buffer
	cause := errors.New("disk full")
	runner := step.Runner{Out: &out, Now: time.Now, Done: func(name string) { t.Error(name + " is done") }}
	err := runner.Run(t.Context(), []step.Step{recording(&ran, "a", cause), recording(&ran, "b", nil)})
	g.Expect(err).To(MatchError(And(ContainSubstring("step a (title of a): disk full"), ContainSubstring("what to do: mend a"))))
	g.Expect(errors.Is(err, cause)).To(BeTrue())
	g.Expect(ran).To(Equal([]string{"a"}))
	g.Expect(out.String()).To(ContainSubstring("FAILED"))
}

func TestRunStartsNothingOnceItIsInterrupted(t *testing.T) {
	g := NewWithT(t)
	var ran []string
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := step.Runner{Out: &bytes.Buffer{}, Now: time.Now}.Run(ctx, []step.Step{recording(&ran, "a", nil)})
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(ran).To(BeEmpty())
}

func TestAnInterruptedStepIsNoFailure(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	building := step.Step{Name: "build", Title: "built", Remedy: "look at the disk", Execute: func(context.Context, step.Progress) (string, error) {
		cancel()
		return "", errors.New("signal: killed")
	}}
	err := step.Runner{Out: &out, Now: time.Now}.Run(ctx, []step.Step{building})
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(err).NotTo(MatchError(ContainSubstring("disk")), "the remedy has nothing to do with it")
	g.Expect(out.String()).To(And(ContainSubstring("interrupted"), Not(ContainSubstring("FAILED"))))
}

func TestProgressShowsTheTimeSinceTheFirstStep(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	now := time.Unix(0, 0)
	clock := func() time.Time { now = now.Add(500 * time.Millisecond); return now }
	slow := step.Step{Name: "slow", Execute: func(_ context.Context, progress step.Progress) (string, error) {
		progress("half %s", "done")
		return "", nil
	}}
	var ran []string
	g.Expect(step.Runner{Out: &out, Now: clock}.Run(t.Context(), []step.Step{recording(&ran, "a", nil), slow})).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`slow +at +2\.0s  half done\n`))
}
