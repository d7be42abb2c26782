// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
)

// pair returns both ends of a TCP connection.
func pair(t *testing.T) (*net.TCPConn, *net.TCPConn) {
	t.Helper()
	g := NewWithT(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	a, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	b, err := listener.Accept()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { a.Close(); b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

func TestJoinPassesTheEndOfOneDirectionOn(t *testing.T) {
	g := NewWithT(t)
	client, a := pair(t)
	b, backend := pair(t)
	joined := make(chan struct{})
	go func() { relay.Join(a, b); close(joined) }()

	_, err := io.WriteString(client, "question")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(client.CloseWrite()).To(Succeed())
	g.Expect(io.ReadAll(backend)).To(BeEquivalentTo("question"))
	_, err = io.WriteString(backend, "answer")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(backend.Close()).To(Succeed())
	g.Expect(io.ReadAll(client)).To(BeEquivalentTo("answer"))
	g.Eventually(joined).Should(BeClosed())
}

func TestJoinEndsBothAtAnError(t *testing.T) {
	g := NewWithT(t)
	_, a := pair(t)
	b, _ := pair(t)
	joined := make(chan struct{})
	go func() { relay.Join(a, b); close(joined) }()
	g.Expect(a.Close()).To(Succeed())
	g.Eventually(joined).Should(BeClosed())
}

func TestServerName(t *testing.T) {
	for _, test := range []struct{ name, asked, expected string }{
		{"is the host of the ClientHello", "api.shoot.local", "api.shoot.local"},
		{"is in lower case", "API.shoot.local", "api.shoot.local"},
		{"is empty for an address", "10.0.0.1", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			client, conn := pair(t)
			handshake := tls.Client(client, &tls.Config{ServerName: test.asked, MinVersion: tls.VersionTLS12})
			go func() { _ = handshake.HandshakeContext(t.Context()) }()
			host, rest, err := relay.ServerName(conn)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(host).To(Equal(test.expected))
			first := make([]byte, 1)
			_, err = io.ReadFull(rest, first)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(first[0]).To(BeEquivalentTo(22), "the ClientHello is to be read again")
		})
	}
	t.Run("needs TLS", func(t *testing.T) {
		g := NewWithT(t)
		client, conn := pair(t)
		_, err := io.WriteString(client, "GET / HTTP/1.1\r\n\r\n")
		g.Expect(err).NotTo(HaveOccurred())
		_, _, err = relay.ServerName(conn)
		g.Expect(err).To(MatchError(ContainSubstring("reading a ClientHello")))
	})
}

func TestConnect(t *testing.T) {
	t.Run("joins with what the proxy reached, and loses nothing that was sent early", func(t *testing.T) {
		g := NewWithT(t)
		client, conn := pair(t)
		go func() {
			request, rest, err := relay.ReadRequest(conn)
			if err != nil || request.Host != "10.0.0.1:443" || request.Header.Get("X-Where") != "there" {
				relay.Answer(conn, http.StatusBadRequest)
				return
			}
			_, _ = io.WriteString(rest, "HTTP/1.1 200 OK\r\n\r\nearly")
			_ = conn.CloseWrite()
		}()
		rest, err := relay.Connect(client, "10.0.0.1:443", http.Header{"X-Where": {"there"}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(io.ReadAll(rest)).To(BeEquivalentTo("early"))
	})
	t.Run("tells the status of a refusal", func(t *testing.T) {
		g := NewWithT(t)
		client, conn := pair(t)
		go func() {
			_, _, _ = relay.ReadRequest(conn)
			relay.Answer(conn, http.StatusForbidden)
		}()
		_, err := relay.Connect(client, "10.0.0.1:443", nil)
		var status *relay.StatusError
		g.Expect(errors.As(err, &status)).To(BeTrue())
		g.Expect(status.Code).To(Equal(http.StatusForbidden))
	})
	t.Run("is not answered by something else than a proxy", func(t *testing.T) {
		g := NewWithT(t)
		client, conn := pair(t)
		_, err := io.WriteString(conn, "SSH-2.0\r\n")
		g.Expect(err).NotTo(HaveOccurred())
		_, err = relay.Connect(client, "10.0.0.1:443", nil)
		g.Expect(err).To(HaveOccurred())
	})
}

func TestReadRequest(t *testing.T) {
	t.Run("takes HTTP/1.0, and keeps what follows", func(t *testing.T) {
		g := NewWithT(t)
		client, conn := pair(t)
		_, err := io.WriteString(client, "CONNECT vpn:1194 HTTP/1.0\r\nReversed-VPN: x\r\n\r\nmore")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(client.CloseWrite()).To(Succeed())
		request, rest, err := relay.ReadRequest(conn)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(request.Header.Get("Reversed-VPN")).To(Equal("x"))
		g.Expect(io.ReadAll(rest)).To(BeEquivalentTo("more"))
	})
	t.Run("refuses a head without end", func(t *testing.T) {
		g := NewWithT(t)
		client, conn := pair(t)
		go func() { _, _ = io.WriteString(client, "GET / HTTP/1.1\r\nA: "+strings.Repeat("a", 64<<10)) }()
		_, _, err := relay.ReadRequest(conn)
		g.Expect(err).To(MatchError(ContainSubstring("too long")))
	})
}

func TestServe(t *testing.T) {
	t.Run("serves no more than the limit at a time, and ends with its context", func(t *testing.T) {
		g := NewWithT(t)
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		g.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(t.Context())
		var active, most atomic.Int32
		served := make(chan error, 1)
		go func() {
			served <- relay.Serve(ctx, listener, 2, func(_ context.Context, conn net.Conn) {
				if n := active.Add(1); n > most.Load() {
					most.Store(n)
				}
				_, _ = io.WriteString(conn, "hello\n")
				_, _ = io.Copy(io.Discard, conn)
				active.Add(-1)
			})
		}()
		var clients []net.Conn
		for range 3 {
			client, err := (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
			g.Expect(err).NotTo(HaveOccurred())
			defer client.Close() //nolint:gocritic // Three of them.
			clients = append(clients, client)
		}
		for _, client := range clients[:2] {
			g.Expect(bufio.NewReader(client).ReadString('\n')).To(Equal("hello\n"))
		}
		g.Expect(clients[0].Close()).To(Succeed())
		g.Expect(bufio.NewReader(clients[2]).ReadString('\n')).To(Equal("hello\n"))
		g.Expect(most.Load()).To(BeEquivalentTo(2))
		cancel()
		g.Eventually(served).Should(Receive(BeNil()))
		g.Expect(active.Load()).To(BeZero())
	})
	t.Run("tells that its listener is broken", func(t *testing.T) {
		g := NewWithT(t)
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(listener.Close()).To(Succeed())
		g.Expect(relay.Serve(t.Context(), listener, 1, nil)).To(MatchError(net.ErrClosed))
	})
}
