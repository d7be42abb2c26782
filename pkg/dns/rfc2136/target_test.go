// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"context"
	"errors"
	"testing"

	miekgdns "github.com/miekg/dns"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

func TestTheTargetIsThatOfTheProviderConfigThenOfTheSecretThenTheDefault(t *testing.T) {
	for _, test := range []struct {
		name   string
		secret map[string]string
		config *localv1alpha1.RFC2136Config
		server string
		zone   string
	}{
		{"the default", nil, nil, "default.example.org:53", "example.org"},
		{"the Secret", map[string]string{KeyServer: "secret.example.org:5353\n", KeyZone: "Example.NET.", KeyTSIGKeyName: "seed", KeyTSIGSecret: testSecret}, nil, "secret.example.org:5353", "example.net"},
		{"the providerConfig", map[string]string{KeyServer: "secret.example.org", KeyZone: "example.net"}, &localv1alpha1.RFC2136Config{Server: "192.0.2.53", Zones: []string{"a.example.org", "example.org."}}, "192.0.2.53:53", "a.example.org"},
		{"a zone on the instance's own server by a key", map[string]string{KeyZone: "example.net", KeyTSIGKeyName: "seed", KeyTSIGSecret: testSecret}, nil, "default.example.org:53", "example.net"},
		{"no zone without a key: the server may be the instance's own", map[string]string{KeyServer: "[::ffff:192.0.2.1]:53", KeyZone: "org"}, nil, "192.0.2.1:53", "example.org"},
		{"a part of each", map[string]string{KeyZone: "example.net", KeyTSIGKeyName: "seed", KeyTSIGSecret: testSecret}, &localv1alpha1.RFC2136Config{Server: "ns"}, "ns:53", "example.net"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			p := newProvider(t, "default.example.org", func(o *Options) { o.Reader = reader(t, newSecret(test.secret)) })
			actual, err := p.target(t.Context(), dns.Request{Record: record("x."+test.zone, "A", "192.0.2.1"), Secret: secretRef, Config: localv1alpha1.DNSRecordConfig{RFC2136: test.config}})
			g.Expect(err).NotTo(HaveOccurred())
			actual.key = nil
			g.Expect(actual).To(Equal(target{server: test.server, zone: test.zone}))
		})
	}
}

func TestMistakesInATargetAreTheUsers(t *testing.T) {
	key := func(more ...string) map[string]string {
		out := map[string]string{KeyTSIGKeyName: "seed", KeyTSIGSecret: testSecret}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	for _, test := range []struct {
		name   string
		secret map[string]string
		config *localv1alpha1.RFC2136Config
		ref    *corev1.SecretReference
		change func(*Options)
		says   string
	}{
		{name: "no server", change: func(o *Options) { o.Server = "" }, says: "no server is known: set"},
		{name: "no zone", change: func(o *Options) { o.Zones = nil }, says: "no zone is known: set"},
		{name: "a server that is none", config: &localv1alpha1.RFC2136Config{Server: "http://a"}, says: `"http://a" is not a server`},
		{name: "a zone that is none", config: &localv1alpha1.RFC2136Config{Zones: []string{"a b"}}, says: `"a b" is not the name of a zone`},
		{name: "a zone that is a wildcard", config: &localv1alpha1.RFC2136Config{Zones: []string{"*.a"}}, says: `"*.a" is not the name of a zone`},
		{name: "a name in none of the zones", config: &localv1alpha1.RFC2136Config{Zones: []string{"example.net"}}, says: "in none of the zones that are served here: example.net"},
		{name: "a Secret that is missing", ref: &corev1.SecretReference{Namespace: "garden", Name: "missing"}, says: "garden/missing which spec.secretRef names does not exist"},
		{name: "a reference without a name", ref: &corev1.SecretReference{Namespace: "garden"}, says: "spec.secretRef is incomplete"},
		{name: "a key without its name", secret: key(KeyTSIGKeyName, " "), says: "TSIGSecret is set, but not TSIGKeyName"},
		{name: "a name without its key", secret: key(KeyTSIGSecret, ""), says: "TSIGKeyName is set, but not TSIGSecret"},
		{name: "a key that is not in base64", secret: key(KeyTSIGSecret, "top secret"), says: "TSIGSecret must be the key in base64"},
		{name: "a name of a key that is none", secret: key(KeyTSIGKeyName, "a..b"), says: "TSIGKeyName is not the name of a key"},
		{name: "an algorithm that is not safe", secret: key(KeyTSIGSecretAlgorithm, "hmac-md5"), says: `TSIGSecretAlgorithm "hmac-md5" is none of hmac-sha1`},
		{name: "the full name of that algorithm", secret: key(KeyTSIGSecretAlgorithm, "hmac-md5.sig-alg.reg.int."), says: "is none of hmac-sha1"},
		{name: "an unknown algorithm", secret: key(KeyTSIGSecretAlgorithm, "rsa"), says: `TSIGSecretAlgorithm "rsa" is none of`},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			o := newOwner(newProvider(t, "ns.example.org", func(o *Options) {
				o.Reader = reader(t, newSecret(test.secret))
				if test.change != nil {
					test.change(o)
				}
			}), record("a.example.org", "A", "192.0.2.1"))
			o.request.Config.RFC2136 = test.config
			if test.ref != nil {
				o.request.Secret = *test.ref
			}
			err := o.apply(t)
			g.Expect(err).To(MatchError(And(ContainSubstring(test.says), Not(ContainSubstring("top secret")), Not(ContainSubstring(testSecret)))))
			g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
		})
	}
}

