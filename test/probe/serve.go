// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"time"
)

// Answer is what a Server says to whoever asks.
type Answer struct {
	// Name is the name of the server.
	Name string `json:"name"`
	// Host is the host that was asked for; empty over UDP.
	Host string `json:"host,omitempty"`
	// ServerName is the one of the TLS handshake, if there was any.
	ServerName string `json:"serverName,omitempty"`
	// Client is who asked, as the server sees it: host:port.
	Client string `json:"client"`
}

// Server tells its name to whoever asks, by HTTP, TLS and UDP.
type Server struct {
	// Name is what it tells.
	Name string
	// HTTP, TLS and UDP are the addresses (host:port) to listen on; none for an empty one.
	HTTP, TLS, UDP string
}

// Listening is a Server that listens and doesn't serve yet.
type Listening struct {
	server  Server
	http    []net.Listener
	packets net.PacketConn
}

// Listen opens the ports. Serve closes them.
func (s Server) Listen(ctx context.Context) (*Listening, error) {
	listening := &Listening{server: s}
	var config net.ListenConfig
	if s.HTTP != "" {
		listener, err := config.Listen(ctx, "tcp", s.HTTP)
		if err != nil {
			return nil, fmt.Errorf("listening for HTTP: %w", err)
		}
		listening.http = append(listening.http, listener)
	}
	if s.TLS != "" {
		certificate, err := selfSigned(s.Name)
		if err != nil {
			return nil, errors.Join(err, listening.close())
		}
		listener, err := config.Listen(ctx, "tcp", s.TLS)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listening for TLS: %w", err), listening.close())
		}
		listening.http = append(listening.http, tls.NewListener(listener, &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		}))
	}
	if s.UDP != "" {
		packets, err := config.ListenPacket(ctx, "udp", s.UDP)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listening for UDP: %w", err), listening.close())
		}
		listening.packets = packets
	}
	return listening, nil
}

// Serve answers until ctx ends.
func (l *Listening) Serve(ctx context.Context) error {
	server := &http.Server{Handler: http.HandlerFunc(l.server.answer), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error)
	running := 0
	for _, listener := range l.http {
		running++
		go func() { done <- server.Serve(listener) }()
	}
	if l.packets != nil {
		running++
		go func() { done <- l.server.echo(l.packets) }()
	}

	stop := context.AfterFunc(ctx, func() {
		_ = server.Close()
		_ = l.close()
	})
	defer stop()
	var errs []error
	for range running {
		if err := <-done; ctx.Err() == nil {
			errs = append(errs, err)
			_ = server.Close()
			_ = l.close()
		}
	}
	return errors.Join(errs...)
}

func (l *Listening) close() error {
	var errs []error
	for _, listener := range l.http {
		errs = append(errs, listener.Close())
	}
	if l.packets != nil {
		errs = append(errs, l.packets.Close())
	}
	return errors.Join(errs...)
}

func (s Server) answer(w http.ResponseWriter, r *http.Request) {
	answer := Answer{Name: s.Name, Host: r.Host, Client: r.RemoteAddr}
	if r.TLS != nil {
		answer.ServerName = r.TLS.ServerName
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (s Server) echo(packets net.PacketConn) error {
	buffer := make([]byte, 1<<16)
	for {
		_, client, err := packets.ReadFrom(buffer)
		if err != nil {
			return err
		}
		content, err := json.Marshal(Answer{Name: s.Name, Client: client.String()})
		if err != nil {
			return err
		}
		if _, err := packets.WriteTo(content, client); errors.Is(err, net.ErrClosed) {
			return err
		}
	}
}

// selfSigned makes a certificate that nobody trusts.
func selfSigned(name string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
