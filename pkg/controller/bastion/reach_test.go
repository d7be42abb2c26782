// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"net/netip"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// end is the other end of a connection from or to a bastion: an address, which may be that of a pod.
type end struct {
	address   string
	namespace string
	labels    labels.Set
}

// isAmong tells what Kubernetes' rules for NetworkPolicies say of the other end and the port.
func (e end) isAmong(t *testing.T, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, protocol corev1.Protocol, number int32) bool {
	t.Helper()
	g := NewWithT(t)
	g.Expect(peers).NotTo(BeEmpty(), "that would be everybody")
	g.Expect(ports).NotTo(BeEmpty(), "that would be all ports")
	selects := func(selector *metav1.LabelSelector, set labels.Set) bool {
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		g.Expect(err).NotTo(HaveOccurred())
		return parsed.Matches(set)
	}
	return slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		return *p.Protocol == protocol && p.Port.IntVal == number
	}) && slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.IPBlock != nil {
			within := func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(netip.MustParseAddr(e.address)) }
			return within(peer.IPBlock.CIDR) && !slices.ContainsFunc(peer.IPBlock.Except, within)
		}
		if peer.NamespaceSelector == nil {
			return e.namespace == namespace && selects(peer.PodSelector, e.labels)
		}
		return e.namespace != "" && selects(peer.NamespaceSelector, labels.Set{corev1.LabelMetadataName: e.namespace}) && selects(peer.PodSelector, e.labels)
	})
}

func TestWhoReachesWhom(t *testing.T) {
	open := newTestHost(networkingv1.IPBlock{CIDR: "192.0.2.0/24", Except: []string{"192.0.2.128/25"}}, networkingv1.IPBlock{CIDR: "2001:db8::/64"})
	var (
		ours    = end{"10.0.0.1", namespace, machine.Labels("a")}
		theirs  = end{"10.0.0.2", "shoot--local--bar", machine.Labels("b")}
		etcd    = end{"10.0.0.3", namespace, labels.Set{"app": "etcd"}}
		coreDNS = end{"10.0.0.4", "kube-system", labels.Set{"k8s-app": "kube-dns"}}
		nodeDNS = end{"169.254.20.10", "", nil}
		scraper = end{"10.0.0.5", "kube-system", labels.Set{"k8s-app": "metrics-server"}}
		another = end{"10.0.0.6", namespace, newTestHost().labels()}
	)
	const tcp, udp = corev1.ProtocolTCP, corev1.ProtocolUDP

	for name, tt := range map[string]struct {
		host     *host
		from, to *end
		protocol corev1.Protocol
		port     int32
		reaches  bool
	}{
		"a client within a range gets in":                {host: open, from: &end{address: "192.0.2.7"}, protocol: tcp, port: 22, reaches: true},
		"an IPv6 client within a range gets in":          {host: open, from: &end{address: "2001:db8::7"}, protocol: tcp, port: 22, reaches: true},
		"a client within a range gets to no other port":  {host: open, from: &end{address: "192.0.2.7"}, protocol: tcp, port: 10250},
		"a client that is excepted does not":             {host: open, from: &end{address: "192.0.2.200"}, protocol: tcp, port: 22},
		"a client beyond the ranges does not":            {host: open, from: &end{address: "198.51.100.1"}, protocol: tcp, port: 22},
		"an IPv6 client beyond the ranges does not":      {host: open, from: &end{address: "2001:db8:1::1"}, protocol: tcp, port: 22},
		"a machine does not":                             {host: open, from: &ours, protocol: tcp, port: 22},
		"another bastion does not":                       {host: open, from: &another, protocol: tcp, port: 22},
		"nobody does without ranges":                     {host: newTestHost(), from: &end{address: "192.0.2.7"}, protocol: tcp, port: 22},
		"it gets to SSH of machines":                     {host: open, to: &ours, protocol: tcp, port: 22, reaches: true},
		"it gets to SSH of machines without ranges, too": {host: newTestHost(), to: &ours, protocol: tcp, port: 22, reaches: true},
		"it does not get to their kubelets":              {host: open, to: &ours, protocol: tcp, port: 10250},
		"it does not get to machines of other shoots":    {host: open, to: &theirs, protocol: tcp, port: 22},
		"it does not get to the control plane":           {host: open, to: &etcd, protocol: tcp, port: 22},
		"it does not get to another bastion":             {host: open, to: &another, protocol: tcp, port: 22},
		"it asks the cluster's DNS server":               {host: open, to: &coreDNS, protocol: udp, port: 53, reaches: true},
		"it asks the DNS server of a shoot":              {host: open, to: &coreDNS, protocol: tcp, port: 8053, reaches: true},
		"it asks the DNS server of its node":             {host: open, to: &nodeDNS, protocol: udp, port: 53, reaches: true},
		"it asks nobody else":                            {host: open, to: &scraper, protocol: udp, port: 53},
		"it does not get to the internet":                {host: open, to: &end{address: "198.51.100.1"}, protocol: tcp, port: 443},
		"it does not get to those who may get in":        {host: open, to: &end{address: "192.0.2.7"}, protocol: tcp, port: 22},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			policy := tt.host.networkPolicy(keyOf(namespace, name))
			g.Expect(labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels).Matches(labels.Set(tt.host.pod(keyOf(namespace, name)).Labels))).To(BeTrue())
			g.Expect(policy.Spec.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress))

			reaches := false
			for _, rule := range policy.Spec.Ingress {
				reaches = reaches || tt.from != nil && tt.from.isAmong(t, rule.From, rule.Ports, tt.protocol, tt.port)
			}
			for _, rule := range policy.Spec.Egress {
				reaches = reaches || tt.to != nil && tt.to.isAmong(t, rule.To, rule.Ports, tt.protocol, tt.port)
			}
			g.Expect(reaches).To(Equal(tt.reaches))
		})
	}
}