func TestASecretThatIsNotReadIsNotTheUsersMistake(t *testing.T) {
	g := NewWithT(t)
	failing := interceptor.NewClient(reader(t).(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("forbidden")
		},
	})
	o := newOwner(newProvider(t, "ns.example.org", func(o *Options) { o.Reader = failing }), record("a.example.org", "A", "192.0.2.1"))
	for _, err := range []error{o.apply(t), o.remove(t)} {
		g.Expect(err).To(MatchError(And(ContainSubstring("garden/dns"), ContainSubstring("forbidden"))))
		g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(BeEmpty())
	}
}

func TestASecretIsReadOnceForManyRecordsAndAgainAfterAFailure(t *testing.T) {
	g := NewWithT(t)
	s, read := startServer(t), 0
	counting := interceptor.NewClient(reader(t, newSecret(map[string]string{KeyTSIGKeyName: "seed", KeyTSIGSecret: testSecret})).(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			read++
			return c.Get(ctx, key, obj, opts...)
		},
	})
	provider := newProvider(t, s.address, func(o *Options) { o.Reader = counting })
	first, second := newOwner(provider, record("a.example.org", "A", "192.0.2.1")), newOwner(provider, record("b.example.org", "A", "192.0.2.1"))
	g.Expect(first.apply(t)).To(Succeed())
	g.Expect(second.apply(t)).To(Succeed())
	g.Expect(first.remove(t)).To(Succeed())
	g.Expect(read).To(Equal(1))

	g.Expect(counting.Update(t.Context(), newSecret(map[string]string{KeyTSIGKeyName: "seed", KeyTSIGSecret: "b3RoZXI="}))).To(Succeed())
	s.misbehave(func(w miekgdns.ResponseWriter, _ *miekgdns.Msg) bool { _ = w.Close(); return true })
	g.Expect(second.apply(t)).NotTo(Succeed())
	s.misbehave(nil)
	g.Expect(second.apply(t)).To(MatchError(ContainSubstring("BADSIG")), "it was read again")
	g.Expect(read).To(Equal(2))
}

func TestKeysAreReadAsServersHaveThem(t *testing.T) {
	for algorithm, expected := range map[string]string{
		"": "hmac-sha256.", "hmac-sha1": "hmac-sha1.", "hmac-sha224": "hmac-sha224.", "hmac-sha256.": "hmac-sha256.", "HMAC-SHA384": "hmac-sha384.", "hmac-sha512\n": "hmac-sha512.",
	} {
		t.Run("algorithm "+algorithm, func(t *testing.T) {
			g := NewWithT(t)
			actual, err := parseSecret(toBytes(map[string]string{KeyTSIGKeyName: "Seed", KeyTSIGSecret: testSecret + "\n", KeyTSIGSecretAlgorithm: algorithm}))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(actual).To(Equal(target{key: &key{name: "seed.", algorithm: expected, secret: testSecret}}))
			g.Expect(actual.key.String()).To(Equal("seed."))
		})
	}
	NewWithT(t).Expect(parseSecret(nil)).To(BeZero())
}

func TestParseServer(t *testing.T) {
	for value, expected := range map[string]string{
		"ns.example.org":       "ns.example.org:53",
		"NS.example.org.:5353": "ns.example.org:5353",
		"192.0.2.1":            "192.0.2.1:53",
		"192.0.2.1:5353":       "192.0.2.1:5353",
		"2001:db8::1":          "[2001:db8::1]:53",
		"::ffff:192.0.2.1":     "192.0.2.1:53",
		"[2001:db8::1]":        "[2001:db8::1]:53",
		"[2001:db8::1]:5353":   "[2001:db8::1]:5353",
	} {
		t.Run(value, func(t *testing.T) {
			NewWithT(t).Expect(ParseServer(value)).To(Equal(expected))
		})
	}
	for _, value := range []string{"", " ", "a b", "a:", "a:0", "a:65536", "a:dns", ":53", "a:b:c", "tcp://a", "*.a", "[a]:53:", "[192.0.2.1", "2001:db8::1]", "a/b", "a\nb", "fe80::1%eth0", "[2001:db8::1%a]:53"} {
		t.Run("refuses "+value, func(t *testing.T) {
			_, err := ParseServer(value)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("must be HOST[:PORT]")))
		})
	}
}
