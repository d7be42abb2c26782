// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	livePath  = "/live"
	readyPath = "/ready"
	// patience is after how long without a report the agent counts as stuck.
	patience = 4 * syncPeriod
)

// health tells the probes, which are programs of their own, how the agent is.
type health struct {
	now func() time.Time

	mu       sync.Mutex
	reported time.Time
	problem  error
}

func newHealth(now func() time.Time) *health {
	return &health{now: now, reported: now(), problem: errors.New("nothing was done yet")}
}

// report says how the last round ended.
func (h *health) report(problem error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if problem != nil && (h.problem == nil || problem.Error() != h.problem.Error()) {
		slog.Error("The network is not complete", "error", problem)
	}
	if problem == nil && h.problem != nil {
		slog.Info("The network is complete")
	}
	h.reported, h.problem = h.now(), problem
}

// ServeHTTP answers with status 503 and the reason if it is not as asked for.
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	problem := h.problem
	if since := h.now().Sub(h.reported); since > patience {
		problem = fmt.Errorf("nothing was done for %s", since)
	} else if r.URL.Path == livePath {
		problem = nil
	}
	h.mu.Unlock()
	switch {
	case r.URL.Path != livePath && r.URL.Path != readyPath:
		http.NotFound(w, r)
	case problem != nil:
		http.Error(w, problem.Error(), http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusOK)
	}
}

// serve answers on a socket until the end of ctx; the channel tells if that ends earlier.
func (h *health) serve(ctx context.Context, socket string) (<-chan error, error) {
	// The one of the run before is in the way.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("opening %s: %w", socket, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", socket, err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	failed := make(chan error, 1)
	go func() { failed <- fmt.Errorf("serving %s: %w", socket, server.Serve(listener)) }()
	return failed, nil
}

// ask is what a probe does.
func ask(ctx context.Context, socket, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://calico-node"+path, nil)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", path, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", path, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fmt.Errorf("%s: %s", response.Status, reason)
	}
	return nil
}
