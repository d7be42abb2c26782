// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	kindPlan = "Plan"
	kindNode = "Node"
	kindPod  = "Pod"

	// planPause gathers the events that make a plan due.
	planPause = 50 * time.Millisecond
	// retryFirst and retryLast are the pauses before something that failed is tried again.
	retryFirst = 50 * time.Millisecond
	retryLast  = 10 * time.Second
	// parallel is how many requests for Nodes and pods of one shoot are under way at most.
	parallel = 16
	// seenAfter is how long the cache may be behind.
	seenAfter = 30 * time.Second
	// leaseParallel is how many Leases are renewed at a time.
	leaseParallel = 8
)

// item is something to look at.
type item struct {
	kind, namespace, name string
}

// write is the last write of an object's status: the version that was looked at, and the one that this led to, if it is known.
type write struct {
	seen, written string
}

// shoot keeps the Nodes of one Worker alive. It has a fixed number of goroutines, however many Nodes there are: what waits,
// waits in a queue.
type shoot struct {
	opts   Options
	worker string
	client kubernetes.Interface
	// access tells connections apart.
	access string
	log    logr.Logger

	nodes, pods, oscs cache.SharedIndexInformer
	synced            []cache.InformerSynced
	addresses         *addresses
	queue             workqueue.TypedRateLimitingInterface[item]
	leases            workqueue.TypedRateLimitingInterface[string]

	lock   sync.Mutex
	groups map[string]*group
	ranges []netip.Prefix
	// anew makes the next plan look at all Nodes.
	anew bool
	// missing and surplus are what the last plan says of Nodes.
	missing map[string]*group
	surplus sets.Set[string]
	writes  map[item]write
	beats   map[string]beat
	// made tells when Nodes were created that the cache is yet to see.
	made map[string]time.Time

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

func newShoot(opts Options, key client.ObjectKey, clients kubernetes.Interface, access string) *shoot {
	s := &shoot{
		opts:      opts,
		worker:    key.Name,
		client:    clients,
		access:    access,
		log:       opts.Log.WithValues("worker", key),
		addresses: newAddresses(),
		groups:    map[string]*group{},
		ranges:    prefixes(nodeRange),
		writes:    map[item]write{},
		beats:     map[string]beat{},
		made:      map[string]time.Time{},
	}
	s.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[item](retryFirst, retryLast),
		workqueue.TypedRateLimitingQueueConfig[item]{Clock: opts.Clock},
	)
	s.leases = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryLast),
		workqueue.TypedRateLimitingQueueConfig[string]{Clock: opts.Clock},
	)
	s.newInformers()
	return s
}

// want says what there is to be, and has all Nodes looked at.
func (s *shoot) want(groups []*group, ranges []netip.Prefix) {
	s.lock.Lock()
	s.groups = map[string]*group{}
	for _, g := range groups {
		s.groups[g.name] = g
	}
	if len(ranges) > 0 {
		s.ranges = ranges
	}
	s.lock.Unlock()
	s.lookAtAll()
}

// lookAtAll has all Nodes looked at.
func (s *shoot) lookAtAll() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.anew = true
	s.queue.AddAfter(item{kind: kindPlan}, planPause)
}

// start lets all run until the context ends, or stop.
func (s *shoot) start(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(ctx)
	for _, informer := range []cache.SharedIndexInformer{s.nodes, s.pods, s.oscs} {
		s.ended.Go(func() { informer.RunWithContext(ctx) })
	}
	s.ended.Go(func() {
		<-ctx.Done()
		s.queue.ShutDown()
		s.leases.ShutDown()
	})
	s.ended.Go(func() {
		// Before all is known, Nodes would be made that there are, and addresses given out twice.
		if !cache.WaitForCacheSync(ctx.Done(), s.synced...) {
			return
		}
		for range parallel {
			s.ended.Go(func() { work(ctx, s, s.queue, s.process) })
		}
		for range leaseParallel {
			s.ended.Go(func() { work(ctx, s, s.leases, s.beat) })
		}
	})
}

// stop returns when nothing runs any more. A shoot that was stopped cannot be started again.
func (s *shoot) stop() {
	if s.cancel == nil {
		s.queue.ShutDown()
		s.leases.ShutDown()
		return
	}
	s.cancel()
	s.ended.Wait()
}

// work handles items until the queue is shut down.
func work[T comparable](ctx context.Context, s *shoot, queue workqueue.TypedRateLimitingInterface[T], do func(context.Context, T) error) {
	for {
		next, shutdown := queue.Get()
		if shutdown {
			return
		}
		err := do(ctx, next)
		switch {
		case err == nil:
			queue.Forget(next)
		case ctx.Err() == nil:
			s.log.V(1).Info("Trying again", "item", next, "reason", err.Error(), "failures", queue.NumRequeues(next))
			queue.AddRateLimited(next)
		}
		queue.Done(next)
	}
}

func (s *shoot) process(ctx context.Context, next item) error {
	switch next.kind {
	case kindPlan:
		s.plan()
		return nil
	case kindNode:
		return s.syncNode(ctx, next)
	default:
		return s.syncPod(ctx, next)
	}
}

// isOutdated reports whether the cache has an object in a state in which, or before which, its status was written. What comes of
// that is yet to be seen.
func (s *shoot) isOutdated(key item, version string) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	last, ok := s.writes[key]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, last.written)
	return last.seen == version || err == nil && order < 0
}

// patched notes that the status of an object was written. That it is gone by now, or another one has its name, is no error.
func (s *shoot) patched(key item, seen string, answer metav1.Object, err error) error {
	written := ""
	if err == nil {
		written = answer.GetResourceVersion()
	}
	if err = gone(err); err == nil {
		s.wrote(key, seen, written)
	}
	return err
}

func (s *shoot) wrote(key item, seen, written string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.writes[key] = write{seen: seen, written: written}
}

func (s *shoot) forget(key item) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.writes, key)
}

// making notes that a Node is being created. It returns how long that is not to be done once more, as it has been done and the
// cache is yet to see it; that is not waited for for ever, as the Node may be gone before the cache has seen it.
func (s *shoot) making(name string) time.Duration {
	s.lock.Lock()
	defer s.lock.Unlock()
	now := s.opts.Clock.Now()
	if at, ok := s.made[name]; ok && now.Sub(at) < seenAfter {
		return seenAfter - now.Sub(at)
	}
	s.made[name] = now
	return 0
}

// seen notes that the cache has seen a Node, or that it was not created.
func (s *shoot) seen(name string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.made, name)
}
