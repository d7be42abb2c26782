// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/probe"
)

// freePort returns an address on the loopback that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func serve(t *testing.T) probe.Server {
	t.Helper()
	g := NewWithT(t)
	server := probe.Server{Name: "someone", HTTP: freePort(t), TLS: freePort(t), UDP: freePort(t)}
	listening, err := server.Listen(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- listening.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Expect(<-done).To(Succeed())
	})
	return server
}

// ask asks the Agent.
func ask(t *testing.T, path string, parameters map[string]string) probe.Report {
	t.Helper()
	g := NewWithT(t)
	values := url.Values{}
	for key, value := range parameters {
		values.Set(key, value)
	}
	recorder := httptest.NewRecorder()
	probe.Agent().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path+"?"+values.Encode(), nil))
	g.Expect(recorder.Code).To(Equal(http.StatusOK))
	var report probe.Report
	g.Expect(json.Unmarshal(recorder.Body.Bytes(), &report)).To(Succeed())
	return report
}

func TestAServerTellsWhoItIs(t *testing.T) {
	server := serve(t)
	t.Run("by HTTP", func(t *testing.T) {
		g := NewWithT(t)
		report := ask(t, "/fetch", map[string]string{"url": "http://example.org/x", "address": server.HTTP})
		g.Expect(report.Err()).NotTo(HaveOccurred())
		g.Expect(report.Answer).To(And(HaveField("Name", "someone"), HaveField("Host", "example.org"), HaveField("ServerName", ""),
			HaveField("Client", HavePrefix("127.0.0.1:"))))
	})
	t.Run("by TLS", func(t *testing.T) {
		g := NewWithT(t)
		answer, err := probe.Fetch(t.Context(), "https://example.org/", server.TLS)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer).To(And(HaveField("Name", "someone"), HaveField("Host", "example.org"), HaveField("ServerName", "example.org")))
	})
	t.Run("without an address to connect to", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(probe.Fetch(t.Context(), "http://"+server.HTTP, "")).To(HaveField("Host", server.HTTP))
	})
	t.Run("by UDP", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(ask(t, "/echo", map[string]string{"address": server.UDP}).Answer.Name).To(Equal("someone"))
	})
}

func TestWhoIsNotThereIsReported(t *testing.T) {
	g := NewWithT(t)
	nobody := freePort(t)
	g.Expect(ask(t, "/fetch", map[string]string{"url": "http://example.org", "address": nobody}).Err()).To(MatchError(ContainSubstring("connection refused")))
	g.Expect(ask(t, "/echo", map[string]string{"address": nobody}).Err()).To(HaveOccurred())

	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	_, err := probe.Fetch(t.Context(), other.URL, "")
	g.Expect(err).To(MatchError(ContainSubstring("404")))
}

func TestAServerWhosePortIsTakenDoesNotListen(t *testing.T) {
	g := NewWithT(t)
	server := serve(t)
	for _, second := range []probe.Server{{HTTP: server.HTTP}, {HTTP: freePort(t), TLS: server.TLS}, {HTTP: freePort(t), TLS: freePort(t), UDP: server.UDP}} {
		_, err := second.Listen(t.Context())
		g.Expect(err).To(MatchError(ContainSubstring("address already in use")))
	}
}

func TestNamesAreAskedForByTheProtocolThatIsSaid(t *testing.T) {
	address := freePort(t)
	handler := func(ip string) dns.Handler {
		return dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
			reply := new(dns.Msg).SetReply(query)
			switch {
			case query.Question[0].Name != "known.example.":
				reply.Rcode = dns.RcodeNameError
			case query.Question[0].Qtype == dns.TypeA:
				reply.Answer = []dns.RR{&dns.A{
					Hdr: dns.RR_Header{Name: query.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(ip),
				}}
			}
			_ = w.WriteMsg(reply)
		})
	}
	for network, ip := range map[string]string{"udp": "10.0.0.1", "tcp": "172.18.255.1"} {
		started := make(chan struct{})
		server := &dns.Server{Net: network, Addr: address, Handler: handler(ip), NotifyStartedFunc: func() { close(started) }}
		go func() { _ = server.ListenAndServe() }()
		<-started
		t.Cleanup(func() { _ = server.Shutdown() })

		t.Run(network, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(ask(t, "/resolve", map[string]string{"network": network, "server": address, "name": "known.example."})).
				To(Equal(probe.Report{Addresses: []string{ip}}))
			g.Expect(ask(t, "/resolve", map[string]string{"network": network, "server": address, "name": "other.example."}).Err()).
				To(MatchError(ContainSubstring("no such host")))
		})
	}
}

func TestMemoryIsTakenUntilTheEnd(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int)
	go func() { done <- probe.Allocate(ctx, 20<<20) }()
	g.Consistently(done).WithTimeout(50 * time.Millisecond).ShouldNot(Receive())
	cancel()
	g.Eventually(done).Should(Receive(BeNumerically("<=", 20<<20)))
}
