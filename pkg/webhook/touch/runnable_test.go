// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package touch

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/wait"
)

func TestTheRunnableWaitsForTheRegistrationAndTriesAgainUntilItSucceeds(t *testing.T) {
	g := NewWithT(t)
	var calls int
	registered := make(chan struct{})
	r := &runnable{registered: registered, backoff: wait.Backoff{Duration: time.Microsecond, Steps: 5}, touch: func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	}}
	g.Expect(r.NeedLeaderElection()).To(BeTrue())

	stopped, stop := context.WithCancel(t.Context())
	stop()
	g.Expect(r.Start(stopped)).To(Succeed())
	g.Expect(calls).To(BeZero(), "the webhooks do not serve yet")

	close(registered)
	g.Expect(r.Start(t.Context())).To(Succeed())
	g.Expect(calls).To(Equal(3))
}

func TestTheRunnableGivesUpWithoutStoppingTheInstance(t *testing.T) {
	g := NewWithT(t)
	var calls int
	registered := make(chan struct{})
	close(registered)
	r := &runnable{registered: registered, backoff: wait.Backoff{Duration: time.Microsecond, Steps: 4}, touch: func(context.Context) error {
		calls++
		return errors.New("never")
	}}
	g.Expect(r.Start(t.Context())).To(Succeed())
	g.Expect(calls).To(Equal(4))
}
