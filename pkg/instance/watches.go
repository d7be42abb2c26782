// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

const (
	// DefaultWatchTimeout is the shortest time that a watch lasts; the longest is twice as long. client-go takes 5 minutes.
	DefaultWatchTimeout = 2 * time.Minute
	// watchGrace is how much longer the client waits for the end of a watch than it has told the server.
	watchGrace = 5 * time.Second
)

// errRestored ends an instance whose API server has gone back to an older state.
var errRestored = errors.New("the API server has an older state than before, as after etcd was restored from a backup: ending, so that the next start reads everything anew")

// Watches make the informers of a program. They bound two faults that client-go leaves unbounded:
//
//   - A watch that hangs while its connection is open. client-go tells only the server when a watch is to end, so the end
//     may get lost as well. Here the client ends it, too.
//   - An API server whose resource versions went back, because etcd was restored from a backup. It takes a watch from a
//     resource version that it does not have yet for one of the future and sends nothing. Here a look at the current one
//     precedes each further list and watch. What an instance remembers may be wrong then, so it ends rather than lists again.
type Watches struct {
	timeout time.Duration
	// restored has room for one.
	restored chan error
}

// NewWatches returns Watches that last for timeout or twice as long, by default DefaultWatchTimeout. The manager has to run them.
func NewWatches(timeout time.Duration) *Watches {
	if timeout == 0 {
		timeout = DefaultWatchTimeout
	}
	return &Watches{timeout: timeout, restored: make(chan error, 1)}
}

// Start implements manager.Runnable. It returns an error when the API server has gone back to an older state.
func (w *Watches) Start(ctx context.Context) error {
	select {
	case err := <-w.restored:
		return err
	case <-ctx.Done():
		return nil
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: who waits for the Lease has informers, too.
func (*Watches) NeedLeaderElection() bool { return false }

// NewInformer is for cache.Options.
func (w *Watches) NewInformer(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	inner := toolscache.ToListerWatcherWithContext(lw)
	return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if w.isRestored(ctx, inner, options) {
				return nil, apierrors.NewResourceExpired(errRestored.Error())
			}
			return inner.ListWithContext(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if w.isRestored(ctx, inner, options) {
				return nil, apierrors.NewResourceExpired(errRestored.Error())
			}
			return w.watch(ctx, inner, options)
		},
	}, example, resync, indexers)
}

// watch starts a watch that ends in time.
func (w *Watches) watch(ctx context.Context, inner toolscache.WatcherWithContext, options metav1.ListOptions) (watch.Interface, error) {
	timeout := w.timeout + time.Duration(rand.Int64N(int64(w.timeout))) // #nosec G404 -- spreads requests
	options.TimeoutSeconds = new(int64(max(timeout.Round(time.Second).Seconds(), 1)))
	ctx, cancel := context.WithTimeout(ctx, timeout+watchGrace)
	started, err := inner.WatchWithContext(ctx, options)
	if err != nil {
		cancel()
		return nil, err
	}
	return &boundedWatch{Interface: started, cancel: cancel}, nil
}

// isRestored reports whether a list or a watch is to go on where the API server has not been yet.
func (w *Watches) isRestored(ctx context.Context, inner toolscache.ListerWithContext, options metav1.ListOptions) bool {
	if options.ResourceVersion == "" || options.ResourceVersion == "0" {
		return false
	}
	list, err := inner.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		// The watch will tell what is wrong.
		return false
	}
	current, err := meta.ListAccessor(list)
	if err != nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(current.GetResourceVersion(), options.ResourceVersion)
	if err != nil || order >= 0 {
		return false
	}
	select {
	case w.restored <- errRestored:
	default:
	}
	return true
}

// boundedWatch is a watch with a deadline.
type boundedWatch struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop implements watch.Interface.
func (w *boundedWatch) Stop() {
	w.Interface.Stop()
	w.cancel()
}
