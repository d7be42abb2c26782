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
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// readyTimeout is below the second that kubelet gives a probe, so that the answer is one of ours.
const readyTimeout = 900 * time.Millisecond

// answerTimeout is how long requests may take to be answered once the process is to end. POST /stop is one of them.
const answerTimeout = time.Second

// server answers the readiness probe, and backup-restore when it wants etcd restarted.
type server struct {
	http *http.Server
	// etcd is what is asked whether it is ready, once it was started.
	etcd atomic.Pointer[embed.Etcd]
}

// serve listens until close is called. Like the original it serves HTTPS with etcd's own certificate if etcd has one, and asks
// nobody for theirs: kubelet has none.
func serve(opts options, cfg *embed.Config, stop func()) (*server, error) {
	s := &server{}
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", s.ready)
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) {
		slog.Info("Asked to stop")
		stop()
	})
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 16}
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(opts.Port)))
	if err != nil {
		return nil, fmt.Errorf("serving /readyz: %w", err)
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
			slog.Error("No longer serving /readyz", "error", err)
			stop()
		}
	}()
	return s, nil
}

// ready asks etcd when it is asked itself: an answer is never older than the question, and nothing is done between two.
func (s *server) ready(w http.ResponseWriter, request *http.Request) {
	ctx, cancel := context.WithTimeout(request.Context(), readyTimeout)
	defer cancel()
	// What a linearizable read of the original waits for: it succeeds only with a quorum, and a learner refuses it.
	err := errors.New("etcd isn't there yet")
	if etcd := s.etcd.Load(); etcd != nil && !etcd.Server.IsLearner() {
		err = etcd.Server.LinearizableReadNotify(ctx)
	}
	if err != nil {
		slog.Info("Not ready", "error", err)
		http.Error(w, "etcd does not answer", http.StatusServiceUnavailable)
	}
}

// close lets who asked have their answers, within bounds. It may be called again.
func (s *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		slog.Info("Ending the readiness check", "error", errors.Join(err, s.http.Close()))
	}
}
