// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

func from(cidr string, except ...string) extensionsv1alpha1.BastionIngressPolicy {
	return extensionsv1alpha1.BastionIngressPolicy{IPBlock: networkingv1.IPBlock{CIDR: cidr, Except: except}}
}

func TestParseIngress(t *testing.T) {
	for name, tt := range map[string]struct {
		policies []extensionsv1alpha1.BastionIngressPolicy
		blocks   []networkingv1.IPBlock
		ranges   []string
		err      string
	}{
		"nobody": {ranges: []string{loadbalancer.NobodyV4, loadbalancer.NobodyV6}},
		"ranges of both families": {
			policies: []extensionsv1alpha1.BastionIngressPolicy{from("192.0.2.0/24"), from("2001:db8::/64")},
			blocks:   []networkingv1.IPBlock{{CIDR: "192.0.2.0/24"}, {CIDR: "2001:db8::/64"}},
			ranges:   []string{"192.0.2.0/24", "2001:db8::/64"},
		},
		"nobody of the family without a range": {
			policies: []extensionsv1alpha1.BastionIngressPolicy{from("0.0.0.0/0")},
			blocks:   []networkingv1.IPBlock{{CIDR: "0.0.0.0/0"}},
			ranges:   []string{"0.0.0.0/0", loadbalancer.NobodyV6},
		},
		"nobody of the other family without a range": {
			policies: []extensionsv1alpha1.BastionIngressPolicy{from("::/0")},
			blocks:   []networkingv1.IPBlock{{CIDR: "::/0"}},
			ranges:   []string{"::/0", loadbalancer.NobodyV4},
		},
		"a range written in another form, twice": {
			policies: []extensionsv1alpha1.BastionIngressPolicy{from("192.0.2.7/24"), from("192.0.2.0/24"), from("2001:DB8:0::1/64"), from("2001:db8::/64")},
			blocks:   []networkingv1.IPBlock{{CIDR: "192.0.2.0/24"}, {CIDR: "2001:db8::/64"}},
			ranges:   []string{"192.0.2.0/24", "2001:db8::/64"},
		},
		"what is excepted, of which the Service knows nothing": {
			policies: []extensionsv1alpha1.BastionIngressPolicy{from("10.0.0.0/8", "10.1.2.3/16"), from("10.0.0.0/8", "10.2.0.0/16")},
			blocks:   []networkingv1.IPBlock{{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}, {CIDR: "10.0.0.0/8", Except: []string{"10.2.0.0/16"}}},
			ranges:   []string{"10.0.0.0/8", loadbalancer.NobodyV6},
		},
		"more ranges than anybody needs":        {policies: slices.Repeat([]extensionsv1alpha1.BastionIngressPolicy{from("10.0.0.0/8")}, maxRanges+1), err: "spec.ingress: Too many: 257"},
		"more exceptions than anybody needs":    {policies: []extensionsv1alpha1.BastionIngressPolicy{from("10.0.0.0/8", slices.Repeat([]string{"no range"}, maxRanges)...)}, err: "spec.ingress: Too many: 257"},
		"an exception outside of the range":     {policies: []extensionsv1alpha1.BastionIngressPolicy{from("10.0.0.0/8", "11.0.0.0/16")}, err: "spec.ingress[0].ipBlock.except[0]: Invalid value"},
		"an exception as large as the range":    {policies: []extensionsv1alpha1.BastionIngressPolicy{from("10.0.0.0/8", "10.0.0.0/8")}, err: "smaller than, 10.0.0.0/8"},
		"an exception of the other family":      {policies: []extensionsv1alpha1.BastionIngressPolicy{from("0.0.0.0/0", "2001:db8::/64")}, err: "except[0]"},
		"an exception that is none":             {policies: []extensionsv1alpha1.BastionIngressPolicy{from("10.0.0.0/8", "ten")}, err: `except[0]: Invalid value: "ten"`},
		"an address without a length":           {policies: []extensionsv1alpha1.BastionIngressPolicy{from("192.0.2.1")}, err: "must be a range of IP addresses such as"},
		"a length that is too long":             {policies: []extensionsv1alpha1.BastionIngressPolicy{from("192.0.2.1/33")}, err: "spec.ingress[0].ipBlock.cidr"},
		"an IPv4 range in the form of IPv6":     {policies: []extensionsv1alpha1.BastionIngressPolicy{from("::ffff:192.0.2.1/128")}, err: "such as 192.0.2.1/32"},
		"no range at all":                       {policies: []extensionsv1alpha1.BastionIngressPolicy{from("")}, err: "spec.ingress[0].ipBlock.cidr"},
		"the mistake in the second of two":      {policies: []extensionsv1alpha1.BastionIngressPolicy{from("192.0.2.0/24"), from("x")}, err: "spec.ingress[1].ipBlock.cidr"},
		"an IPv6 range that names a zone in it": {policies: []extensionsv1alpha1.BastionIngressPolicy{from("fe80::1%eth0/64")}, err: "spec.ingress[0].ipBlock.cidr"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			blocks, errs := parseIngress(tt.policies)
			if tt.err != "" {
				g.Expect(errs.ToAggregate()).To(MatchError(ContainSubstring(tt.err)))
				return
			}
			g.Expect(errs).To(BeEmpty())
			g.Expect(blocks).To(Equal(tt.blocks))
			g.Expect(sourceRanges(blocks)).To(Equal(tt.ranges))
		})
	}
}

func FuzzParseIngress(f *testing.F) {
	f.Add("10.0.0.0/8", "10.1.0.0/16")
	f.Add("::/0", "::1/128")
	f.Add("255.255.255.255/32", "")
	f.Fuzz(func(t *testing.T, cidr, except string) {
		policy := from(cidr)
		if except != "" {
			policy = from(cidr, except)
		}
		blocks, errs := parseIngress([]extensionsv1alpha1.BastionIngressPolicy{policy})
		if len(errs) > 0 {
			return
		}
		again, errs := parseIngress([]extensionsv1alpha1.BastionIngressPolicy{{IPBlock: blocks[0]}})
		NewWithT(t).Expect(errs).To(BeEmpty())
		NewWithT(t).Expect(again).To(Equal(blocks), "the canonical form is that of itself")
		NewWithT(t).Expect(sourceRanges(blocks)).To(HaveLen(2), "one for each family")
	})
}
