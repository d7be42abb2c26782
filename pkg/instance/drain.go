// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// drain knows the queues of all controllers. controller-runtime cancels the context of a reconcile at the moment in
// which the manager is told to stop; shutting the queues first is the only way to let workers end what they have begun.
type drain struct {
	mu       sync.Mutex
	queues   []*countedQueue
	stopped  bool
	inFlight int
	// idle is closed when nothing is being worked on after a stop.
	idle chan struct{}
}

func newDrain() *drain {
	return &drain{idle: make(chan struct{})}
}

// A reconcile that failed is tried again after retryMin, then after twice the time of before, up to retryMax.
const (
	retryMin = 5 * time.Millisecond
	retryMax = 1000 * time.Second
)

// newQueue makes a queue that counts what is being worked on. It is not the priority queue that controllers have by
// default: until controller-runtime 0.25 that one can stall for good when it is shut while it hands out items, and a stop
// would then take all the time it is given. What is lost is that changes overtake what a start or a resync brings.
//
// Each queue has a limiter of its own, as several controllers may be made of the same options, and objects of different kinds
// have the same name. controller-runtime's for plain queues would let no more than ten requests a second through.
func (d *drain) newQueue(name string, _ workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	queue := &countedQueue{drain: d, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryMin, retryMax), workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name},
	)}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.queues = append(d.queues, queue)
	if d.stopped {
		queue.ShutDown()
	}
	return queue
}

// stop shuts all queues and waits until nothing is being worked on any more. What is queued is left: the next leader
// gets it anew from its informers. It is called once.
func (d *drain) stop(ctx context.Context) error {
	d.mu.Lock()
	d.stopped = true
	for _, queue := range d.queues {
		queue.ShutDown()
	}
	d.closeIfIdle()
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

// closeIfIdle is for whoever has just stopped the drain or ended an item, and holds the lock. After a stop nothing begins any more.
func (d *drain) closeIfIdle() {
	if d.stopped && d.inFlight == 0 {
		close(d.idle)
	}
}

type countedQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	drain *drain
}

// Get hands out an item only if it has been counted: what a queue that is shut still holds is left.
func (q *countedQueue) Get() (reconcile.Request, bool) {
	item, shutdown := q.TypedRateLimitingInterface.Get()
	if shutdown {
		return reconcile.Request{}, true
	}
	if !q.drain.begin() {
		q.TypedRateLimitingInterface.Done(item)
		return reconcile.Request{}, true
	}
	return item, false
}

// Done is called by the worker when it has ended with an item.
func (q *countedQueue) Done(item reconcile.Request) {
	q.TypedRateLimitingInterface.Done(item)
	q.drain.end()
}
