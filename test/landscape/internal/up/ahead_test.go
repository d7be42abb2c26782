// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

func TestWorkAheadIsDoneOnce(t *testing.T) {
	g := NewWithT(t)
	a := &ahead{planned: []string{"shoot"}}
	var times atomic.Int32
	work := func(context.Context, step.Progress) (string, error) { times.Add(1); return "done", nil }

	a.begin(t.Context(), "shoot", "create", work)
	a.begin(t.Context(), "shoot", "create", work)
	g.Expect(a.finish(t.Context(), "create", work)).To(Equal("done"))
	g.Expect(times.Load()).To(BeEquivalentTo(1))
}

func TestWorkAheadThatFailedIsDoneAgain(t *testing.T) {
	g := NewWithT(t)
	a := &ahead{planned: []string{"shoot"}}
	a.begin(t.Context(), "shoot", "create", func(context.Context, step.Progress) (string, error) { return "", errors.New("too early") })
	g.Expect(a.finish(t.Context(), "create", func(context.Context, step.Progress) (string, error) { return "again", nil })).To(Equal("again"))

	broken := errors.New("broken")
	_, err := a.finish(t.Context(), "other", func(context.Context, step.Progress) (string, error) { return "", broken })
	g.Expect(err).To(MatchError(broken))
}

func TestNothingIsBegunForAStepBeyondTheEnd(t *testing.T) {
	g := NewWithT(t)
	begun := func(context.Context, step.Progress) (string, error) { t.Error("begun"); return "", nil }
	(&ahead{planned: []string{"garden"}}).begin(t.Context(), "shoot", "create", begun)
	var none *ahead
	none.begin(t.Context(), "shoot", "create", begun)
	g.Expect(none.finish(t.Context(), "create", func(context.Context, step.Progress) (string, error) { return "now", nil })).To(Equal("now"))
}
