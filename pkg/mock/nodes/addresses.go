// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"net/netip"
	"slices"
	"sync"
)

// addresses hands out addresses of Nodes and pods. Those in use are what the caches show. What was handed out but is in no
// cache yet is not handed out again, as the search goes on behind the last one; so addresses are reused late, too.
type addresses struct {
	lock sync.Mutex
	used map[netip.Addr]struct{}
	last map[netip.Prefix]netip.Addr
}

func newAddresses() *addresses {
	return &addresses{used: map[netip.Addr]struct{}{}, last: map[netip.Prefix]netip.Addr{}}
}

// replace notes that an object has other addresses than before.
func (a *addresses) replace(before, after []string) {
	if slices.Equal(before, after) {
		return
	}
	a.lock.Lock()
	defer a.lock.Unlock()
	for _, text := range before {
		if address, err := netip.ParseAddr(text); err == nil {
			delete(a.used, address)
		}
	}
	for _, text := range after {
		if address, err := netip.ParseAddr(text); err == nil {
			a.used[address] = struct{}{}
		}
	}
}

// next returns an address from each range: one that the object has, or one that is free. A range that is full gives none.
func (a *addresses) next(has []string, ranges ...netip.Prefix) []string {
	a.lock.Lock()
	defer a.lock.Unlock()
	var out []string
	for _, prefix := range ranges {
		if i := slices.IndexFunc(has, func(text string) bool {
			address, err := netip.ParseAddr(text)
			return err == nil && prefix.Contains(address)
		}); i >= 0 {
			out = append(out, has[i])
		} else if address, ok := a.free(prefix.Masked()); ok {
			out = append(out, address.String())
		}
	}
	return out
}

// maxSearch is how many addresses of a range are looked at.
const maxSearch = 1 << 16

func (a *addresses) free(prefix netip.Prefix) (netip.Addr, bool) {
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
		if _, ok := a.used[next]; !ok && next != first && prefix.Contains(next) {
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
