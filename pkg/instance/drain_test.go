// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func newTestQueue(d *drain) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return d.newQueue("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
}

func TestStopWaitsForTheItemBeingWorkedOn(t *testing.T) {
	g := NewWithT(t)
	d := newDrain()
	queue := newTestQueue(d)
	queue.Add(request("a"))
	item, shutdown := queue.Get()
	g.Expect(shutdown).To(BeFalse())

	stopped := make(chan error, 1)
	go func() { stopped <- d.stop(t.Context()) }()

	g.Consistently(stopped, 200*time.Millisecond).ShouldNot(Receive(), "the item is still being worked on")
	queue.Done(item)
	g.Eventually(stopped).Should(Receive(BeNil()), "nothing is being worked on any more")
}

func TestStopHandsOutNothingMore(t *testing.T) {
	g := NewWithT(t)
	d := newDrain()
	queue := newTestQueue(d)
	queue.Add(request("a"))
	queue.Add(request("b"))

	g.Expect(d.stop(t.Context())).To(Succeed())
	g.Expect(queue.ShutDown).NotTo(Panic(), "the controller shuts its queue as well")

	_, shutdown := queue.Get()
	g.Expect(shutdown).To(BeTrue(), "what is queued is left to the next leader")
	_, shutdown = newTestQueue(d).Get()
	g.Expect(shutdown).To(BeTrue(), "a queue made after the stop is shut as well")
}

func TestStopGivesUpWhenItsTimeIsOver(t *testing.T) {
	g := NewWithT(t)
	d := newDrain()
	queue := newTestQueue(d)
	queue.Add(request("a"))
	queue.Get()

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	g.Expect(d.stop(ctx)).To(MatchError(ContainSubstring("1 reconciles did not end in time")))
}

func TestWorkersThatRaceWithStopLeaveNothingUncounted(t *testing.T) {
	g := NewWithT(t)
	d := newDrain()
	queue := newTestQueue(d)
	for i := range 1000 {
		queue.Add(request(time.Duration(i).String()))
	}

	done := make(chan struct{})
	for range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				item, shutdown := queue.Get()
				if shutdown {
					return
				}
				queue.Done(item)
			}
		}()
	}

	g.Expect(d.stop(t.Context())).To(Succeed())
	d.mu.Lock()
	g.Expect(d.inFlight).To(BeZero())
	d.mu.Unlock()
	for range 8 {
		g.Eventually(done).Should(Receive(), "every worker ends")
	}
}

func TestStopNeverHangsWhileItemsAreHandedOut(t *testing.T) {
	const workers = 20
	for round := range 500 {
		d := newDrain()
		queue := newTestQueue(d)
		var running sync.WaitGroup
		taken := make(chan struct{}, workers)
		for range workers {
			running.Go(func() {
				for {
					item, shutdown := queue.Get()
					if shutdown {
						return
					}
					taken <- struct{}{}
					queue.Done(item)
				}
			})
		}
		for i := range workers {
			queue.Add(request(strconv.Itoa(i)))
		}
		for range round % workers {
			<-taken
		}

		ended := make(chan error, 1)
		go func() {
			err := d.stop(t.Context())
			running.Wait()
			ended <- err
		}()
		select {
		case err := <-ended:
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
		case <-time.After(10 * time.Second):
			t.Fatalf("the stop hangs in round %d", round)
		}
	}
}

func TestQueuesForgetNoFailuresOfOthers(t *testing.T) {
	g := NewWithT(t)
	d := newDrain()
	shared := workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()
	one, other := d.newQueue("one", shared), d.newQueue("other", shared)
	t.Cleanup(one.ShutDown)
	t.Cleanup(other.ShutDown)
	local := request("local")

	one.AddRateLimited(local)
	one.AddRateLimited(local)
	g.Expect(one.NumRequeues(local)).To(Equal(2))
	g.Expect(other.NumRequeues(local)).To(BeZero(), "another kind of the same name has not failed")
	other.Forget(local)
	g.Expect(one.NumRequeues(local)).To(Equal(2))
}
