// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// RoundLabel is on all objects of a round.
const RoundLabel = "bench.local.provider.extensions.gardener.cloud/round"

// writers is how many objects are written at a time.
const writers = 16

// Tracker knows the objects of a round of one kind, by a watch.
type Tracker struct {
	cancel  context.CancelFunc
	done    chan error
	isReady func(client.Object) bool

	mu      sync.Mutex
	ready   map[client.ObjectKey]bool
	changed chan struct{}
}

// Track begins to watch the extension objects of a round.
func (w *World) Track(ctx context.Context, list client.ObjectList, round string) *Tracker {
	return w.track(ctx, list, func(obj client.Object) bool { return Ready(obj.(extensionsv1alpha1.Object)) }, client.MatchingLabels{RoundLabel: round})
}

// TrackNodes begins to watch all Nodes.
func (w *World) TrackNodes(ctx context.Context) *Tracker {
	return w.track(ctx, &corev1.NodeList{}, func(obj client.Object) bool {
		return slices.ContainsFunc(obj.(*corev1.Node).Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		})
	})
}

func (w *World) track(ctx context.Context, list client.ObjectList, isReady func(client.Object) bool, opts ...client.ListOption) *Tracker {
	ctx, cancel := context.WithCancel(ctx)
	t := &Tracker{cancel: cancel, done: make(chan error, 1), isReady: isReady, ready: map[client.ObjectKey]bool{}, changed: make(chan struct{}, 1)}
	go func() {
		t.done <- follow(ctx, w.Client, list, t.take, opts...)
	}()
	return t
}

func (t *Tracker) take(event watch.EventType, obj client.Object) {
	t.mu.Lock()
	if event == watch.Deleted {
		delete(t.ready, client.ObjectKeyFromObject(obj))
	} else {
		t.ready[client.ObjectKeyFromObject(obj)] = t.isReady(obj)
	}
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Stop ends it.
func (t *Tracker) Stop() {
	t.cancel()
	<-t.done
}

func (t *Tracker) counts() (known, ready int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, is := range t.ready {
		if is {
			ready++
		}
	}
	return len(t.ready), ready
}

// AwaitReady waits until that many objects are ready.
func (t *Tracker) AwaitReady(ctx context.Context, n int) error {
	return t.await(ctx, func(_, ready int) bool { return ready >= n })
}

// AwaitGone waits until there are none.
func (t *Tracker) AwaitGone(ctx context.Context) error {
	return t.await(ctx, func(known, _ int) bool { return known == 0 })
}

func (t *Tracker) await(ctx context.Context, is func(known, ready int) bool) error {
	for {
		known, ready := t.counts()
		if is(known, ready) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d objects are there, %d of them ready: %w", known, ready, ctx.Err())
		case err := <-t.done:
			t.done <- err
			return fmt.Errorf("watching: %w", err)
		case <-t.changed:
			// Counting takes time, and is for each change only when they are few.
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// CreateAll creates objects as fast as the API server takes them.
func (w *World) CreateAll(ctx context.Context, objects []client.Object) error {
	return Each(ctx, objects, func(ctx context.Context, obj client.Object) error { return w.Client.Create(ctx, obj) })
}

// DeleteAll deletes objects as fast as the API server takes it; one that is gone is no error.
func (w *World) DeleteAll(ctx context.Context, objects []client.Object) error {
	return Each(ctx, objects, func(ctx context.Context, obj client.Object) error {
		return client.IgnoreNotFound(w.Client.Delete(ctx, obj))
	})
}

// Each writes objects, as many at a time as all scenarios do.
func Each(ctx context.Context, objects []client.Object, write func(context.Context, client.Object) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for _, obj := range objects {
		group.Go(func() error { return write(ctx, obj) })
	}
	return group.Wait()
}

// Items returns the objects of a list.
func Items(list client.ObjectList) ([]client.Object, error) {
	objects, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	out := make([]client.Object, 0, len(objects))
	for _, obj := range objects {
		out = append(out, obj.(client.Object))
	}
	return out, nil
}
