// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"net/netip"
	"slices"
	"sync"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Pool gives addresses to Services, the lowest that is free first. It may be used by several goroutines at a time. What it
// holds in memory grows with the addresses in use, not with the size of its ranges.
type Pool struct {
	mu sync.Mutex
	// ranges are those that have addresses beside reserved ones, by family, sorted by their first address. They may overlap.
	ranges   map[corev1.IPFamily][]netipx.IPRange
	reserved sets.Set[netip.Addr]
	owners   map[netip.Addr]types.NamespacedName
	held     map[types.NamespacedName][]netip.Addr
	// next is an address of each family below which none is free: the search for a free one begins there.
	next map[corev1.IPFamily]netip.Addr
	// waiting has who was turned away, in this order.
	waiting []types.NamespacedName
}

// NewPool returns a Pool of these ranges, which may overlap, without the reserved addresses.
func NewPool(ranges []netipx.IPRange, reserved ...netip.Addr) *Pool {
	p := &Pool{
		ranges:   map[corev1.IPFamily][]netipx.IPRange{},
		reserved: sets.New(reserved...),
		owners:   map[netip.Addr]types.NamespacedName{},
		held:     map[types.NamespacedName][]netip.Addr{},
		next:     map[corev1.IPFamily]netip.Addr{},
	}
	for _, r := range slices.SortedFunc(slices.Values(ranges), func(a, b netipx.IPRange) int { return a.From().Compare(b.From()) }) {
		family := FamilyOf(r.From())
		p.ranges[family] = append(p.ranges[family], r)
	}
	for family := range p.ranges {
		if !p.lowestFree(family).IsValid() {
			delete(p.ranges, family)
		}
	}
	return p
}

// FamilyOf returns the family of an address.
func FamilyOf(address netip.Addr) corev1.IPFamily {
	if address.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// Request is what an owner wants.
type Request struct {
	// Family is the family of the address.
	Family corev1.IPFamily
	// Address is the address, if it is to be a certain one.
	Address netip.Addr
}

// Answer is what an owner gets for a Request.
type Answer struct {
	// Address is one that the owner has now, unless Reason says why it has none. With neither of them, there would have been
	// one if another of the requests had not failed.
	Address netip.Addr
	// Reason is ReasonInUse or ReasonNotInPool for a certain address, ReasonExhausted or ReasonFamily for any.
	Reason string
}

// Ask answers each of an owner's requests. For any address of a family, it is the lowest of those that the owner has, or
// else the lowest that is free. If all are needed and one cannot be had, the owner gets none of the others. An owner that
// was turned away with ReasonInUse or ReasonExhausted is among the next that Keep and Release name.
func (p *Pool) Ask(owner types.NamespacedName, all bool, requests ...Request) []Answer {
	p.mu.Lock()
	defer p.mu.Unlock()

	answers, failed, wait := make([]Answer, len(requests)), false, false
	for i, request := range requests {
		answers[i].Address, answers[i].Reason = p.look(owner, request)
		failed = failed || answers[i].Reason != ""
		wait = wait || answers[i].Reason == ReasonInUse || answers[i].Reason == ReasonExhausted
	}

	for i := range answers {
		switch address := answers[i].Address; {
		case all && failed:
			answers[i].Address = netip.Addr{}
		case answers[i].Reason == "" && p.owners[address] != owner:
			p.take(owner, address)
		}
	}
	switch {
	case !wait:
		p.stopWaiting(owner)
	case !slices.Contains(p.waiting, owner):
		p.waiting = append(p.waiting, owner)
	}
	return answers
}

// Keep takes from an owner all its addresses but the given ones. If it frees any, it returns the owners that were turned
// away before, those who came first first: they may ask again now.
func (p *Pool) Keep(owner types.NamespacedName, addresses ...netip.Addr) []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.keep(owner, addresses)
}

// Release takes from an owner all its addresses, and forgets that it wants any. It returns what Keep does.
func (p *Pool) Release(owner types.NamespacedName) []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.stopWaiting(owner)
	return p.keep(owner, nil)
}

func (p *Pool) keep(owner types.NamespacedName, addresses []netip.Addr) []types.NamespacedName {
	var kept []netip.Addr
	for _, address := range p.held[owner] {
		if slices.Contains(addresses, address) {
			kept = append(kept, address)
			continue
		}
		delete(p.owners, address)
		if family := FamilyOf(address); address.Less(p.next[family]) {
			p.next[family] = address
		}
	}
	if len(kept) == len(p.held[owner]) {
		return nil
	}
	p.held[owner] = kept
	if len(kept) == 0 {
		delete(p.held, owner)
	}
	woken := p.waiting
	p.waiting = nil
	return woken
}

func (p *Pool) stopWaiting(owner types.NamespacedName) {
	p.waiting = slices.DeleteFunc(p.waiting, func(other types.NamespacedName) bool { return other == owner })
}

// look returns which address a request leads to, or why there is none.
func (p *Pool) look(owner types.NamespacedName, request Request) (netip.Addr, string) {
	if address := request.Address; address.IsValid() {
		holder, isHeld := p.owners[address]
		isInRange := func(r netipx.IPRange) bool { return r.Contains(address) }
		switch {
		case isHeld && holder != owner:
			return netip.Addr{}, ReasonInUse
		case p.reserved.Has(address) || !slices.ContainsFunc(p.ranges[request.Family], isInRange):
			return netip.Addr{}, ReasonNotInPool
		}
		return address, ""
	}

	for _, address := range p.held[owner] {
		if FamilyOf(address) == request.Family {
			return address, ""
		}
	}
	if len(p.ranges[request.Family]) == 0 {
		return netip.Addr{}, ReasonFamily
	}
	if address := p.lowestFree(request.Family); address.IsValid() {
		return address, ""
	}
	return netip.Addr{}, ReasonExhausted
}

// lowestFree returns the lowest free address of a family, the zero one if there is none.
func (p *Pool) lowestFree(family corev1.IPFamily) netip.Addr {
	next := p.next[family]
	for _, r := range p.ranges[family] {
		if next.Less(r.From()) {
			next = r.From()
		}
		for ; r.Contains(next); next = next.Next() {
			if _, isHeld := p.owners[next]; !isHeld && !p.reserved.Has(next) {
				p.next[family] = next
				return next
			}
		}
	}
	p.next[family] = next
	return netip.Addr{}
}

func (p *Pool) take(owner types.NamespacedName, address netip.Addr) {
	p.owners[address] = owner
	p.held[owner] = append(p.held[owner], address)
	slices.SortFunc(p.held[owner], netip.Addr.Compare)
}
