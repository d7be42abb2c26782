// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"io"
	"net"
	"slices"
	"sync"
)

// proxy is what a Service is: connections go to the replicas in turn. Unlike one, it can end those that are there, so that
// the next call needs a handshake.
type proxy struct {
	listener net.Listener

	lock     sync.Mutex
	backends []string
	next     int
	conns    map[*conn]struct{}
}

type conn struct {
	client *net.TCPConn
	done   chan struct{}
}

func newProxy() (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, conns: map[*conn]struct{}{}}
	go p.accept()
	return p, nil
}

func (p *proxy) address() string {
	return p.listener.Addr().String()
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.cut()
}

// route makes connections go to these addresses from now on.
func (p *proxy) route(backends ...string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.backends = slices.Clone(backends)
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		backend := p.backend()
		if backend == "" {
			_ = client.Close()
			continue
		}
		server, err := net.Dial("tcp", backend)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.serve(client.(*net.TCPConn), server)
	}
}

func (p *proxy) backend() string {
	p.lock.Lock()
	defer p.lock.Unlock()
	if len(p.backends) == 0 {
		return ""
	}
	p.next++
	return p.backends[p.next%len(p.backends)]
}

func (p *proxy) serve(client *net.TCPConn, server net.Conn) {
	c := &conn{client: client, done: make(chan struct{})}
	p.lock.Lock()
	p.conns[c] = struct{}{}
	p.lock.Unlock()

	go func() {
		_, _ = io.Copy(client, server)
		_ = client.CloseWrite()
	}()
	go func() {
		// Ends when the client has closed its end, and so knows that the connection is no more.
		_, _ = io.Copy(server, client)
		_ = server.Close()
		_ = client.Close()
		p.lock.Lock()
		delete(p.conns, c)
		p.lock.Unlock()
		close(c.done)
	}()
}

// cut ends all connections and waits until the clients have noticed. Nobody may be in the middle of a call.
func (p *proxy) cut() {
	p.lock.Lock()
	var conns []*conn
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.lock.Unlock()
	for _, c := range conns {
		_ = c.client.CloseWrite()
		<-c.done
	}
}
