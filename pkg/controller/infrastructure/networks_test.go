// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"testing"

	. "github.com/onsi/gomega"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

const (
	ipv4 = gardencorev1beta1.IPFamilyIPv4
	ipv6 = gardencorev1beta1.IPFamilyIPv6
)

func TestTheRangesOfAShoot(t *testing.T) {
	type families = []gardencorev1beta1.IPFamily
	for name, test := range map[string]struct {
		spec   *gardencorev1beta1.Networking
		status *gardencorev1beta1.NetworkingStatus
		nodes  []string
		err    string
	}{
		"are none without networking":            {nil, nil, nil, ""},
		"are none without a range of nodes":      {&gardencorev1beta1.Networking{}, nil, nil, ""},
		"are IPv4 by default":                    {&gardencorev1beta1.Networking{Nodes: new("10.0.0.0/16")}, nil, []string{"10.0.0.0/16"}, ""},
		"are those of its family":                {&gardencorev1beta1.Networking{Nodes: new("fd00::/56"), IPFamilies: families{ipv6}}, nil, []string{"fd00::/56"}, ""},
		"are not those of another":               {&gardencorev1beta1.Networking{Nodes: new("10.0.0.0/16"), IPFamilies: families{ipv6}}, nil, nil, ""},
		"of two families may be but one":         {&gardencorev1beta1.Networking{Nodes: new("10.0.0.0/16"), IPFamilies: families{ipv4, ipv6}}, nil, []string{"10.0.0.0/16"}, ""},
		"of a second family are in the status":   {&gardencorev1beta1.Networking{Nodes: new("10.0.0.0/16"), IPFamilies: families{ipv4, ipv6}}, &gardencorev1beta1.NetworkingStatus{Nodes: []string{"10.0.0.0/16", "fd00::/56"}}, []string{"10.0.0.0/16", "fd00::/56"}, ""},
		"are in the order of families":           {&gardencorev1beta1.Networking{Nodes: new("10.0.0.0/16"), IPFamilies: families{ipv6, ipv4}}, &gardencorev1beta1.NetworkingStatus{Nodes: []string{"fd00::/56"}}, []string{"fd00::/56", "10.0.0.0/16"}, ""},
		"are of the spec before the status":      {&gardencorev1beta1.Networking{Nodes: new("10.0.0.0/15")}, &gardencorev1beta1.NetworkingStatus{Nodes: []string{"10.0.0.0/16"}}, []string{"10.0.0.0/15"}, ""},
		"begin at their first address":           {&gardencorev1beta1.Networking{Nodes: new("10.0.7.0/16")}, nil, []string{"10.0.0.0/16"}, ""},
		"that are none are an error":             {&gardencorev1beta1.Networking{Nodes: new("10.0.0.0")}, nil, nil, `networking.nodes of the shoot: "10.0.0.0" is no CIDR`},
		"of pods that are none are an error":     {&gardencorev1beta1.Networking{Pods: new("x")}, nil, nil, `networking.pods of the shoot: "x" is no CIDR`},
		"of services that are none are an error": {&gardencorev1beta1.Networking{Services: new("::ffff:10.0.0.0/112")}, nil, nil, `networking.services of the shoot`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			found, err := networksOf(&gardencorev1beta1.Shoot{
				Spec: gardencorev1beta1.ShootSpec{Networking: test.spec}, Status: gardencorev1beta1.ShootStatus{Networking: test.status},
			})
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(toStrings(found.nodes)).To(Equal(test.nodes))
		})
	}
}

func TestTheAddressesOfLoadBalancers(t *testing.T) {
	g := NewWithT(t)
	found, err := loadBalancerPrefixes(configv1alpha1.LoadBalancersConfiguration{
		HostAddresses: []string{"172.18.255.1", "fd00:ff::1"},
		ZoneAddresses: map[string][]string{"0": {"172.18.255.10"}},
		Services:      []configv1alpha1.LoadBalancerService{{Addresses: []string{"172.18.255.53"}}, {}},
		Pools:         []string{"172.18.255.126-172.18.255.130", "fd00:ff::1:0/120", "172.18.255.129/32"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(toStrings(found)).To(Equal([]string{
		"172.18.255.1/32", "172.18.255.10/32", "172.18.255.53/32", "172.18.255.126/31", "172.18.255.128/31", "172.18.255.130/32",
		"fd00:ff::1/128", "fd00:ff::1:0/120",
	}))

	for _, config := range []configv1alpha1.LoadBalancersConfiguration{{HostAddresses: []string{"x"}}, {Pools: []string{"x"}}} {
		_, err := loadBalancerPrefixes(config)
		g.Expect(err).To(HaveOccurred())
	}
}
