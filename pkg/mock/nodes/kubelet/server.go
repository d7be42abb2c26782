// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package kubelet stands in for the kubelets of fake Nodes where kube-apiservers call them: for port-forward, logs and exec.
// gardenlet takes a shoot for healthy only once it can open a port-forward to the pod vpn-shoot, which it does through the
// kube-apiserver of the shoot and the kubelet of the pod's Node. That nothing listens behind the port makes no difference to it.
//
// One server is there for all Nodes of all shoots: it knows no Node and no pod, so it answers anybody for any of them with
// the same few words, keeps no state, and may run in any number of instances. There is nothing to protect in that, so clients
// need no certificate. Its own is self-signed, made at the start: a kube-apiserver that verifies it (as those of shoots
// do: --kubelet-certificate-authority is a CA of the shoot, of which only the seed has the key) has to be told not to, which
// package mockcontrolplane of pkg/webhook does.
package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

const (
	// message is what a client gets to read wherever a container would have said something.
	message = "this pod runs on a fake node of the mock provider: it has no containers\n"

	headerTimeout   = 10 * time.Second
	shutdownTimeout = 2 * time.Second
	certificateLife = 10 * 365 * 24 * time.Hour
)

// Server is a runnable of a manager that runs on all instances, not just on the leader.
type Server struct {
	// Address is "HOST:PORT" to listen on; the host may be empty.
	Address string
	// Log is the logger.
	Log logr.Logger

	// listening is told the address once it listens; tests need it.
	listening func(net.Addr)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends.
func (s *Server) Start(ctx context.Context) error {
	certificate, err := selfSigned()
	if err != nil {
		return fmt.Errorf("making a certificate for the stand-in of kubelets: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listening as stand-in of kubelets: %w", err)
	}
	if s.listening != nil {
		s.listening(listener.Addr())
	}

	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTimeout,
		// Connections are upgraded to SPDY, which HTTP/2 cannot do.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		TLSConfig:    &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving as stand-in of kubelets: %w", err)
	case <-ctx.Done():
	}
	// Those that were upgraded are not waited for.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return errors.Join(server.Close())
	}
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if _, err := io.WriteString(w, text); err != nil {
				s.Log.V(1).Info("A client went before it had its answer", "reason", err.Error())
			}
		}
	}
	mux.HandleFunc("GET /healthz", say("ok"))
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", say(message))
	mux.HandleFunc("/portForward/{namespace}/{pod}", s.portForward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", s.portForward)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, message, http.StatusNotImplemented) })
	return mux
}

// selfSigned returns a certificate that nobody can verify.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "mock-kubelet"},
		DNSNames:     []string{"mock-kubelet"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, nil
}
