// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"
)

func TestTheRunnableWaitsForTheRegistrationAndTouchesAgainAndAgain(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(30 * time.Second)
	var (
		clock      = testclock.NewFakeClock(time.Now())
		registered = make(chan struct{})
		results    = make(chan outcome)
		r          = &runnable{registered: registered, clock: clock, touch: func(context.Context) error { return (<-results).err }}
		ended      = make(chan error, 1)
	)
	g.Expect(r.NeedLeaderElection()).To(BeTrue())
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- r.Start(ctx) }()
	// touch answers the next one, and waits until the runnable waits.
	touch := func(result error) {
		t.Helper()
		g.Eventually(results).Should(BeSent(outcome{result}))
		g.Eventually(clock.HasWaiters).Should(BeTrue())
	}

	g.Consistently(results, "50ms").ShouldNot(BeSent(outcome{}), "the webhooks do not serve yet")
	close(registered)
	touch(errors.New("not yet"))
	clock.Step(2 * time.Second)
	touch(errors.New("not yet"))
	clock.Step(4 * time.Second)
	touch(nil)
	for range 3 {
		clock.Step(4 * time.Minute)
		g.Expect(clock.HasWaiters()).To(BeTrue(), "it is not time")
		clock.Step(time.Minute)
		touch(nil)
	}

	stop()
	g.Eventually(ended).Should(Receive(BeNil()))
}

// outcome is that of one touch.
type outcome struct{ err error }

func TestTheRunnableNeverGivesUpNorStopsTheInstance(t *testing.T) {
	g := NewWithT(t)
	ctx, stop := context.WithCancel(t.Context())
	registered := make(chan struct{})
	close(registered)
	var calls int
	clock := testclock.NewFakeClock(time.Now())
	r := &runnable{registered: registered, clock: stepping{clock}, touch: func(context.Context) error {
		if calls++; calls == 100 {
			stop()
		}
		return errors.New("never")
	}}
	begin := clock.Now()
	g.Expect(r.Start(ctx)).To(Succeed())
	g.Expect(calls).To(BeNumerically(">=", 100))
	g.Expect(clock.Since(begin)/time.Duration(calls)).To(And(BeNumerically(">", 3*time.Minute), BeNumerically("<=", 6*time.Minute)), "a back-off of five minutes at most")
}

// stepping is a clock in which time passes as soon as somebody waits.
type stepping struct{ *testclock.FakeClock }

func (s stepping) After(d time.Duration) <-chan time.Time {
	c := s.FakeClock.After(d)
	s.Step(d)
	return c
}
