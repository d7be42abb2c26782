// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package relay has what the stand-ins of proxies share (gateway, vpn): serving connections, joining two of them, and both
// sides of HTTP CONNECT. It knows nothing of Kubernetes, so that each program is a list of who is joined to whom.
package relay

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// HandshakeTimeout is how long a peer may take until it said what it wants.
	HandshakeTimeout = 10 * time.Second
	// DialTimeout is how long it may take to reach a backend.
	DialTimeout = 5 * time.Second

	// maxHead bounds the head of an HTTP message, in bytes.
	maxHead = 16 << 10
)

// Serve accepts connections until ctx ends, hands each to handle, and closes it afterwards. No more than limit are served at
// a time; further ones wait to be accepted. At the end of ctx listener and connections are closed, and Serve returns when the
// last handler did. An error is returned only if accepting failed.
func Serve(ctx context.Context, listener net.Listener, limit int, handle func(context.Context, net.Conn)) error {
	ctx, cancel := context.WithCancel(ctx)
	var handlers sync.WaitGroup
	defer handlers.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { listener.Close() })()

	slots := make(chan struct{}, limit)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accepting on %s: %w", listener.Addr(), err)
		}
		handlers.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			handle(ctx, conn)
		})
	}
}

// Join copies between two connections until both directions have ended, and closes both. The end of one direction is passed
// on (a half-closed connection); an error ends both at once.
func Join(a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	forward := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if err == nil {
			err = closeWrite(to)
		}
		if err != nil {
			past := time.Unix(1, 0)
			_ = a.SetDeadline(past)
			_ = b.SetDeadline(past)
		}
	}
	var other sync.WaitGroup
	other.Go(func() { forward(a, b) })
	forward(b, a)
	other.Wait()
}

// closeWrite ends one direction. A stream that can't say that is one whose Close does just this (yamux).
func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}

// replayed is a connection of which something was read already.
type replayed struct {
	net.Conn
	reader io.Reader
}

// Replay returns a connection that reads head before what is still to come.
func Replay(conn net.Conn, head []byte) net.Conn {
	if len(head) == 0 {
		return conn
	}
	return &replayed{Conn: conn, reader: io.MultiReader(bytes.NewReader(head), conn)}
}

func (r *replayed) Read(b []byte) (int, error) { return r.reader.Read(b) }

// CloseWrite ends the direction of writing.
func (r *replayed) CloseWrite() error { return closeWrite(r.Conn) }

// ReadRequest reads the head of a request within HandshakeTimeout. The connection that is returned reads what follows it.
func ReadRequest(conn net.Conn) (*http.Request, net.Conn, error) {
	var request *http.Request
	rest, err := readHead(conn, func(reader *bufio.Reader) (err error) {
		request, err = http.ReadRequest(reader)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reading a request: %w", err)
	}
	return request, rest, nil
}

// Connect asks the proxy at the other end of conn for a connection to target, host:port, and waits HandshakeTimeout for it.
// The connection that is returned is the one to target. What the proxy answers other than 200 is a *StatusError.
func Connect(conn net.Conn, target string, header http.Header) (net.Conn, error) {
	var head bytes.Buffer
	fmt.Fprintf(&head, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", target, target)
	if err := header.Write(&head); err != nil {
		return nil, fmt.Errorf("asking for %s: %w", target, err)
	}
	head.WriteString("\r\n")
	if _, err := conn.Write(head.Bytes()); err != nil {
		return nil, fmt.Errorf("asking for %s: %w", target, err)
	}
	var response *http.Response
	rest, err := readHead(conn, func(reader *bufio.Reader) (err error) {
		response, err = http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", target, err)
	}
	// The body of a refusal ends with the connection, which the caller closes.
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, &StatusError{Target: target, Code: response.StatusCode}
	}
	return rest, nil
}

// StatusError is a proxy's refusal.
type StatusError struct {
	// Target is what was asked for, host:port.
	Target string
	// Code is the HTTP status.
	Code int
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("asking for %s: %d %s", e.Target, e.Code, http.StatusText(e.Code))
}

// readHead lets read take the head of an HTTP message, which comes in time and is not too long.
func readHead(conn net.Conn, read func(*bufio.Reader) error) (net.Conn, error) {
	if err := conn.SetReadDeadline(time.Now().Add(HandshakeTimeout)); err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: conn, N: maxHead}
	reader := bufio.NewReader(limited)
	if err := read(reader); err != nil {
		if limited.N == 0 {
			return nil, errors.New("its head is too long")
		}
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	rest, err := reader.Peek(reader.Buffered())
	if err != nil {
		return nil, err
	}
	return Replay(conn, rest), nil
}

// ServeRequest reads a request and joins its connection to the one that dial returns, as CONNECT asks for. Without one, the status that dial
// returns is the answer.
func ServeRequest(conn net.Conn, dial func(*http.Request) (target net.Conn, status int)) {
	request, conn, err := ReadRequest(conn)
	if err != nil {
		// Also whoever only looks whether the port is open ends here.
		return
	}
	target, status := dial(request)
	if target == nil {
		Answer(conn, status)
		return
	}
	defer target.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err == nil {
		Join(conn, target)
	}
}

// Answer answers with a status and nothing else; the connection is of no use afterwards.
func Answer(conn net.Conn, code int) {
	_ = conn.SetWriteDeadline(time.Now().Add(DialTimeout))
	fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", code, http.StatusText(code))
}

// maxHello bounds what is read for a ClientHello, in bytes: the largest handshake message that crypto/tls takes, in records.
const maxHello = 80 << 10

// ServerName reads the ClientHello within HandshakeTimeout and returns the host that it names, in lower case, without a
// trailing dot and empty if it names none. The connection that is returned reads the ClientHello again.
func ServerName(conn net.Conn) (string, net.Conn, error) {
	if err := conn.SetReadDeadline(time.Now().Add(HandshakeTimeout)); err != nil {
		return "", nil, err
	}
	var (
		read bytes.Buffer
		host string
		seen = errors.New("seen")
	)
	hello := readOnly{Conn: conn, reader: io.TeeReader(io.LimitReader(conn, maxHello), &read)}
	err := tls.Server(hello, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			host = info.ServerName
			return nil, seen
		},
	}).Handshake()
	if !errors.Is(err, seen) {
		return "", nil, fmt.Errorf("reading a ClientHello: %w", err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return "", nil, err
	}
	return strings.ToLower(strings.TrimSuffix(host, ".")), Replay(conn, read.Bytes()), nil
}

// readOnly keeps crypto/tls from answering.
type readOnly struct {
	net.Conn
	reader io.Reader
}

func (r readOnly) Read(b []byte) (int, error) { return r.reader.Read(b) }
func (readOnly) Write([]byte) (int, error)    { return 0, io.ErrClosedPipe }
