// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"net/netip"
	"slices"
	"sync"
)

// addresses hands out addresses, each to one holder at a time. Package doc tells the ranges.
type addresses struct {
	lock   sync.Mutex
	holder map[netip.Addr]string
	held   map[string][]netip.Addr
	// last is the address given out last in a range: the search goes on behind it, so that addresses are reused late.
	last map[netip.Prefix]netip.Addr
}

func newAddresses() *addresses {
	return &addresses{holder: map[netip.Addr]string{}, held: map[string][]netip.Addr{}, last: map[netip.Prefix]netip.Addr{}}
}

// hold notes addresses that a holder has already.
func (a *addresses) hold(holder string, texts ...string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			a.take(holder, address)
		}
	}
}

func (a *addresses) take(holder string, address netip.Addr) {
	if _, ok := a.holder[address]; ok {
		return
	}
	a.holder[address] = holder
	a.held[holder] = append(a.held[holder], address)
}

// release gives back all that a holder has.
func (a *addresses) release(holder string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	for _, address := range a.held[holder] {
		delete(a.holder, address)
	}
	delete(a.held, holder)
}

// get returns an address from each range, those that the holder has already first. A range that is full gives none.
func (a *addresses) get(holder string, ranges ...netip.Prefix) []string {
	a.lock.Lock()
	defer a.lock.Unlock()
	var out []string
	for _, prefix := range ranges {
		address, ok := a.in(holder, prefix.Masked())
		if !ok {
			continue
		}
		a.take(holder, address)
		out = append(out, address.String())
	}
	return out
}

// maxSearch is how many addresses of a range are looked at.
const maxSearch = 1 << 16

func (a *addresses) in(holder string, prefix netip.Prefix) (netip.Addr, bool) {
	if i := slices.IndexFunc(a.held[holder], prefix.Contains); i >= 0 {
		return a.held[holder][i], true
	}
	first := prefix.Addr().Next()
	next := first
	if last, ok := a.last[prefix]; ok {
		next = last.Next()
	}
	for range maxSearch {
		// The first address names the range, the second is the gateway's, and the last one of a range of IPv4 is everybody's.
		if !prefix.Contains(next) || (next.Is4() && !prefix.Contains(next.Next())) {
			next = first.Next()
		}
		if _, ok := a.holder[next]; !ok && next != first && prefix.Contains(next) {
			a.last[prefix] = next
			return next, true
		}
		next = next.Next()
	}
	return netip.Addr{}, false
}

// prefixes returns those of the texts that are ranges of addresses.
func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			out = append(out, prefix)
		}
	}
	return out
}
