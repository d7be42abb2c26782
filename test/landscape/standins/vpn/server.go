// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sync/errgroup"
	certutil "k8s.io/client-go/util/cert"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
)

const (
	// serverCredentials is where vpn-seed-server has its certificate.
	serverCredentials = "/srv/secrets/vpn-server"
	// tunnelAddress is where vpn-shoot connects to.
	tunnelAddress = ":1194"
)

func runServer(ctx context.Context, getenv func(string) string) error {
	own, err := loadCredentials(serverCredentials)
	if err != nil {
		return err
	}
	networks, err := shootNetworks(getenv)
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
	return (&server{tls: own.server(clientName), networks: networks}).serve(ctx, tunnel, local)
}

// server is the seed's side of the VPN.
type server struct {
	tls     *tls.Config
	tunnels tunnels
	// networks are what is reached through the tunnel. Other addresses have no route into it, such as those of machines that have
	// addresses of the seed.
	networks []netip.Prefix
}

// serve takes tunnels, and requests of what shares the Pod, until ctx ends.
func (s *server) serve(ctx context.Context, tunnel, local net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return relay.Serve(ctx, tunnel, streams, s.serveTunnel) })
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
func (s *server) serveLocal(ctx context.Context, conn net.Conn) {
	relay.ServeRequest(conn, func(request *http.Request) (net.Conn, int) {
		switch path := request.URL.Path; {
		case request.Method == http.MethodGet && (path == "/readiness" || path == "/liveness"):
			return nil, http.StatusOK
		case request.Method != http.MethodConnect:
			return nil, http.StatusNotFound
		}
		target, err := s.connect(ctx, request.Host)
		if err == nil {
			return target, http.StatusOK
		}
		slog.Info("Not reached", "target", request.Host, "error", err)
		if refused := (*relay.StatusError)(nil); errors.As(err, &refused) {
			return nil, refused.Code
		}
		if errors.Is(err, errNoTunnel) {
			return nil, http.StatusServiceUnavailable
		}
		return nil, http.StatusBadGateway
	})
}

// connect connects with host:port, through the tunnel unless it is an address that is not behind that.
func (s *server) connect(ctx context.Context, target string) (net.Conn, error) {
	if address, err := netip.ParseAddrPort(target); err == nil && len(s.networks) > 0 && !contain(s.networks, address.Addr().Unmap()) {
		return (&net.Dialer{Timeout: relay.DialTimeout}).DialContext(ctx, "tcp", target)
	}
	stream, err := s.tunnels.open()
	if err != nil {
		return nil, err
	}
	joined, err := relay.Connect(stream, target, nil)
	if err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	return joined, nil
}

const (
	// serverName is in the certificate of vpn-seed-server.
	serverName = "vpn-seed-server"
	// clientName is the subject of vpn-shoot's certificate.
	clientName = "vpn-shoot-client"
	// streams is how many connections go through the tunnel at a time.
	streams = 2048
	// spareTunnels is how many tunnels are kept, the newest one being used. There is more than one while vpn-shoot is rolled.
	spareTunnels = 4
)

// errNoTunnel says that nobody is connected.
var errNoTunnel = errors.New("there is no tunnel to the shoot")

// muxConfig has a broken connection noticed within about 20 seconds on both sides.
func muxConfig() *yamux.Config {
	config := yamux.DefaultConfig()
	config.KeepAliveInterval = 10 * time.Second
	config.StreamOpenTimeout = relay.HandshakeTimeout
	config.LogOutput = io.Discard
	return config
}

// credentials are a certificate, and who signs those of others.
type credentials struct {
	certificate tls.Certificate
	authorities *x509.CertPool
}

// loadCredentials reads what Gardener mounts into a folder: tls.crt, tls.key and ca.crt.
func loadCredentials(dir string) (credentials, error) {
	return loadFiles(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt"))
}

func loadFiles(certificate, key, authorities string) (credentials, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return credentials{}, fmt.Errorf("reading the certificate: %w", err)
	}
	pool, err := certutil.NewPool(authorities)
	if err != nil {
		return credentials{}, fmt.Errorf("reading the authorities: %w", err)
	}
	return credentials{certificate: pair, authorities: pool}, nil
}

// server is the configuration of who takes connections of holders of certificates only, of the one name if it is not empty.
func (c credentials) server(name string) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{c.certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    c.authorities,
		VerifyConnection: func(state tls.ConnectionState) error {
			if found := state.PeerCertificates[0].Subject.CommonName; name != "" && found != name {
				return fmt.Errorf("the certificate is of %q, not of %q", found, name)
			}
			return nil
		},
	}
}

// client is the configuration of who connects to a server of that name.
func (c credentials) client(name string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{c.certificate}, RootCAs: c.authorities, ServerName: name}
}

// handshake does that of TLS in time.
func handshake(ctx context.Context, conn *tls.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, relay.HandshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("shaking hands: %w", err)
	}
	return nil
}

// tunnels are the connections of vpn-shoot, the newest last.
type tunnels struct {
	lock sync.Mutex
	all  []*yamux.Session
}

// add makes a tunnel the one to use. Older ones stay, as what goes through them shall end in peace, and as their clients would
// take the place of the new one if they had to connect again.
func (t *tunnels) add(session *yamux.Session) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.all = append(t.all, session)
	if len(t.all) > spareTunnels {
		go t.all[0].Close() //nolint:errcheck // It tells how the connection ended, which nobody is waiting for.
		t.all = slices.Delete(t.all, 0, 1)
	}
}

func (t *tunnels) remove(session *yamux.Session) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.all = slices.DeleteFunc(t.all, func(s *yamux.Session) bool { return s == session })
}

// open opens a stream in the newest tunnel that is alive.
func (t *tunnels) open() (net.Conn, error) {
	t.lock.Lock()
	all := slices.Clone(t.all)
	t.lock.Unlock()
	err := errNoTunnel
	for _, session := range slices.Backward(all) {
		stream, openErr := session.Open()
		if openErr == nil {
			return stream, nil
		}
		err = fmt.Errorf("%w: opening a stream: %w", errNoTunnel, openErr)
	}
	return nil, err
}
