// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

// newEcho returns a proxy in front of a server that sends back each line, and a function that connects to it. It returns nil
// if the connection is reset at once.
func newEcho(t *testing.T) (*environment.Proxy, func() net.Conn) {
	t.Helper()
	g := NewWithT(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()

	proxy, through, err := environment.NewProxy(&rest.Config{Host: "https://" + listener.Addr().String() + "/path"})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = proxy.Close() })
	host, err := url.Parse(through.Host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(host.Path).To(Equal("/path"))
	return proxy, func() net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host.Host)
		if errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

// say sends a line and returns the channel on which its echo comes, which is closed if none comes.
func say(conn net.Conn, line string) <-chan string {
	answer := make(chan string, 1)
	if conn == nil {
		close(answer)
		return answer
	}
	go func() {
		if _, err := conn.Write([]byte(line + "\n")); err != nil {
			close(answer)
			return
		}
		text, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			close(answer)
			return
		}
		answer <- text
	}()
	return answer
}

func TestProxyFailsAsItIsTold(t *testing.T) {
	t.Run("not at all", func(t *testing.T) {
		g := NewWithT(t)
		proxy, connect := newEcho(t)
		g.Eventually(say(connect(), "a")).Should(Receive(Equal("a\n")))
		g.Expect(proxy.Hindered()).To(BeZero())
	})
	t.Run("it refuses connections", func(t *testing.T) {
		g := NewWithT(t)
		proxy, connect := newEcho(t)
		conn := connect()
		g.Eventually(say(conn, "a")).Should(Receive())
		proxy.Set(environment.Refused)
		g.Eventually(say(conn, "b")).Should(BeClosed())
		g.Eventually(say(connect(), "c")).Should(BeClosed())
		g.Expect(proxy.Hindered()).To(Equal(1))
		proxy.Set(environment.NoFault)
		g.Eventually(say(connect(), "d")).Should(Receive(Equal("d\n")))
	})
	t.Run("it holds data back", func(t *testing.T) {
		g := NewWithT(t)
		proxy, connect := newEcho(t)
		proxy.Set(environment.Held)
		answer := say(connect(), "a")
		g.Eventually(proxy.Hindered).Should(Equal(1))
		g.Expect(answer).NotTo(Receive())
		proxy.Set(environment.NoFault)
		g.Eventually(answer).Should(Receive(Equal("a\n")))
	})
	t.Run("it is late", func(t *testing.T) {
		g := NewWithT(t)
		proxy, connect := newEcho(t)
		proxy.Set(environment.Delayed)
		begin := time.Now()
		g.Eventually(say(connect(), "a"), "10s").Should(Receive(Equal("a\n")))
		g.Expect(time.Since(begin)).To(BeNumerically(">=", 2*environment.ProxyDelay), "both ways")
	})
	t.Run("it forgets connections", func(t *testing.T) {
		g := NewWithT(t)
		proxy, connect := newEcho(t)
		conn := connect()
		g.Eventually(say(conn, "a")).Should(Receive())
		proxy.Strand()
		answer := say(conn, "b")
		g.Eventually(proxy.Hindered).Should(Equal(1))
		g.Eventually(say(connect(), "c")).Should(Receive(Equal("c\n")))
		g.Expect(answer).NotTo(Receive())
	})
}
