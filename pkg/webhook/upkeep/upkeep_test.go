// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package upkeep_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/upkeep"
)

func TestTheLoopLooksAgainWhenWokenAfterAnErrorAndWhenDueUntilNothingIsLeft(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Now())
	loop := upkeep.NewLoop()
	looks := make(chan int)
	ended := make(chan struct{})
	count := 0
	go func() {
		defer close(ended)
		loop.Run(t.Context(), logr.Discard(), clock, func(context.Context) (time.Time, bool, error) {
			count++
			looks <- count
			if count == 2 {
				return time.Time{}, true, errors.New("not yet")
			}
			return clock.Now().Add(time.Hour), count == 4, nil
		})
	}()

	g.Eventually(looks).Should(Receive(Equal(1)))
	loop.Wake()
	g.Eventually(looks).Should(Receive(Equal(2)), "something has changed")
	g.Eventually(clock.HasWaiters).Should(BeTrue())
	g.Consistently(looks, 100*time.Millisecond).ShouldNot(Receive(), "an error is not tried hot")
	clock.Step(2 * time.Second)
	g.Eventually(looks).Should(Receive(Equal(3)), "the back-off is over, though it said that it was done")
	g.Eventually(clock.HasWaiters).Should(BeTrue())
	clock.Step(time.Hour)
	g.Eventually(looks).Should(Receive(Equal(4)), "the next step is due")
	g.Eventually(ended).Should(BeClosed(), "nothing is left to do")
}

func TestTheLoopEndsWithItsContext(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	upkeep.NewLoop().Run(ctx, logr.Discard(), testclock.NewFakeClock(time.Now()), func(context.Context) (time.Time, bool, error) {
		cancel()
		return time.Time{}, false, errors.New("cut off")
	})
	g.Expect(ctx.Err()).To(MatchError(context.Canceled))
}
