// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

var zones = []string{"Local.Gardener.Cloud.", "other.example"}

func dnsRecord(name, recordType string, values ...string) *extensionsv1alpha1.DNSRecord {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "record", CreationTimestamp: metav1.Unix(1000, 0)},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			Region: ptr.To("anywhere"), Zone: ptr.To("any zone"),
			Name: name, RecordType: extensionsv1alpha1.DNSRecordType(recordType), Values: values,
		},
	}
}

func TestNewNormalizes(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, test := range []struct {
		name     string
		object   *extensionsv1alpha1.DNSRecord
		expected Record
	}{
		{"an address", dnsRecord("api.local.gardener.cloud", "A", "1.2.3.4"), Record{Name: "api.local.gardener.cloud", Type: "A", Values: []string{"1.2.3.4"}}},
		{"upper case and a dot at the end", dnsRecord("API.Local.Gardener.Cloud.", "A", "1.2.3.4"), Record{Name: "api.local.gardener.cloud", Type: "A", Values: []string{"1.2.3.4"}}},
		{"a wildcard", dnsRecord("*.x.local.gardener.cloud", "A", "1.2.3.4"), Record{Name: "*.x.local.gardener.cloud", Type: "A", Values: []string{"1.2.3.4"}}},
		{"underscores", dnsRecord("_acme-challenge.local.gardener.cloud", "TXT", "x y"), Record{Name: "_acme-challenge.local.gardener.cloud", Type: "TXT", Values: []string{"x y"}}},
		{"the order of values", dnsRecord("a.other.example", "A", "1.2.3.5", "1.2.3.4"), Record{Name: "a.other.example", Type: "A", Values: []string{"1.2.3.4", "1.2.3.5"}}},
		{"the spelling of an IPv6 address", dnsRecord("a.other.example", "AAAA", "2001:DB8:0::1"), Record{Name: "a.other.example", Type: "AAAA", Values: []string{"2001:db8::1"}}},
		{"an alias", dnsRecord("a.other.example", "CNAME", "LB.Example.org."), Record{Name: "a.other.example", Type: "CNAME", Values: []string{"lb.example.org"}}},
		{"a long text", dnsRecord("a.other.example", "TXT", long), Record{Name: "a.other.example", Type: "TXT", Values: []string{long}}},
		{"the zone itself", dnsRecord("other.example", "A", "1.2.3.4"), Record{Name: "other.example", Type: "A", Values: []string{"1.2.3.4"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			test.expected.Owner = types.NamespacedName{Namespace: "garden", Name: "record"}
			test.expected.Class = extensionsv1alpha1.ExtensionClassSeed
			test.expected.Created = time.Unix(1000, 0)
			test.expected.TTL = 120
			g.Expect(New(test.object, zones, 0)).To(Equal(test.expected))
		})
	}
}

func TestNewTakesTheTTLOfTheObjectBeforeTheDefault(t *testing.T) {
	g := NewWithT(t)
	object := dnsRecord("a.other.example", "A", "1.2.3.4")
	g.Expect(New(object, zones, 30)).To(HaveField("TTL", int64(30)))
	object.Spec.TTL = ptr.To[int64](0)
	g.Expect(New(object, zones, 30)).To(HaveField("TTL", int64(30)), "0 is none")
	object.Spec.TTL = ptr.To[int64](7)
	g.Expect(New(object, zones, 30)).To(HaveField("TTL", int64(7)))
	object.Spec.TTL = ptr.To[int64](-1)
	_, err := New(object, zones, 30)
	g.Expect(err).To(MatchError(ContainSubstring("spec.ttl")))
	object.Spec.TTL = ptr.To[int64](1 << 31)
	_, err = New(object, zones, 30)
	g.Expect(err).To(MatchError(ContainSubstring("spec.ttl")))
}

func TestNewRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		object *extensionsv1alpha1.DNSRecord
		says   string
	}{
		{"a name outside of the zones", dnsRecord("api.example.org", "A", "1.2.3.4"), "none of the zones that are served here: Local.Gardener.Cloud., other.example"},
		{"a name that only ends like a zone", dnsRecord("notlocal.gardener.cloud", "A", "1.2.3.4"), "none of the zones"},
		{"an empty name", dnsRecord("", "A", "1.2.3.4"), "is not a DNS name"},
		{"an empty label", dnsRecord("a..local.gardener.cloud", "A", "1.2.3.4"), "is not a DNS name"},
		{"two dots at the end", dnsRecord("a.local.gardener.cloud..", "A", "1.2.3.4"), "is not a DNS name"},
		{"a wildcard in the middle", dnsRecord("a.*.local.gardener.cloud", "A", "1.2.3.4"), "is not a DNS name"},
		{"a wildcard as a part of a label", dnsRecord("a*.local.gardener.cloud", "A", "1.2.3.4"), "is not a DNS name"},
		{"a new line", dnsRecord("a.local.gardener.cloud\nforward . 1.1.1.1", "A", "1.2.3.4"), "is not a DNS name"},
		{"a brace", dnsRecord("{0}.local.gardener.cloud", "A", "1.2.3.4"), "is not a DNS name"},
		{"a long label", dnsRecord(strings.Repeat("a", 64)+".local.gardener.cloud", "A", "1.2.3.4"), "is not a DNS name"},
		{"a long name", dnsRecord(strings.Repeat("a.", 120)+"local.gardener.cloud", "A", "1.2.3.4"), "more than the 253"},
		{"a reserved name", dnsRecord("x._sync.local.gardener.cloud", "TXT", "1"), "reserved"},
		{"the top of the reserved names", dnsRecord("_sync.local.gardener.cloud", "TXT", "1"), "reserved"},
		{"a zone as an alias", dnsRecord("local.gardener.cloud", "CNAME", "a.example.org"), "can't be an alias"},
		{"another type", dnsRecord("a.local.gardener.cloud", "MX", "1.2.3.4"), "none of A, AAAA, CNAME and TXT"},
		{"no values", dnsRecord("a.local.gardener.cloud", "A"), "at least one value"},
		{"an empty value", dnsRecord("a.local.gardener.cloud", "A", ""), "not an IPv4 address"},
		{"an empty text", dnsRecord("a.local.gardener.cloud", "TXT", ""), "must not be empty"},
		{"a value given twice", dnsRecord("a.local.gardener.cloud", "AAAA", "2001:db8::1", "2001:db8:0::1"), "given twice"},
		{"an IPv6 address in an A record", dnsRecord("a.local.gardener.cloud", "A", "2001:db8::1"), "not an IPv4 address"},
		{"an IPv4 address in an AAAA record", dnsRecord("a.local.gardener.cloud", "AAAA", "1.2.3.4"), "is an IPv4 address, an AAAA record needs an IPv6 one"},
		{"an IPv4-mapped address in an AAAA record", dnsRecord("a.local.gardener.cloud", "AAAA", "::ffff:1.2.3.4"), "is an IPv4 address, an AAAA record needs an IPv6 one"},
		{"an address with a zone", dnsRecord("a.local.gardener.cloud", "AAAA", "fe80::1%eth0"), "not an IPv6 address"},
		{"two aliases", dnsRecord("a.local.gardener.cloud", "CNAME", "a.example.org", "b.example.org"), "exactly one value"},
		{"an alias to an address", dnsRecord("a.local.gardener.cloud", "CNAME", "1.2.3.4"), "needs a host name"},
		{"an alias to a wildcard", dnsRecord("a.local.gardener.cloud", "CNAME", "*.example.org"), "is not a DNS name"},
		{"an alias to itself", dnsRecord("a.local.gardener.cloud", "CNAME", "A.local.gardener.cloud."), "alias of itself"},
		{"a control character", dnsRecord("a.local.gardener.cloud", "TXT", "a\nb"), "control character"},
		{"too much text", dnsRecord("a.local.gardener.cloud", "TXT", strings.Repeat("x", 4001)), "more than 4000"},
		{"too many values", dnsRecord("a.local.gardener.cloud", "TXT", make([]string, 101)...), "more than 100"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := New(test.object, zones, 0)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.says)))
		})
	}
}

