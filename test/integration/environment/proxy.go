// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Fault is how a Proxy treats connections.
type Fault string

const (
	// NoFault forwards everything.
	NoFault Fault = "none"
	// Refused resets all connections, as if the API server were restarting.
	Refused Fault = "refused"
	// Held keeps connections open and forwards nothing until the fault ends, as a network does that is partitioned.
	Held Fault = "held"
	// Delayed forwards each piece of data after ProxyDelay.
	Delayed Fault = "delayed"

	// ProxyDelay is the delay of Delayed.
	ProxyDelay = 300 * time.Millisecond
)

// Proxy forwards TCP connections to an API server, unless it is told to fail.
type Proxy struct {
	listener net.Listener
	target   string
	ended    sync.WaitGroup

	mu    sync.Mutex
	fault Fault
	// changed is closed with the next change of fault.
	changed  chan struct{}
	links    map[*link]struct{}
	hindered int
}

// link is a connection through the proxy.
type link struct {
	client, server net.Conn
	// stranded is guarded by the lock of the proxy.
	stranded bool
	once     sync.Once
	closed   chan struct{}
}

// NewProxy starts a proxy on the loopback and returns the access through it. Close it after use.
func NewProxy(config *rest.Config) (*Proxy, *rest.Config, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	p := &Proxy{listener: listener, target: target.Host, fault: NoFault, changed: make(chan struct{}), links: map[*link]struct{}{}}
	p.ended.Go(p.serve)

	through := rest.CopyConfig(config)
	target.Host = listener.Addr().String()
	through.Host = target.String()
	return p, through, nil
}

// Set changes the fault of all connections.
func (p *Proxy) Set(fault Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
	close(p.changed)
	p.changed = make(chan struct{})
	if fault == Refused {
		p.closeAll()
	}
}

// Strand never again forwards anything of the connections that there are, and tells neither side, like a load balancer that
// has forgotten them. New connections work.
func (p *Proxy) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.stranded = true
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// Hindered returns how many connections were refused and how many pieces of data were not forwarded at once.
func (p *Proxy) Hindered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hindered
}

// Close resets all connections and ends the proxy.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.Set(Refused)
	p.ended.Wait()
	return err
}

func (p *Proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.ended.Go(func() { p.connect(conn) })
		}
	}
}

func (p *Proxy) connect(client net.Conn) {
	l := &link{client: client, closed: make(chan struct{})}
	defer l.close()
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		return
	}
	l.server = server
	if !p.add(l) {
		return
	}
	defer p.remove(l)

	var both sync.WaitGroup
	both.Go(func() { p.forward(l, l.server, l.client) })
	both.Go(func() { p.forward(l, l.client, l.server) })
	both.Wait()
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == Refused {
		p.hindered++
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// closeAll needs the lock.
func (p *Proxy) closeAll() {
	for l := range p.links {
		l.close()
	}
}

func (p *Proxy) forward(l *link, to, from net.Conn) {
	defer l.close()
	data := make([]byte, 32<<10)
	for {
		n, err := from.Read(data)
		if n > 0 && !p.pass(l) {
			return
		}
		if _, failed := to.Write(data[:n]); err != nil || failed != nil {
			return
		}
	}
}

// pass waits until data may be forwarded, and returns false if it never may.
func (p *Proxy) pass(l *link) bool {
	counted := false
	for {
		p.mu.Lock()
		fault, changed, stranded := p.fault, p.changed, l.stranded
		if (stranded || fault != NoFault) && !counted {
			p.hindered++
			counted = true
		}
		p.mu.Unlock()

		var wait <-chan time.Time
		switch {
		case stranded, fault == Held:
		case fault == Delayed:
			wait = time.After(ProxyDelay)
		default:
			return fault == NoFault
		}
		select {
		case <-wait:
			return true
		case <-changed:
		case <-l.closed:
			return false
		}
	}
}

// close resets both sides.
func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		for _, conn := range []net.Conn{l.client, l.server} {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
				_ = tcp.Close()
			}
		}
	})
}
