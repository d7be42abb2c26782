// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/hashicorp/yamux"
	"golang.org/x/sync/errgroup"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
)

const (
	// serverCredentials is where vpn-seed-server has its certificate.
	serverCredentials = "/srv/secrets/vpn-server"
	// tunnelAddress is where vpn-shoot connects to.
	tunnelAddress = ":1194"
)

func runServer(ctx context.Context) error {
	own, err := loadCredentials(serverCredentials)
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	tunnel, err := listen.Listen(ctx, "tcp", tunnelAddress)
	if err != nil {
		return fmt.Errorf("opening the tunnel's port: %w", err)
	}
	defer tunnel.Close()
	local, err := listen.Listen(ctx, "tcp", localAddress)
	if err != nil {
		return fmt.Errorf("opening the local port: %w", err)
	}
	return (&server{tls: own.server(clientName)}).serve(ctx, tunnel, local)
}

// server is the seed's side of the VPN.
type server struct {
	tls     *tls.Config
	tunnels tunnels
}

// serve takes tunnels, and requests of what shares the Pod, until ctx ends.
func (s *server) serve(ctx context.Context, tunnel, local net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return relay.Serve(ctx, tunnel, 4*spareTunnels, s.serveTunnel) })
	group.Go(func() error { return relay.Serve(ctx, local, streams, s.serveLocal) })
	return group.Wait()
}

// serveTunnel keeps the connection of a vpn-shoot until it breaks.
func (s *server) serveTunnel(ctx context.Context, conn net.Conn) {
	encrypted := tls.Server(conn, s.tls)
	if err := handshake(ctx, encrypted); err != nil {
		slog.Info("Not taken as a tunnel", "from", conn.RemoteAddr().String(), "error", err)
		return
	}
	// The seed's side is the one that opens streams, so that it is the client here.
	session, err := yamux.Client(encrypted, muxConfig())
	if err != nil {
		slog.Error("Making a tunnel", "error", err)
		return
	}
	defer session.Close() //nolint:errcheck // It tells how the connection ended.
	s.tunnels.add(session)
	defer s.tunnels.remove(session)
	slog.Info("Tunnel is there", "from", conn.RemoteAddr().String())
	select {
	case <-session.CloseChan():
		slog.Info("Tunnel is gone", "from", conn.RemoteAddr().String())
	case <-ctx.Done():
	}
}

// serveLocal answers probes, and joins who asks with CONNECT to a stream. Both probes ask whether the server serves, not
// whether there is a tunnel: the Pod that replaces another one gets its tunnel only when the other is gone.
func (s *server) serveLocal(_ context.Context, conn net.Conn) {
	request, conn, err := relay.ReadRequest(conn)
	if err != nil {
		return
	}
	if request.Method != http.MethodConnect {
		status := http.StatusNotFound
		if request.Method == http.MethodGet && (request.URL.Path == "/readiness" || request.URL.Path == "/liveness") {
			status = http.StatusOK
		}
		relay.Answer(conn, status)
		return
	}
	stream, err := s.tunnels.open()
	if err != nil {
		slog.Info("Not reached", "target", request.Host, "error", err)
		relay.Answer(conn, http.StatusServiceUnavailable)
		return
	}
	defer stream.Close()
	joined, err := relay.Connect(stream, request.Host, nil)
	if err != nil {
		status := http.StatusBadGateway
		if refused := (*relay.StatusError)(nil); errors.As(err, &refused) {
			status = refused.Code
		}
		slog.Info("Not reached", "target", request.Host, "error", err)
		relay.Answer(conn, status)
		return
	}
	if err := relay.Accept(conn); err != nil {
		return
	}
	relay.Join(conn, joined)
}
