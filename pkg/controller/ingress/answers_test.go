// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		name           string
		ips, hostnames []string
		expected       []answer
	}{
		{"nothing", nil, nil, nil},
		{"empty texts", []string{""}, []string{""}, nil},
		{"no address", []string{"not an address"}, nil, nil},
		{"IPv4 in order, each once", []string{"10.0.0.2", "10.0.0.1", "10.0.0.2"}, nil, []answer{{"A", []string{"10.0.0.1", "10.0.0.2"}}}},
		{"IPv6 in its shortest form", []string{"2001:DB8:0::1"}, nil, []answer{{"AAAA", []string{"2001:db8::1"}}}},
		{"IPv4 written as IPv6", []string{"::ffff:10.0.0.1"}, nil, []answer{{"A", []string{"10.0.0.1"}}}},
		{"both families", []string{"fd00::1", "10.0.0.1"}, nil, []answer{{"A", []string{"10.0.0.1"}}, {"AAAA", []string{"fd00::1"}}}},
		{"a host name", nil, []string{"LB.Example.org."}, []answer{{"CNAME", []string{"lb.example.org"}}}},
		{"the same one of several host names", []string{"", ""}, []string{"b.example.org", "a.example.org"}, []answer{{"CNAME", []string{"a.example.org"}}}},
		{"an address rather than a host name", []string{"10.0.0.1", ""}, []string{"", "lb.example.org"}, []answer{{"A", []string{"10.0.0.1"}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			points := make([]corev1.LoadBalancerIngress, max(len(test.ips), len(test.hostnames)))
			for i, ip := range test.ips {
				points[i].IP = ip
			}
			for i, name := range test.hostnames {
				points[i].Hostname = name
			}
			NewWithT(t).Expect(answers(points)).To(Equal(test.expected))
		})
	}
}

func TestAServiceThatIsNoGatewayHasNoAnswers(t *testing.T) {
	g := NewWithT(t)
	service := newGateway(nginx, "10.0.0.1")
	g.Expect(answersOfService(service)).To(HaveLen(1))

	service.DeletionTimestamp = new(metav1.Unix(1000, 0))
	g.Expect(answersOfService(service)).To(BeEmpty())

	service.DeletionTimestamp, service.Spec.Type = nil, corev1.ServiceTypeClusterIP
	g.Expect(answersOfService(service)).To(BeEmpty())
}

func TestHostsOf(t *testing.T) {
	g := NewWithT(t)
	g.Expect(hostsOf(newIngress("b.example.org", "", "a.example.org", "b.example.org", "*.example.org"))).To(Equal(
		[]string{"*.example.org", "a.example.org", "b.example.org"}))
	g.Expect(hostsOf(newIngress())).To(BeEmpty())
	g.Expect(hostsOf(&networkingv1.Ingress{})).To(BeEmpty())
}

func TestRecordName(t *testing.T) {
	long := strings.Repeat("long.", 50) + "it"
	names := map[string]bool{}
	for _, test := range []struct {
		ingress, host, starts string
		recordType            extensionsv1alpha1.DNSRecordType
	}{
		{"it", "a.example.org", "it-", "A"},
		{"it", "a.example.org", "it-", "AAAA"},
		{"it", "*.example.org", "it-", "A"},
		{"it-too", "a.example.org", "it-too-", "A"},
		{long, "a.example.org", "long.long.", "A"},
		{long + "-too", "a.example.org", "long.long.", "A"},
	} {
		g := NewWithT(t)
		name := recordName(test.ingress, test.host, test.recordType)
		g.Expect(name).To(HavePrefix(test.starts))
		g.Expect(recordName(test.ingress, test.host, test.recordType)).To(Equal(name))
		g.Expect(validation.IsDNS1123Subdomain(name)).To(BeEmpty(), name)
		g.Expect(validation.IsValidLabelValue(name)).To(BeEmpty(), name)
		names[name] = true
	}
	NewWithT(t).Expect(names).To(HaveLen(6), "each has a name of its own")
}

func TestTheLabelOfALongNameIsValid(t *testing.T) {
	g := NewWithT(t)
	for length := 1; length < 253; length++ {
		name := strings.Repeat("a-.b", 70)[:length] + "c"
		g.Expect(validation.IsValidLabelValue(cut(name, validation.LabelValueMaxLength))).To(BeEmpty(), name)
	}
}
