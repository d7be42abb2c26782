// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package touch

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// period is the time between two touches. A write that went past the webhooks is mended within it.
const period = 5 * time.Minute

// AddToManager adds a Runnable of the leader which calls touch once registered is closed, and every few minutes from then
// on. After an error it calls it again with a back-off.
func AddToManager(mgr manager.Manager, name string, registered <-chan struct{}, touch func(ctx context.Context) error) error {
	return mgr.Add(&runnable{name: name, registered: registered, touch: touch, clock: clock.RealClock{}})
}

type runnable struct {
	name       string
	registered <-chan struct{}
	touch      func(ctx context.Context) error
	clock      clock.Clock
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*runnable) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It returns nil whatever has happened, as nothing of this is a reason to stop the
// instance.
func (r *runnable) Start(ctx context.Context) error {
	log := logf.FromContext(ctx).WithName("touch").WithName(r.name)

	select {
	case <-ctx.Done():
		return nil
	case <-r.registered:
	}

	for backoff := newBackoff(); ; {
		delay := period
		if err := r.touch(ctx); err != nil {
			delay = backoff.Step()
			log.Info("Some objects are yet to be sent through the webhooks", "reason", err.Error(), "retryAfter", delay.String())
		} else {
			backoff = newBackoff()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.clock.After(delay):
		}
	}
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: period}
}
