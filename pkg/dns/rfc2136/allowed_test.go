// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"net"
	"testing"
	"time"

	miekgdns "github.com/miekg/dns"
	. "github.com/onsi/gomega"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

func TestAllowedServers(t *testing.T) {
	for _, test := range []struct {
		name    string
		list    []string
		allowed []string
		refused []string
	}{
		{
			"by default",
			nil,
			[]string{"192.0.2.1:53", "10.0.0.1:53", "[2001:db8::1]:53"},
			[]string{"192.0.2.1:443", "127.0.0.1:53", "[::1]:53", "[::ffff:127.0.0.1]:53", "169.254.20.10:53", "[fe80::1%eth0]:53", "224.0.0.1:53", "0.0.0.0:53", "nonsense"},
		},
		{
			"by a list",
			[]string{"192.0.2.0/24", "198.51.100.1:5353", "[2001:db8::/32]:54", "127.0.0.1"},
			[]string{"192.0.2.9:53", "[::ffff:192.0.2.9]:53", "198.51.100.1:5353", "[2001:db8::9]:54", "127.0.0.1:53"},
			[]string{"192.0.3.1:53", "192.0.2.9:54", "198.51.100.1:53", "[2001:db8::9]:53", "10.0.0.1:53"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			p := newProvider(t, "", func(o *Options) { o.AllowedServers = test.list })
			for _, address := range test.allowed {
				g.Expect(p.checkAddress(address)).To(Succeed(), address)
			}
			for _, address := range test.refused {
				g.Expect(p.checkAddress(address)).To(MatchError(ContainSubstring("dns.rfc2136.allowedServers")), address)
			}
		})
	}
	_, err := New(Options{Timeout: time.Second, AllowedServers: []string{"ns.example.org"}})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("allowed server")))
}

func TestAServerThatIsNotAllowedIsNotConnectedTo(t *testing.T) {
	for _, name := range []string{"127.0.0.1", "localhost"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := startServer(t)
			_, port, err := net.SplitHostPort(s.address)
			g.Expect(err).NotTo(HaveOccurred())
			o := newOwner(newProvider(t, "192.0.2.53"), record("a.example.org", "A", "192.0.2.1"))
			o.request.Config.RFC2136 = &localv1alpha1.RFC2136Config{Server: net.JoinHostPort(name, port)}
			err = o.apply(t)
			g.Expect(err).To(MatchError(ContainSubstring("may name")))
			g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))

			o.status.Written = []localv1alpha1.WrittenRecord{{Server: net.JoinHostPort(name, port), Zone: testZone, Name: "a.example.org", Type: "A", Values: []string{"192.0.2.1"}}}
			g.Expect(o.remove(t)).To(Succeed(), "it does not hold up a deletion")
			g.Expect(s.queries + s.updated()).To(BeZero())
		})
	}
}

// Otherwise whoever names a server could look for open ports.
func TestErrorsTellNothingOfPorts(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	errorOf := func(address string, misbehave func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool) string {
		s.misbehave(misbehave)
		p := newProvider(t, address, func(o *Options) { o.Timeout = 100 * time.Millisecond })
		return newOwner(p, record("a.example.org", "A", "192.0.2.1")).apply(t).Error()
	}
	closed := errorOf("127.0.0.1:1", nil)
	for name, misbehave := range map[string]func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool{
		"silence": func(miekgdns.ResponseWriter, *miekgdns.Msg) bool { return true },
		"an end":  func(w miekgdns.ResponseWriter, _ *miekgdns.Msg) bool { _ = w.Close(); return true },
		"garbage": func(w miekgdns.ResponseWriter, _ *miekgdns.Msg) bool {
			_, _ = w.Write([]byte("SSH-2.0-OpenSSH_9.2p1 Debian-2"))
			return true
		},
	} {
		g.Expect(errorOf(s.address, misbehave)).To(Equal("no answer of server "+s.address+": see whether it runs and answers by TCP"), name)
	}
	g.Expect(closed).To(Equal("no answer of server 127.0.0.1:1: see whether it runs and answers by TCP"))
}
