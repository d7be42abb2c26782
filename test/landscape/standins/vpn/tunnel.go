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
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
)

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
	bundle, err := os.ReadFile(authorities) // #nosec G304 -- a path of the Pod's own configuration.
	if err != nil {
		return credentials{}, fmt.Errorf("reading the authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return credentials{}, fmt.Errorf("no certificate in %s", authorities)
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
		err = fmt.Errorf("opening a stream: %w", openErr)
	}
	return nil, err
}
