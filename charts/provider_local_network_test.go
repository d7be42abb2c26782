// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"testing"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

func TestThePolicyLeadsToServersThatTakeUpdates(t *testing.T) {
	egress := func(t *testing.T, place string, values map[string]any) []networkingv1.NetworkPolicyEgressRule {
		name := "gardener-extension-provider-local-" + place + "-to-coredns"
		return find[networkingv1.NetworkPolicy](t, objects(t, "here", values), "NetworkPolicy", name).Spec.Egress
	}
	anywhere := func(ports ...int) gomegatypes.GomegaMatcher {
		var matchers []any
		for _, port := range ports {
			matchers = append(matchers, HaveField("Port", HaveValue(Equal(intstr.FromInt(port)))))
		}
		return And(HaveField("To", BeEmpty()), HaveField("Ports", HaveExactElements(matchers...)))
	}
	for place, values := range places() {
		t.Run(place+" with CoreDNS", func(t *testing.T) {
			NewWithT(t).Expect(egress(t, place, values())).NotTo(ContainElement(HaveField("To", BeEmpty())), "nothing leads anywhere")
		})
		for server, ports := range map[string][]int{
			"": {53}, "ns.example.com": {53}, "ns.example.com:5353": {5353, 53}, "192.0.2.1": {53}, "192.0.2.1:54": {54, 53}, "[2001:db8::1]:55": {55, 53}, "[2001:db8::1]": {53}, "2001:db8::1": {53},
		} {
			t.Run(place+" "+server, func(t *testing.T) {
				g := NewWithT(t)
				updates := with(with(values(), server, "dns", "rfc2136", "server"), "rfc2136", "dns", "provider")
				g.Expect(egress(t, place, updates)).To(ContainElement(anywhere(ports...)))
			})
		}
		t.Run(place+" to allowed servers only", func(t *testing.T) {
			g := NewWithT(t)
			servers := []any{"192.0.2.0/24", "198.51.100.1:5353", "[2001:db8::/32]:54", "2001:db8::1"}
			rules := egress(t, place, with(values(), servers, "dns", "rfc2136", "allowedServers"))
			g.Expect(rules).NotTo(ContainElement(HaveField("To", BeEmpty())))
			for i, to := range []struct {
				cidr string
				port int
			}{{"192.0.2.0/24", 53}, {"198.51.100.1/32", 5353}, {"2001:db8::/32", 54}, {"2001:db8::1/128", 53}} {
				g.Expect(rules).To(ContainElement(And(
					HaveField("To", HaveExactElements(HaveField("IPBlock.CIDR", to.cidr))),
					HaveField("Ports", HaveExactElements(HaveField("Port", HaveValue(Equal(intstr.FromInt(to.port)))))),
				)), servers[i])
			}
		})
	}
}

func TestTheSeedInstanceReachesTheClustersOfMachinesThatAreAllowed(t *testing.T) {
	const name = "gardener-extension-provider-local-seed-to-machine-clusters"
	g := NewWithT(t)
	g.Expect(names(objects(t, "here", seedValues()))).NotTo(ContainElement(ContainSubstring("machine-clusters")))

	values := with(seedValues(), []any{"172.18.0.0/24", "fd00:10::/64"}, "machines", "remote", "allowedCIDRs")
	g.Expect(config(t, "seed", values).Machines.Remote.AllowedCIDRs).To(HaveExactElements("172.18.0.0/24", "fd00:10::/64"))
	policy := find[networkingv1.NetworkPolicy](t, objects(t, "here", values), "NetworkPolicy", name)
	pod := find[appsv1.Deployment](t, objects(t, "here", values), "Deployment", "gardener-extension-provider-local-seed").Spec.Template
	for label, value := range policy.Spec.PodSelector.MatchLabels {
		g.Expect(pod.Labels).To(HaveKeyWithValue(label, value))
	}
	g.Expect(policy.Spec.PolicyTypes).To(HaveExactElements(networkingv1.PolicyTypeEgress))
	g.Expect(policy.Spec.Egress).To(HaveExactElements(And(
		HaveField("To", HaveExactElements(HaveField("IPBlock.CIDR", "172.18.0.0/24"), HaveField("IPBlock.CIDR", "fd00:10::/64"))),
		HaveField("Ports", HaveExactElements(HaveField("Protocol", HaveValue(BeEquivalentTo("TCP"))))),
	)))
}

func TestNetworkValuesReachTheProgram(t *testing.T) {
	g := NewWithT(t)
	values := with(seedValues(), map[string]any{
		"hostAddresses": []any{"192.0.2.1"}, "zoneAddresses": map[string]any{"a": []any{"192.0.2.10", "2001:db8::10"}}, "pools": []any{"192.0.2.128/28", "2001:db8::1-2001:db8::9"},
		"services": []any{map[string]any{"namespace": "n", "name": "s", "addresses": []any{"192.0.2.2"}, "ipMode": "Proxy", "nodePorts": []any{map[string]any{"port": 443, "nodePort": 30443}}}},
	}, "loadBalancers")
	g.Expect(config(t, "garden", with(gardenValues(), values["loadBalancers"], "loadBalancers")).LoadBalancers).To(Equal(config(t, "seed", values).LoadBalancers))
	values = with(values, []any{map[string]any{"namespace": "n", "name": "s"}}, "ingress", "gateways")
	decoded := config(t, "seed", values)
	g.Expect(decoded.LoadBalancers.HostAddresses).To(HaveExactElements("192.0.2.1"))
	g.Expect(decoded.LoadBalancers.ZoneAddresses).To(HaveKeyWithValue("a", HaveExactElements("192.0.2.10", "2001:db8::10")))
	g.Expect(decoded.LoadBalancers.Pools).To(HaveLen(2))
	g.Expect(decoded.LoadBalancers.Services[0].NodePorts).To(HaveExactElements(configv1alpha1.LoadBalancerNodePort{Port: 443, NodePort: 30443}))
	g.Expect(len(decoded.LoadBalancers.Services)).To(BeNumerically(">", 1), "those of the defaults stay")
	g.Expect(decoded.Ingress.Gateways).To(HaveExactElements(configv1alpha1.ServiceReference{Namespace: "n", Name: "s"}))
}
