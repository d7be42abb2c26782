// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	. "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

const header = `"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "DNSRecordConfig"`

func TestDNSRecordConfigIsDecodedStrictly(t *testing.T) {
	for _, test := range []struct {
		name, raw, says string
		expected        DNSRecordConfig
	}{
		{name: "nothing", raw: ""},
		{name: "an empty config", raw: "{" + header + "}"},
		{name: "a provider", raw: "{" + header + `, "provider": "coredns"}`, expected: DNSRecordConfig{Provider: "coredns"}},
		{name: "a server and its zones", raw: "{" + header + `, "provider": "rfc2136", "rfc2136": {"server": "ns.example.org", "zones": ["example.org"]}}`,
			expected: DNSRecordConfig{Provider: "rfc2136", RFC2136: &RFC2136Config{Server: "ns.example.org", Zones: []string{"example.org"}}}},
		{name: "a server for the default provider", raw: "{" + header + `, "rfc2136": {"server": "ns.example.org"}}`,
			expected: DNSRecordConfig{RFC2136: &RFC2136Config{Server: "ns.example.org"}}},
		{name: "an unknown field", raw: "{" + header + `, "rfc2136": {"sever": "a"}}`, says: `spec.providerConfig: Invalid value: strict decoding error: unknown field "rfc2136.sever"`},
		{name: "a field that is there twice", raw: "{" + header + `, "provider": "coredns", "provider": "rfc2136"}`, says: `duplicate field "provider"`},
		{name: "a field of the wrong type", raw: "{" + header + `, "provider": 1}`, says: "DNSRecordConfig.provider"},
		{name: "an unknown provider", raw: "{" + header + `, "provider": "bind"}`, says: `spec.providerConfig.provider: "bind" is neither coredns nor rfc2136`},
		{name: "a server with coredns", raw: "{" + header + `, "provider": "coredns", "rfc2136": {}}`, says: "spec.providerConfig.rfc2136: has no meaning with provider coredns"},
		{name: "another kind", raw: `{"apiVersion": "v1", "kind": "Pod"}`, says: "spec.providerConfig"},
		{name: "an object without a kind", raw: `{"provider": "rfc2136"}`, expected: DNSRecordConfig{Provider: "rfc2136"}},
		{name: "no JSON", raw: `:`, says: "spec.providerConfig"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			config, err := DecodeDNSRecordConfig(&runtime.RawExtension{Raw: []byte(test.raw)})
			if test.says != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.says)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(config.Provider).To(Equal(test.expected.Provider))
			g.Expect(config.RFC2136).To(Equal(test.expected.RFC2136))
		})
	}
	NewWithT(t).Expect(DecodeDNSRecordConfig(nil)).To(Equal(&DNSRecordConfig{}))
}

func TestDNSRecordStatusOfOthersIsEmpty(t *testing.T) {
	g := NewWithT(t)
	for _, raw := range []string{"", "{}", ":", `{"kind": "Other", "provider": "rfc2136"}`} {
		g.Expect(DecodeDNSRecordStatus(&runtime.RawExtension{Raw: []byte(raw)})).To(Equal(&DNSRecordStatus{}), raw)
	}
	g.Expect(DecodeDNSRecordStatus(nil)).To(Equal(&DNSRecordStatus{}))
	g.Expect(DecodeDNSRecordStatus(&runtime.RawExtension{Raw: []byte(`{"kind": "DNSRecordStatus", "provider": "rfc2136", "written": [{"server": "a:53", "ttl": 7}]}`)})).To(And(
		HaveField("Provider", "rfc2136"), HaveField("Written", ConsistOf(WrittenRecord{Server: "a:53", TTL: 7}))))
}
