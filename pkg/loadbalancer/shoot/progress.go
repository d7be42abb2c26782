// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// errStillWaiting means that a wait has ended without what it was for.
var errStillWaiting = errors.New("still waiting")

// changes tells those who wait that an object in the seed has changed.
type changes struct {
	mu      sync.Mutex
	waiting map[string]map[chan struct{}]struct{}
}

func newChanges() *changes { return &changes{waiting: map[string]map[chan struct{}]struct{}{}} }

// tell wakes those who wait for an object.
func (c *changes) tell(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for waiter := range c.waiting[name] {
		select {
		case waiter <- struct{}{}:
		default: // It has not yet looked at an earlier change.
		}
	}
}

// await returns once done does so with true or an error. It calls done at first and after each change of the object. After
// the given time it returns errStillWaiting.
func (c *changes) await(ctx context.Context, name string, wait time.Duration, done func() (bool, error)) error {
	waiter := make(chan struct{}, 1)
	c.mu.Lock()
	if c.waiting[name] == nil {
		c.waiting[name] = map[chan struct{}]struct{}{}
	}
	c.waiting[name][waiter] = struct{}{}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.waiting[name], waiter); len(c.waiting[name]) == 0 {
			delete(c.waiting, name)
		}
	}()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-waiter:
		case <-timer.C:
			return errStillWaiting
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// progress is what the service controller is at, by the UID of a Service of the shoot. It is not kept over a restart: after
// that, the service controller looks at every Service anyway.
type progress struct {
	mu       sync.Mutex
	services map[types.UID]*serviceProgress
	// settled is called for a Service that the follower has passed over as a call was under way.
	settled func(types.NamespacedName)
}

type serviceProgress struct {
	underWay int
	// missed tells that the follower has asked meanwhile.
	missed bool
	// called tells that there was a call at all, and status is what it has returned: nil with an error.
	called bool
	status *corev1.LoadBalancerStatus
	// deleting tells that a deletion waits for the seed's Service to go.
	deleting bool
}

func newProgress() *progress {
	return &progress{services: map[types.UID]*serviceProgress{}, settled: func(types.NamespacedName) {}}
}

func (p *progress) of(uid types.UID) *serviceProgress {
	if p.services[uid] == nil {
		p.services[uid] = &serviceProgress{}
	}
	return p.services[uid]
}

// begin notes that a call is under way.
func (p *progress) begin(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.of(uid).underWay++
}

// end notes what a call has returned.
func (p *progress) end(service *corev1.Service, status *corev1.LoadBalancerStatus) {
	p.mu.Lock()
	entry := p.of(service.UID)
	entry.underWay--
	entry.called, entry.status = true, status
	missed := entry.missed && entry.underWay == 0
	if missed {
		entry.missed = false
	}
	settled := p.settled
	p.mu.Unlock()

	if missed {
		settled(keyOf(service))
	}
}

// onSettled sets what is called for a Service that the follower has passed over.
func (p *progress) onSettled(settled func(types.NamespacedName)) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.settled = settled
}

// isUnderWay tells whether a call is under way, whose end is told by settled.
func (p *progress) isUnderWay(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	entry := p.services[uid]
	if entry == nil || entry.underWay == 0 {
		return false
	}
	entry.missed = true
	return true
}

// last returns what the last call has returned, and false as long as there is none or one is under way, whose end is told
// by settled.
func (p *progress) last(uid types.UID) (*corev1.LoadBalancerStatus, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	entry := p.services[uid]
	if entry == nil {
		return nil, false
	}
	if entry.underWay > 0 {
		entry.missed = true
		return nil, false
	}
	return entry.status, entry.called
}

// deleting notes whether a deletion waits.
func (p *progress) deleting(uid types.UID, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.of(uid).deleting = waits
}

// takeDeleting tells whether a deletion waits, once.
func (p *progress) takeDeleting(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	entry := p.services[uid]
	if entry == nil || !entry.deleting {
		return false
	}
	entry.deleting = false
	return true
}

// forget is for a Service that is served no more.
func (p *progress) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()

	delete(p.services, uid)
}
