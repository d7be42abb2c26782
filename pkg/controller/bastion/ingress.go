// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// Ranges of addresses that no packet comes from. A Service without any range of a family is open to all of that family.
const (
	nobodyV4 = "255.255.255.255/32"
	nobodyV6 = "::/128"
)

// parseIngress validates spec.ingress of a Bastion and returns the ranges in their canonical form, each once.
func parseIngress(policies []extensionsv1alpha1.BastionIngressPolicy) ([]networkingv1.IPBlock, field.ErrorList) {
	var (
		blocks []networkingv1.IPBlock
		errs   field.ErrorList
	)
	for i, policy := range policies {
		path := field.NewPath("spec", "ingress").Index(i).Child("ipBlock")
		prefix, err := parseRange(path.Child("cidr"), policy.IPBlock.CIDR)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		block := networkingv1.IPBlock{CIDR: prefix.String()}
		for j, value := range policy.IPBlock.Except {
			path := path.Child("except").Index(j)
			except, err := parseRange(path, value)
			switch {
			case err != nil:
				errs = append(errs, err)
			case !prefix.Contains(except.Addr()) || except.Bits() <= prefix.Bits():
				errs = append(errs, field.Invalid(path, value, "must be a range within, and smaller than, "+block.CIDR))
			default:
				block.Except = append(block.Except, except.String())
			}
		}
		if !slices.ContainsFunc(blocks, func(other networkingv1.IPBlock) bool {
			return other.CIDR == block.CIDR && slices.Equal(other.Except, block.Except)
		}) {
			blocks = append(blocks, block)
		}
	}
	return blocks, errs
}

func parseRange(path *field.Path, value string) (netip.Prefix, *field.Error) {
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		return netip.Prefix{}, field.Invalid(path, value, "must be a range of IP addresses such as 192.0.2.0/24 or 2001:db8::/64")
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, field.Invalid(path, value, fmt.Sprintf("must be written as a range of IPv4 addresses, such as %s/32", prefix.Addr().Unmap()))
	}
	return prefix.Masked(), nil
}

// sourceRanges returns the ranges for the Service. They can't say what is excepted, which the NetworkPolicy does.
func sourceRanges(blocks []networkingv1.IPBlock) []string {
	var (
		ranges []string
		v4, v6 bool
	)
	for _, block := range blocks {
		if !slices.Contains(ranges, block.CIDR) {
			ranges = append(ranges, block.CIDR)
		}
		is4 := netip.MustParsePrefix(block.CIDR).Addr().Is4()
		v4, v6 = v4 || is4, v6 || !is4
	}
	if !v4 {
		ranges = append(ranges, nobodyV4)
	}
	if !v6 {
		ranges = append(ranges, nobodyV6)
	}
	return ranges
}
