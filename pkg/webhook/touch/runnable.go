// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package touch

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// AddToManager adds a Runnable of the leader which calls touch once registered is closed, and again while it fails.
func AddToManager(mgr manager.Manager, name string, registered <-chan struct{}, touch func(ctx context.Context) error) error {
	return mgr.Add(&runnable{
		name: name, registered: registered, touch: touch,
		// About four minutes in all. What is left then is mended when its owner next writes it.
		backoff: wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 9},
	})
}

type runnable struct {
	name       string
	registered <-chan struct{}
	touch      func(ctx context.Context) error
	backoff    wait.Backoff
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

	if err := wait.ExponentialBackoffWithContext(ctx, r.backoff, func(ctx context.Context) (bool, error) {
		err := r.touch(ctx)
		if err != nil {
			log.Info("Some objects are yet to be sent through the webhooks", "reason", err.Error())
		}
		return err == nil, nil
	}); err != nil && ctx.Err() == nil {
		log.Info("Leaving the rest to who writes them next")
	}
	return nil
}
