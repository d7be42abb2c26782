// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

func TestFindReturnsTheGatewayThatServesAllOfAName(t *testing.T) {
	dual := service("istio-ingress", "dual", "172.18.255.1", "10.4.0.1", "fd00::1")
	dual.Status.LoadBalancer.Ingress = append(dual.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: "2001:DB8:0::1"}, corev1.LoadBalancerIngress{Hostname: "LB.example.org"})
	single := service("istio-ingress", "single", "172.18.255.2", "10.4.0.2")
	single.Status.LoadBalancer.Ingress = append(single.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: "2001:db8::2"})
	mapped := service("istio-ingress", "mapped", "::ffff:172.18.255.6", "10.4.0.6")
	later := service("z", "same-address", "172.18.255.2", "10.4.0.3")
	headless := service("istio-ingress", "headless", "172.18.255.4", "None")
	clusterIP := service("istio-ingress", "cluster-ip", "172.18.255.5", "10.4.0.5")
	clusterIP.Spec.Type = corev1.ServiceTypeClusterIP

	found := newGateways(seedGateways)
	for _, s := range []*corev1.Service{later, dual, single, mapped, headless, clusterIP} {
		found.set(s)
	}

	a := func(values ...string) dns.Record { return dns.Record{Type: "A", Values: values} }
	aaaa := func(values ...string) dns.Record { return dns.Record{Type: "AAAA", Values: values} }
	for _, test := range []struct {
		name     string
		records  []dns.Record
		expected string
	}{
		{"one address", []dns.Record{a("172.18.255.1")}, "dual"},
		{"both families", []dns.Record{a("172.18.255.1"), aaaa("2001:db8::1")}, "dual"},
		{"a host name", []dns.Record{{Type: "CNAME", Values: []string{"lb.example.org"}}}, "dual"},
		{"an IPv4 address in the form of IPv6", []dns.Record{a("172.18.255.6")}, "mapped"},
		{"two that share an address", []dns.Record{a("172.18.255.2")}, "single"},
		{"no address of the family in the cluster", []dns.Record{aaaa("2001:db8::2")}, ""},
		{"one address of another gateway", []dns.Record{a("172.18.255.1", "172.18.255.2")}, ""},
		{"one address of none", []dns.Record{a("172.18.255.1", "192.0.2.1")}, ""},
		{"text beside", []dns.Record{a("172.18.255.1"), {Type: "TXT", Values: []string{"x"}}}, ""},
		{"a headless Service", []dns.Record{a("172.18.255.4")}, ""},
		{"a Service of another type", []dns.Record{a("172.18.255.5")}, ""},
		{"nothing", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			result, ok := found.find(test.records)
			g.Expect(ok).To(Equal(test.expected != ""))
			g.Expect(result.service.Name).To(Equal(test.expected))
		})
	}
}

func TestGatewaysTellWhichAddressesChanged(t *testing.T) {
	g := NewWithT(t)
	found := newGateways(seedGateways)
	s := service("istio-ingress", "gateway", "172.18.255.1", "10.4.0.1")
	g.Expect(found.set(s)).To(ConsistOf("172.18.255.1"))
	g.Expect(found.set(s)).To(BeEmpty(), "nothing changed")
	s.Status.LoadBalancer.Ingress[0].IP = "172.18.255.2"
	g.Expect(found.set(s)).To(ConsistOf("172.18.255.1", "172.18.255.2"))
	s.Spec.ClusterIPs = []string{"10.4.0.9"}
	g.Expect(found.set(s)).To(ConsistOf("172.18.255.2"))
	s.DeletionTimestamp = new(metav1.Now())
	g.Expect(found.set(s)).To(ConsistOf("172.18.255.2"))
	g.Expect(found.services).To(BeEmpty())
	g.Expect(found.byAddress).To(BeEmpty())
}

func TestTheCacheKeepsOfAServiceWhatMakesItAGateway(t *testing.T) {
	g := NewWithT(t)
	s := service("istio-ingress", "gateway", "172.18.255.1", "10.4.0.1")
	s.Annotations = map[string]string{"large": "annotation"}
	s.Labels, s.Spec.Selector = map[string]string{"large": "label"}, map[string]string{"app": "gateway"}
	stripped, err := stripService(s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(gatewayOf(stripped.(*corev1.Service))).To(Equal(gatewayOf(s)))
	g.Expect(stripped).To(And(HaveField("Annotations", BeEmpty()), HaveField("Labels", BeEmpty()), HaveField("Spec.Selector", BeEmpty())))
}
