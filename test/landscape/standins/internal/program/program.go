// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package program has what the stand-ins share as programs of a Pod: how they end, and how a command answers its probes.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Main runs a program until it is told to end. An error is logged, and the exit code is 1 then.
func Main(run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("Ending", "error", err)
		os.Exit(1) //nolint:gocritic // Nothing is left to stop.
	}
}

// Serve serves HTTP on an address of a network ("tcp" or "unix") until ctx ends.
func Serve(ctx context.Context, network, address string, handler http.Handler) error {
	if network == "unix" {
		// The socket of the run before is in the way. If it can't be removed, listening fails.
		_ = os.Remove(address)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return fmt.Errorf("opening %s: %w", address, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", address, err)
	}
	return nil
}

// Ask asks another process of the Pod, which serves HTTP on an address of a network ("tcp" or "unix"). An error has its answer,
// unless that is 200.
func Ask(ctx context.Context, network, address, path string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", path, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", path, err)
	}
	reason, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return fmt.Errorf("asking for %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking for %s: %s: %s", path, response.Status, reason)
	}
	return nil
}