func TestTheProviderOfADNSRecord(t *testing.T) {
	for _, test := range []struct {
		name, config string
		byDefault    configv1alpha1.DNSProvider
		expected     configv1alpha1.DNSProvider
		says         string
	}{
		{name: "is the default if there is no providerConfig", byDefault: "rfc2136", expected: "rfc2136"},
		{name: "is the default if the providerConfig has none", config: `{}`, byDefault: "coredns", expected: "coredns"},
		{name: "is that of the providerConfig", config: `{"provider": "coredns"}`, byDefault: "rfc2136", expected: "coredns"},
		{name: "may be left out beside a server if it is the default", config: `{"rfc2136": {"server": "a"}}`, byDefault: "rfc2136", expected: "rfc2136"},
		{name: "may not be left out beside a server otherwise", config: `{"rfc2136": {"server": "a"}}`, byDefault: "coredns", says: "set spec.providerConfig.provider to rfc2136"},
		{name: "must be known", config: `{"provider": "bind"}`, byDefault: "coredns", says: "spec.providerConfig.provider"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			object := dnsRecord("a.other.example", "A", "1.2.3.4")
			if test.config != "" {
				object.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(test.config)}
			}
			provider, config, err := ProviderOf(object, test.byDefault)
			if test.says != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.says)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(provider).To(Equal(test.expected))
			g.Expect(config).NotTo(BeNil())
		})
	}
}

func TestADNSRecordIsKeptUntilAnotherProviderServesIt(t *testing.T) {
	for _, test := range []struct {
		name, config, status string
		coreDNS              bool
	}{
		{"nothing said", ``, ``, true},
		{"moving to another provider", `{"provider": "rfc2136"}`, `{"kind": "DNSRecordStatus", "written": [{"server": "a:53"}]}`, true},
		{"moved to another provider", `{"provider": "rfc2136"}`, `{"kind": "DNSRecordStatus", "provider": "rfc2136"}`, false},
		{"moving back", `{"provider": "coredns"}`, `{"kind": "DNSRecordStatus", "provider": "rfc2136"}`, true},
		{"an invalid providerConfig at another provider", `{"provider": "bind"}`, `{"kind": "DNSRecordStatus", "provider": "rfc2136"}`, false},
		{"an invalid providerConfig here", `{"provider": "bind"}`, ``, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			object := dnsRecord("a.other.example", "A", "1.2.3.4")
			object.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(test.config)}
			object.Status.ProviderStatus = &runtime.RawExtension{Raw: []byte(test.status)}
			g.Expect(IsServedBy(configv1alpha1.DNSProviderCoreDNS, object, configv1alpha1.DNSProviderCoreDNS)).To(Equal(test.coreDNS))
		})
	}
}
