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
	"strconv"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// readyTimeout is below the second that kubelet gives a probe, so that the answer is one of ours.
const readyTimeout = 900 * time.Millisecond

// answerTimeout is how long requests may take to be answered once the process is to end. POST /stop is one of them.
const answerTimeout = time.Second

// server answers the readiness probe, and backup-restore when it wants etcd restarted.
type server struct {
	http *http.Server
	etcd *clientv3.Client
	log  *slog.Logger
}

// serve listens until close is called. Like the original it serves HTTPS with etcd's own certificate if etcd has one, and asks
// nobody for theirs: kubelet has none.
func serve(opts options, cfg *embed.Config, stop func(), log *slog.Logger) (*server, error) {
	client, err := etcdClient(opts, cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the readiness check: %w", err)
	}
	s := &server{etcd: client, log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", s.ready)
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) {
		log.Info("Asked to stop")
		stop()
	})
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 16}
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(opts.Port)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serving /readyz: %w", err), client.Close())
	}
	if files := cfg.ClientTLSInfo; !files.Empty() {
		// The files are read at each handshake, so a renewed certificate needs no restart.
		listener = tls.NewListener(listener, &tls.Config{
			MinVersion: tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
				return &pair, err
			},
		})
	}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("No longer serving /readyz", "error", err)
			stop()
		}
	}()
	return s, nil
}

// ready asks etcd when it is asked itself: an answer is never older than the question, and nothing is done between two.
func (s *server) ready(w http.ResponseWriter, request *http.Request) {
	ctx, cancel := context.WithTimeout(request.Context(), readyTimeout)
	defer cancel()
	// A linearizable read of any key, as the original does: it succeeds only with a quorum.
	if _, err := s.etcd.Get(ctx, "foo", clientv3.WithCountOnly()); err != nil {
		s.log.Info("Not ready", "error", err)
		http.Error(w, "etcd does not answer", http.StatusServiceUnavailable)
	}
}

// close lets who asked have their answers, within bounds. It may be called again.
func (s *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if err := errors.Join(err, s.etcd.Close()); err != nil && !errors.Is(err, context.Canceled) {
		s.log.Info("Ending the readiness check", "error", err)
	}
}

func etcdClient(opts options, cfg *embed.Config) (*clientv3.Client, error) {
	secure := !cfg.ClientTLSInfo.Empty()
	config := clientv3.Config{
		Endpoints: []string{url(secure, opts.ServerName, opts.ClientPort)},
		// Until etcd listens, a failed attempt is no news.
		Logger: zap.NewNop(),
		// And the next attempt must not be late: gRPC alone would let up to two minutes pass.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		})},
	}
	if secure {
		info := transport.TLSInfo{
			CertFile: opts.ClientCert, KeyFile: opts.ClientKey, TrustedCAFile: cfg.ClientTLSInfo.TrustedCAFile, ServerName: opts.ServerName,
		}
		tlsConfig, err := info.ClientConfig()
		if err != nil {
			return nil, err
		}
		config.TLS = tlsConfig
	}
	return clientv3.New(config)
}
