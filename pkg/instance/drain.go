// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// drain knows the queues of all controllers. controller-runtime cancels the context of a reconcile at the moment in
// which the manager is told to stop; shutting the queues first is the only way to let workers end what they have begun.
type drain struct {
	mu       sync.Mutex
	queues   []*countedQueue
	stopped  bool
	inFlight int
	idle     chan struct{}
}

func newDrain() *drain {
	return &drain{idle: make(chan struct{})}
}

// newQueue makes a queue as controller-runtime does by default, but one that counts what is being worked on.
func (d *drain) newQueue(name string, rateLimiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	queue := &countedQueue{drain: d, PriorityQueue: priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) {
		o.RateLimiter = rateLimiter
	})}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.queues = append(d.queues, queue)
	if d.stopped {
		queue.ShutDown()
	}
	return queue
}

// stop shuts all queues and waits until nothing is being worked on any more. What is queued is left: the next leader
// gets it anew from its informers.
func (d *drain) stop(ctx context.Context) error {
	d.mu.Lock()
	if !d.stopped {
		d.stopped = true
		for _, queue := range d.queues {
			queue.ShutDown()
		}
		d.closeIfIdle()
	}
	d.mu.Unlock()

	select {
	case <-d.idle:
		return nil
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		return fmt.Errorf("%d reconciles did not end in time: %w", d.inFlight, ctx.Err())
	}
}

// begin counts an item, unless the drain has been stopped.
func (d *drain) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return false
	}
	d.inFlight++
	return true
}

func (d *drain) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight--
	d.closeIfIdle()
}

func (d *drain) closeIfIdle() {
	if !d.stopped || d.inFlight > 0 {
		return
	}
	select {
	case <-d.idle:
	default:
		close(d.idle)
	}
}

type countedQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	drain *drain
	once  sync.Once
}

// ShutDown may be called twice: by the drain, and by the controller when its context ends.
func (q *countedQueue) ShutDown() {
	q.once.Do(q.PriorityQueue.ShutDown)
}

// ShutDownWithDrain is ShutDown; the drain waits for what is being worked on.
func (q *countedQueue) ShutDownWithDrain() {
	q.ShutDown()
}

// GetWithPriority hands out an item only if it has been counted: one that was taken while stop looked away is left.
func (q *countedQueue) GetWithPriority() (reconcile.Request, int, bool) {
	item, priority, shutdown := q.PriorityQueue.GetWithPriority()
	if shutdown {
		return reconcile.Request{}, 0, true
	}
	if !q.drain.begin() {
		q.PriorityQueue.Done(item)
		return reconcile.Request{}, 0, true
	}
	return item, priority, false
}

// Get is GetWithPriority without the priority.
func (q *countedQueue) Get() (reconcile.Request, bool) {
	item, _, shutdown := q.GetWithPriority()
	return item, shutdown
}

// Done is called by the worker when it has ended with an item.
func (q *countedQueue) Done(item reconcile.Request) {
	q.PriorityQueue.Done(item)
	q.drain.end()
}
