// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
)

// router tells where connections go. The watcher is one.
type router interface {
	byHost(host string) (backend, bool)
	address(backend) (string, error)
	open(port int) bool
}

// proxy joins clients and Services.
type proxy struct {
	router router
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// serveTLS forwards a connection as it is to whom its server name belongs.
func (p *proxy) serveTLS(ctx context.Context, conn net.Conn) {
	host, conn, err := relay.ServerName(conn)
	if err != nil {
		// Also whoever only looks whether the port is open ends here.
		slog.Debug("No ClientHello", "error", err)
		return
	}
	to, found := p.router.byHost(host)
	if !found {
		slog.Info("No route", "host", host, "from", conn.RemoteAddr().String())
		return
	}
	upstream, err := p.reach(ctx, to)
	if err != nil {
		slog.Info("No backend", "host", host, "error", err)
		return
	}
	relay.Join(conn, upstream)
}

// serveConnect returns the handler of a port of the HTTP proxy, at which clients say by a header where they want to go.
func (p *proxy) serveConnect(port int, header string) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		if !p.router.open(port) {
			return
		}
		request, conn, err := relay.ReadRequest(conn)
		if err != nil {
			slog.Debug("No request", "port", port, "error", err)
			return
		}
		to, allowed := connectBackend(request.Header.Get(header))
		if request.Method != http.MethodConnect || !allowed {
			slog.Info("Refused", "port", port, "method", request.Method, "destination", request.Header.Get(header))
			relay.Answer(conn, http.StatusForbidden)
			return
		}
		upstream, err := p.reach(ctx, to)
		if err != nil {
			slog.Info("No backend", "destination", request.Header.Get(header), "error", err)
			relay.Answer(conn, http.StatusServiceUnavailable)
			return
		}
		defer upstream.Close()
		if err := relay.Accept(conn); err != nil {
			return
		}
		relay.Join(conn, upstream)
	}
}

func (p *proxy) reach(ctx context.Context, to backend) (net.Conn, error) {
	address, err := p.router.address(to)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, relay.DialTimeout)
	defer cancel()
	return p.dial(ctx, "tcp", address)
}
