// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

const (
	// Machines get their addresses from an IPPool of Calico with the range of the shoot's nodes, which has to hold one block
	// at least (Calico's documentation of IPPools, blockSize).
	nodesBitsMaxV4 = 26
	nodesBitsMaxV6 = 122
	// The largest ranges: the largest of RFC 1918 but one, and all that a site has of unique local addresses (RFC 4193). A
	// larger one leaves nothing to others, and what it overlaps gets no pool.
	nodesBitsMinV4 = 12
	nodesBitsMinV6 = 48
)

// privateRanges returns the ranges that nobody else on the internet has: private (RFC 1918) and shared (RFC 6598) ones, and
// unique local addresses (RFC 4193).
func privateRanges() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("100.64.0.0/10"),
		netip.MustParsePrefix("fc00::/7"),
	}
}

// NodeRange returns an error if a range must not be that of a shoot's nodes, whatever else uses it: each node of the seed
// gets routes for it. It must be a part of a private range or of one that the operator allows, and not too large.
func NodeRange(nodes netip.Prefix, allowed []netip.Prefix) error {
	minimum := nodesBitsMinV4
	if nodes.Addr().Is6() {
		minimum = nodesBitsMinV6
	}
	switch {
	case !slices.ContainsFunc(append(privateRanges(), allowed...), func(r netip.Prefix) bool { return r.Bits() <= nodes.Bits() && r.Contains(nodes.Addr()) }):
		return fmt.Errorf("is not a private range: choose a part of one of %v, or have the operator list it in machines.nodeCIDRs", privateRanges())
	case nodes.Bits() < minimum:
		return fmt.Errorf("is too large: choose a /%d or smaller", minimum)
	}
	return nil
}

// Nodes checks the range of a shoot's nodes. allowed are ranges that the operator allows besides private ones. path is that
// of spec.networking.
func Nodes(networking *gardencorev1beta1.Networking, allowed []netip.Prefix, path *field.Path) field.ErrorList {
	if networking == nil || networking.Nodes == nil {
		return nil
	}
	value, path, others := *networking.Nodes, path.Child("nodes"), path
	nodes, err := netip.ParsePrefix(value)
	if err != nil {
		return field.ErrorList{field.Invalid(path, value, "it is no CIDR")}
	}

	var errs field.ErrorList
	if err := NodeRange(nodes, allowed); err != nil {
		errs = append(errs, field.Invalid(path, value, "it "+err.Error()))
	}
	limit := nodesBitsMaxV4
	if nodes.Addr().Is6() {
		limit = nodesBitsMaxV6
	}
	if nodes.Bits() > limit {
		errs = append(errs, field.Invalid(path, value, fmt.Sprintf("it is too small: machines get their addresses by blocks of a /%d, choose a range that has one at least", limit)))
	}
	for _, other := range []struct {
		field string
		cidr  *string
	}{{"pods", networking.Pods}, {"services", networking.Services}} {
		if overlaps(nodes, other.cidr) {
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("it overlaps %s (%s): choose ranges that are apart", others.Child(other.field), *other.cidr)))
		}
	}
	return errs
}

// NodesInSeed checks that machines which run in a seed have addresses that nothing else of the seed has: they are pods
// there. path is that of spec.networking.
func NodesInSeed(networking *gardencorev1beta1.Networking, seed *gardencorev1beta1.Seed, path *field.Path) field.ErrorList {
	if networking == nil || networking.Nodes == nil {
		return nil
	}
	nodes, err := netip.ParsePrefix(*networking.Nodes)
	if err != nil {
		return nil // Nodes tells.
	}
	type use struct {
		field string
		cidr  *string
	}
	networks := seed.Spec.Networks
	uses := []use{{"nodes", networks.Nodes}, {"pods", &networks.Pods}, {"services", &networks.Services}}
	for i := range networks.BlockCIDRs {
		uses = append(uses, use{fmt.Sprintf("blockCIDRs[%d]", i), &networks.BlockCIDRs[i]})
	}
	var errs field.ErrorList
	for _, used := range uses {
		if overlaps(nodes, used.cidr) {
			errs = append(errs, field.Invalid(path.Child("nodes"), *networking.Nodes, fmt.Sprintf(
				"it overlaps spec.networks.%s of the Seed %s (%s), in which the machines are pods: choose another range, or another seed", used.field, seed.Name, *used.cidr)))
		}
	}
	return errs
}

func overlaps(prefix netip.Prefix, other *string) bool {
	if other == nil {
		return false
	}
	parsed, err := netip.ParsePrefix(*other)
	return err == nil && prefix.Overlaps(parsed)
}
