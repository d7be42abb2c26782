// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes/stage"
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
	// seenAfter is how long the cache may be behind.
	seenAfter = 30 * time.Second
	// leaseParallel is how many Leases are renewed at a time.
	leaseParallel = 8
)

// item is something to look at.
type item struct {
	kind, namespace, name string
}

// intent is what the last plan says of a Node: to be as its group says, to stay as it is if there is none, or to go.
type intent struct {
	group  *group
	remove bool
}

// passage is a stage that an object waits for, or has passed.
type passage struct {
	uid   string
	stage string
	at    time.Time
	// passed is the resource version in which the object passed, and written the one that this led to. What is in the first,
	// or older than the second, is no news.
	passed, written string
}

func (p passage) outdates(uid, version string) bool {
	if p.uid != uid || version == "" {
		return false
	}
	if p.passed == version {
		return true
	}
	written, err := strconv.ParseUint(p.written, 10, 64)
	if err != nil {
		return false
	}
	seen, err := strconv.ParseUint(version, 10, 64)
	return err == nil && seen < written
}

// shoot keeps the Nodes of one Worker alive. It has a fixed number of goroutines, however many Nodes there are: what waits,
// waits in a queue.
type shoot struct {
	opts   Options
	stages *stage.Set
	worker string
	client kubernetes.Interface
	// access tells connections apart.
	access string
	log    logr.Logger

	nodes, pods, oscs cache.SharedIndexInformer
	addresses         *addresses
	queue             workqueue.TypedRateLimitingInterface[item]
	leases            workqueue.TypedRateLimitingInterface[string]

	lock   sync.Mutex
	groups map[string]*group
	ranges []netip.Prefix
	// anew makes the next plan look at all Nodes.
	anew     bool
	intents  map[string]intent
	passages map[item]passage
	beats    map[string]beat
	// made tells when Nodes were created that the cache is yet to see.
	made map[string]time.Time

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

func newShoot(opts Options, stages *stage.Set, key client.ObjectKey, clients kubernetes.Interface, access string) *shoot {
	s := &shoot{
		opts:      opts,
		stages:    stages,
		worker:    key.Name,
		client:    clients,
		access:    access,
		log:       opts.Log.WithValues("worker", key),
		addresses: newAddresses(),
		groups:    map[string]*group{},
		intents:   map[string]intent{},
		passages:  map[item]passage{},
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
	defer s.lock.Unlock()
	s.groups = map[string]*group{}
	for _, g := range groups {
		s.groups[g.name] = g
	}
	if len(ranges) > 0 {
		s.ranges = ranges
	}
	s.anew = true
	s.queue.AddAfter(item{kind: kindPlan}, planPause)
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
		if !cache.WaitForCacheSync(ctx.Done(), s.nodes.HasSynced, s.pods.HasSynced, s.oscs.HasSynced) {
			return
		}
		s.holdAddresses()
		for range s.opts.Parallel {
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

// pass carries out the stage that is next for an object, once its delay is over. An object without one, and one in the state in
// which it has passed already, is left alone: what comes of that is yet to be seen.
func (s *shoot) pass(key item, uid, version string, object map[string]any, play func(*stage.Compiled) (string, error)) error {
	next := s.stages.Match(key.kind, object)
	if next == nil {
		s.forget(key)
		return nil
	}

	now := s.opts.Clock.Now()
	s.lock.Lock()
	last, ok := s.passages[key]
	if last.outdates(uid, version) {
		s.lock.Unlock()
		return nil
	}
	if !ok || last.uid != uid || last.stage != next.Name || last.at.IsZero() {
		last = passage{uid: uid, stage: next.Name, at: now.Add(next.Wait(rand.Float64()))} // #nosec G404 -- jitter
		s.passages[key] = last
	}
	s.lock.Unlock()
	if wait := last.at.Sub(now); wait > 0 {
		s.queue.AddAfter(key, wait)
		return nil
	}

	written, err := play(next)
	if err != nil {
		return err
	}
	s.lock.Lock()
	s.passages[key] = passage{uid: uid, stage: next.Name, passed: version, written: written}
	s.lock.Unlock()
	return nil
}

func (s *shoot) forget(key item) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.passages, key)
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
