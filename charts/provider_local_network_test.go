// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"testing"

	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

func TestThePolicyLeadsToServersThatTakeUpdates(t *testing.T) {
	for server, port := range map[string]int{
		"": 53, "ns.example.com": 53, "ns.example.com:5353": 5353, "192.0.2.1": 53, "192.0.2.1:54": 54, "[2001:db8::1]:55": 55, "[2001:db8::1]": 53, "2001:db8::1": 53,
	} {
		for place, values := range places() {
			t.Run(place+" "+server, func(t *testing.T) {
				g := NewWithT(t)
				name := "gardener-extension-provider-local-" + place + "-to-coredns"
				policy := find[networkingv1.NetworkPolicy](t, objects(t, "here", with(values(), server, "dns", "rfc2136", "server")), "NetworkPolicy", name)
				g.Expect(policy.Spec.Egress).To(ContainElement(And(HaveField("To", BeEmpty()), HaveField("Ports", HaveExactElements(
					HaveField("Port", HaveValue(Equal(intstr.FromInt(port))))),
				))))
			})
		}
	}
}

func TestNetworkValuesReachTheProgramOfASeed(t *testing.T) {
	g := NewWithT(t)
	values := with(seedValues(), map[string]any{
		"hostAddresses": []any{"192.0.2.1"}, "zoneAddresses": map[string]any{"a": []any{"192.0.2.10", "2001:db8::10"}}, "pools": []any{"192.0.2.128/28", "2001:db8::1-2001:db8::9"},
		"services": []any{map[string]any{"namespace": "n", "name": "s", "addresses": []any{"192.0.2.2"}, "ipMode": "Proxy", "nodePorts": []any{map[string]any{"port": 443, "nodePort": 30443}}}},
	}, "loadBalancers")
	values = with(values, []any{map[string]any{"namespace": "n", "name": "s"}}, "ingress", "gateways")
	decoded := config(t, "seed", values)
	g.Expect(decoded.LoadBalancers.HostAddresses).To(HaveExactElements("192.0.2.1"))
	g.Expect(decoded.LoadBalancers.ZoneAddresses).To(HaveKeyWithValue("a", HaveExactElements("192.0.2.10", "2001:db8::10")))
	g.Expect(decoded.LoadBalancers.Pools).To(HaveLen(2))
	g.Expect(decoded.LoadBalancers.Services[0].NodePorts).To(HaveExactElements(configv1alpha1.LoadBalancerNodePort{Port: 443, NodePort: 30443}))
	g.Expect(len(decoded.LoadBalancers.Services)).To(BeNumerically(">", 1), "those of the defaults stay")
	g.Expect(decoded.Ingress.Gateways).To(HaveExactElements(configv1alpha1.ServiceReference{Namespace: "n", Name: "s"}))
}
