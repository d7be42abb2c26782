// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
)

// newProxy serves CONNECT to the addresses of load balancers.
func newProxy(to []netip.Prefix, dial func(ctx context.Context, network, address string) (net.Conn, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target, err := netip.ParseAddrPort(r.Host)
		if err != nil || r.Method != http.MethodConnect ||
			!slices.ContainsFunc(to, func(prefix netip.Prefix) bool { return prefix.Contains(target.Addr()) }) {
			http.Error(w, "not a load balancer", http.StatusForbidden)
			return
		}
		upstream, err := dial(r.Context(), "tcp", target.String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_ = upstream.Close()
			return
		}
		if _, err = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
			_ = client.Close()
			_ = upstream.Close()
			return
		}
		pipe(client, upstream)
	})
}

// pipe copies in both directions until both have ended.
func pipe(a, b net.Conn) {
	oneWay := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		// One side may have said all and still listen.
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
		} else {
			_ = to.Close()
			_ = from.Close()
		}
	}
	var both sync.WaitGroup
	both.Go(func() { oneWay(a, b) })
	both.Go(func() { oneWay(b, a) })
	both.Wait()
	_ = a.Close()
	_ = b.Close()
}

// forwarder listens on the machine.
type forwarder struct {
	proxy      string
	addAddress func(ctx context.Context, address string) error
	listeners  map[endpoint]io.Closer
}

func newForwarder(proxy string, addAddress func(ctx context.Context, address string) error) *forwarder {
	return &forwarder{proxy: proxy, addAddress: addAddress, listeners: map[endpoint]io.Closer{}}
}

// sync listens on what is wanted, and on nothing else.
func (f *forwarder) sync(ctx context.Context, wanted map[endpoint]bool) error {
	for e, listener := range f.listeners {
		if !wanted[e] {
			log.Printf("%s/%s is gone", e.address, e.protocol)
			_ = listener.Close()
			delete(f.listeners, e)
		}
	}
	var errs []error
	for e := range wanted {
		if f.listeners[e] != nil {
			continue
		}
		listener, err := f.listen(ctx, e)
		if err != nil {
			errs = append(errs, fmt.Errorf("listening on %s/%s: %w", e.address, e.protocol, err))
			continue
		}
		log.Printf("listening on %s/%s", e.address, e.protocol)
		f.listeners[e] = listener
	}
	return errors.Join(errs...)
}

func (f *forwarder) close() {
	for _, listener := range f.listeners {
		_ = listener.Close()
	}
}

func (f *forwarder) listen(ctx context.Context, e endpoint) (io.Closer, error) {
	if err := f.addAddress(ctx, e.address.Addr().String()); err != nil {
		return nil, err
	}
	var config net.ListenConfig
	switch {
	case e.protocol == corev1.ProtocolTCP:
		listener, err := config.Listen(ctx, "tcp", e.address.String())
		if err != nil {
			return nil, err
		}
		go f.accept(ctx, listener, e.address)
		return listener, nil
	case e.protocol == corev1.ProtocolUDP && e.address.Port() == 53:
		packets, err := config.ListenPacket(ctx, "udp", e.address.String())
		if err != nil {
			return nil, err
		}
		go f.answer(ctx, packets, e.address)
		return packets, nil
	default:
		log.Printf("%s/%s is not forwarded: only TCP and DNS are", e.address, e.protocol)
		return io.NopCloser(nil), nil
	}
}

// connect connects to a load balancer by the proxy.
func (f *forwarder) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	connection, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", f.proxy)
	if err != nil {
		return nil, err
	}
	reader := bufio.NewReader(connection)
	_, err = fmt.Fprintf(connection, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", to)
	if err == nil {
		// Its body is the connection.
		response, readErr := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // see above
		if err = readErr; err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("asking %s for %s: %w", f.proxy, to, err), connection.Close())
	}
	return buffered{connection.(*net.TCPConn), reader}, nil
}

// buffered is a connection of which something was read ahead.
type buffered struct {
	*net.TCPConn
	reader io.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.reader.Read(p) }

// WriteTo hides that of the connection, which does not know what was read ahead.
func (b buffered) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, b.reader) }

func (f *forwarder) accept(ctx context.Context, listener net.Listener, to netip.AddrPort) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// It may be out of files.
			log.Print(err)
			time.Sleep(retryInterval)
			continue
		}
		go func() {
			upstream, err := f.connect(ctx, to)
			if err != nil {
				log.Print(err)
				_ = client.Close()
				return
			}
			pipe(client, upstream)
		}()
	}
}

// answer answers DNS requests, which are asked by TCP.
func (f *forwarder) answer(ctx context.Context, packets net.PacketConn, to netip.AddrPort) {
	for {
		request := make([]byte, 1<<16)
		n, client, err := packets.ReadFrom(request)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		go func() {
			answer, err := f.ask(ctx, to, request[:n])
			if err != nil {
				log.Print(err)
				return
			}
			_, _ = packets.WriteTo(answer, client)
		}()
	}
}

// ask sends a DNS request by TCP.
func (f *forwarder) ask(ctx context.Context, to netip.AddrPort, request []byte) ([]byte, error) {
	upstream, err := f.connect(ctx, to)
	if err != nil {
		return nil, err
	}
	defer func() { _ = upstream.Close() }()
	// It fails only if the connection is closed, as the write does then.
	_ = upstream.SetDeadline(time.Now().Add(5 * time.Second))
	messages := &dns.Conn{Conn: upstream}
	if _, err := messages.Write(request); err != nil {
		return nil, err
	}
	return messages.ReadMsgHeader(nil)
}
