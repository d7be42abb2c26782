// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"net/netip"
	"slices"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// A list of ranges is of one family, sorted, and no two ranges overlap or touch. All of IPv4 is before all of IPv6, and
// does not touch it.

// union returns the list, or rather the lists one after the other, of all addresses in these ranges.
func union(ranges []configv1alpha1.AddressRange) []configv1alpha1.AddressRange {
	sorted := slices.SortedFunc(slices.Values(ranges), func(a, b configv1alpha1.AddressRange) int { return a.First.Compare(b.First) })
	var out []configv1alpha1.AddressRange
	for _, r := range sorted {
		if len(out) > 0 {
			last := &out[len(out)-1]
			if !last.Last.Less(r.First) || last.Last.Next() == r.First {
				if last.Last.Less(r.Last) {
					last.Last = r.Last
				}
				continue
			}
		}
		out = append(out, r)
	}
	return out
}

// find returns which range has an address, or before which one there would be a range for it.
func find(ranges []configv1alpha1.AddressRange, address netip.Addr) (int, bool) {
	return slices.BinarySearchFunc(ranges, address, func(r configv1alpha1.AddressRange, address netip.Addr) int {
		switch {
		case r.Last.Less(address):
			return -1
		case address.Less(r.First):
			return 1
		default:
			return 0
		}
	})
}

// without takes an address out of the range that has it.
func without(ranges []configv1alpha1.AddressRange, i int, address netip.Addr) []configv1alpha1.AddressRange {
	r := &ranges[i]
	switch address {
	case r.First:
		if r.First == r.Last {
			if i == 0 {
				// The lowest address goes first, so this is the usual case.
				return ranges[1:]
			}
			return slices.Delete(ranges, i, i+1)
		}
		r.First = address.Next()
	case r.Last:
		r.Last = address.Prev()
	default:
		upper := configv1alpha1.AddressRange{First: address.Next(), Last: r.Last}
		r.Last = address.Prev()
		return slices.Insert(ranges, i+1, upper)
	}
	return ranges
}

// with adds an address that is in no range.
func with(ranges []configv1alpha1.AddressRange, address netip.Addr) []configv1alpha1.AddressRange {
	i, _ := find(ranges, address)
	after := i > 0 && ranges[i-1].Last.Next() == address
	before := i < len(ranges) && address.Next() == ranges[i].First
	switch {
	case after && before:
		ranges[i-1].Last = ranges[i].Last
		return slices.Delete(ranges, i, i+1)
	case after:
		ranges[i-1].Last = address
	case before:
		ranges[i].First = address
	default:
		return slices.Insert(ranges, i, configv1alpha1.AddressRange{First: address, Last: address})
	}
	return ranges
}
