// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

// config returns the default configuration after a change.
func config(changes ...func(*configv1alpha1.LoadBalancersConfiguration)) configv1alpha1.LoadBalancersConfiguration {
	out := &configv1alpha1.ExtensionConfiguration{}
	for _, change := range changes {
		change(&out.LoadBalancers)
	}
	configv1alpha1.SetDefaults(out)
	return out.LoadBalancers
}

func TestTable(t *testing.T) {
	const gateway = "istio-ingressgateway"
	vip, proxy := corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy
	table, err := loadbalancer.NewAllocator(config(func(c *configv1alpha1.LoadBalancersConfiguration) {
		c.ZoneAddresses = map[string][]string{
			"0": {"172.18.255.10", "fd00:ff::10"}, "A": {"172.18.255.20"}, "none": {},
			"a-zone-with-a-name-that-does-not-fit-into-that-of-a-namespace": {"172.18.255.21"},
		}
		c.Services = []configv1alpha1.LoadBalancerService{
			{Namespace: "own", Name: "proxied", Addresses: []string{"172.18.255.30"}, IPMode: &proxy},
			{Namespace: "own", Name: "host"},
		}
	}))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())

	for name, test := range map[string]struct {
		namespace, name string
		addresses       []string
		ipMode          corev1.LoadBalancerIPMode
		nodePorts       map[int32]int32
	}{
		"the gateway of the seed has the host's addresses, which kube-proxy takes in":   {"istio-ingress", gateway, []string{"172.18.255.1", "fd00:ff::1"}, vip, map[int32]int32{443: 30433}},
		"the gateway of a zone has the zone's addresses and a node port":                {"istio-ingress--0", gateway, []string{"172.18.255.10", "fd00:ff::10"}, vip, map[int32]int32{443: 30434}},
		"the gateway of a zone without addresses, but with a node port, has the host's": {"istio-ingress--1", gateway, []string{"172.18.255.1", "fd00:ff::1"}, proxy, map[int32]int32{443: 30435}},
		"the gateway of a zone of which nothing is configured has the host's addresses": {"istio-ingress--other", gateway, []string{"172.18.255.1", "fd00:ff::1"}, proxy, nil},
		"the gateway of a zone with an empty list has the host's addresses":             {"istio-ingress--none", gateway, []string{"172.18.255.1", "fd00:ff::1"}, proxy, nil},
		"a zone whose name is no namespace's is known by its hash":                      {"istio-ingress--559ae", gateway, []string{"172.18.255.20"}, vip, nil},
		"a zone whose name is too long is known by its hash":                            {"istio-ingress--95b51", gateway, []string{"172.18.255.21"}, vip, nil},
		"a row has its addresses": {"garden", "nginx-ingress-controller", []string{"172.18.255.4", "fd00:ff::4"}, vip, map[int32]int32{443: 30448}},
		"a row has its mode":      {"own", "proxied", []string{"172.18.255.30"}, proxy, nil},
		"a row without addresses has the host's, and who forwards from there is not said": {"own", "host", []string{"172.18.255.1", "fd00:ff::1"}, proxy, nil},
		"another Service beside a gateway is not well-known":                              {"istio-ingress--0", "other", nil, "", nil},
		"a gateway elsewhere is not well-known":                                           {"istio-ingress-handler", gateway, nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			entry, ok := table.WellKnown(types.NamespacedName{Namespace: test.namespace, Name: test.name})
			g.Expect(ok).To(Equal(test.addresses != nil))
			var addresses []string
			for _, address := range entry.Addresses {
				addresses = append(addresses, address.String())
			}
			g.Expect(addresses).To(Equal(test.addresses))
			g.Expect(entry.IPMode).To(Equal(test.ipMode))
			g.Expect(entry.NodePorts).To(HaveLen(len(test.nodePorts)))
			for port, nodePort := range test.nodePorts {
				g.Expect(entry.NodePorts).To(HaveKeyWithValue(port, nodePort))
			}
		})
	}

	t.Run("all addresses of the configuration are reserved, and its node ports are known", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(table.Reserved()).To(ContainElements(
			address("172.18.255.1"), address("fd00:ff::1"), address("172.18.255.10"), address("172.18.255.30"), address("fd00:ff::4"),
		))
		g.Expect(table.IsFixed(30433)).To(BeTrue())
		g.Expect(table.IsFixed(30432)).To(BeFalse())
	})
}

func TestWhatIsNoAddressIsRefused(t *testing.T) {
	for name, change := range map[string]func(*configv1alpha1.LoadBalancersConfiguration){
		"host addresses": func(c *configv1alpha1.LoadBalancersConfiguration) { c.HostAddresses = []string{"nowhere"} },
		"addresses of zone here": func(c *configv1alpha1.LoadBalancersConfiguration) {
			c.ZoneAddresses = map[string][]string{"here": {"nowhere"}}
		},
		"pool": func(c *configv1alpha1.LoadBalancersConfiguration) { c.Pools = []string{"nowhere"} },
		"addresses of own/it": func(c *configv1alpha1.LoadBalancersConfiguration) {
			c.Services = []configv1alpha1.LoadBalancerService{{Namespace: "own", Name: "it", Addresses: []string{"nowhere"}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadbalancer.NewAllocator(config(change))
			NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring(name), ContainSubstring("nowhere"))))
		})
	}
}

func TestTheGatewayOfAZoneIsWhereGardenletPutsIt(t *testing.T) {
	long := strings.Repeat("z", 49)
	for zone, expected := range map[string]string{
		"0":            "istio-ingress--0",
		"eu-west-1a":   "istio-ingress--eu-west-1a",
		long[:48]:      "istio-ingress--" + long[:48],
		long:           "istio-ingress--0476e",
		"EU-WEST-ZONE": "istio-ingress--5b95f",
	} {
		NewWithT(t).Expect(loadbalancer.GatewayNamespace(zone)).To(Equal(expected))
	}
}
