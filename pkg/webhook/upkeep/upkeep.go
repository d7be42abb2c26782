// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package upkeep has what keeps the registration of webhooks up to date: the loop of the leader, and the watches that wake it.
// The webhooks of a seed and the admission in the virtual garden share it.
package upkeep

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Loop looks at all of the registration when something has changed and when the next step of a rotation is due. Make it with
// NewLoop.
type Loop struct {
	// Limiter lets the leader put right at once what somebody has changed, but not fight with another program over it.
	Limiter flowcontrol.RateLimiter

	// changed has an element if there was a change since the last look.
	changed chan struct{}
}

// NewLoop makes a loop.
func NewLoop() *Loop {
	return &Loop{Limiter: flowcontrol.NewTokenBucketRateLimiter(1, 10), changed: make(chan struct{}, 1)}
}

// Wake has the leader look at all again.
func (l *Loop) Wake() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Handler wakes the loop on any event.
func (l *Loop) Handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { l.Wake() },
		UpdateFunc: func(any, any) { l.Wake() },
		DeleteFunc: func(any) { l.Wake() },
	}
}

// Run calls look until ctx ends or nothing is left to do. look returns when the next step is due; after an error it is called
// again with a back-off of up to five minutes.
func (l *Loop) Run(ctx context.Context, log logr.Logger, clock clock.Clock, look func(context.Context) (next time.Time, done bool, err error)) {
	backoff := newBackoff()
	for {
		if l.Limiter.Wait(ctx) != nil {
			return // ctx has ended
		}
		next, done, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			delay := backoff.Step()
			log.Error(err, "Could not bring the webhooks' registration up to date", "retryAfter", delay.String())
			next = clock.Now().Add(delay)
		case done:
			return
		default:
			backoff = newBackoff()
		}

		timer := clock.NewTimer(next.Sub(clock.Now()))
		select {
		case <-timer.C():
		case <-l.changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: 5 * time.Minute}
}

// Watch adds handlers to the informer of a kind, without waiting for it.
func Watch(informers cache.Informers, kind client.Object, handlers ...toolscache.ResourceEventHandler) error {
	informer, err := informers.GetInformer(context.Background(), kind, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	for _, handler := range handlers {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	return nil
}

// Runnable has the manager start and sync a cache together with its own, before any controller.
type Runnable struct {
	cache.Cache
}

// GetCache is by what the manager tells a cache from other runnables.
func (r Runnable) GetCache() cache.Cache {
	return r.Cache
}
