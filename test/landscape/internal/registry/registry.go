// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
)

var manifestPath = regexp.MustCompile(`^/v2/(.+)/manifests/([^/]+)$`)

// Registry is an http.Handler.
type Registry struct {
	table   images.Table
	next    http.Handler
	journal *journal
	log     *slog.Logger

	mu     sync.RWMutex
	pushed map[string]bool
}

// Open makes a registry that keeps everything in dir.
func Open(dir string, table images.Table, logger *slog.Logger) (*Registry, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("opening the registry: %w", err)
	}
	r := &Registry{table: table, log: logger, pushed: map[string]bool{}}
	r.next = registry.New(registry.WithBlobHandler(blobs{dir: dir}), registry.Logger(log.New(io.Discard, "", 0)))
	journal, err := openJournal(filepath.Join(dir, "manifests.jsonl"), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.pushed[manifestPath.FindStringSubmatch(req.URL.Path)[1]] = true
		r.next.ServeHTTP(w, req)
	}))
	if err != nil {
		return nil, err
	}
	r.journal = journal
	return r, blobs{dir: dir}.sweep(journal.kept)
}

// Close closes the journal.
func (r *Registry) Close() error { return r.journal.close() }

// ServeHTTP serves the distribution API. A manifest that was pushed is served as it was pushed, every tag for itself, and
// clients that name this registry get honest answers: Skaffold decides by a 404 what to build. Only a request which
// containerd redirects here from another registry (it says so with the parameter ns) falls back to the table of images.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	match := manifestPath.FindStringSubmatch(req.URL.Path)
	if match == nil {
		r.next.ServeHTTP(w, req)
		return
	}
	repository, reference := match[1], match[2]
	switch req.Method {
	case http.MethodPut:
		r.put(w, req, repository, reference)
	case http.MethodGet, http.MethodHead:
		if host := req.URL.Query().Get("ns"); host != "" && !r.knows(repository) {
			req = r.fallback(req, host, repository, reference)
		}
		r.next.ServeHTTP(w, req)
	default:
		r.next.ServeHTTP(w, req)
	}
}

func (r *Registry) knows(repository string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.pushed[repository]
}

// fallback rewrites a request for a repository that nobody pushed. A digest comes from an earlier answer of ours and keeps
// its value; any tag becomes the one tag that there is, unless the table has exact versions.
func (r *Registry) fallback(req *http.Request, host, repository, reference string) *http.Request {
	found := r.table.Lookup(repository)
	r.log.Info("answering for another registry", "host", host, "repository", repository, "reference", reference, "image", found.Image, "listed", found.Listed)
	if !found.Exact && !strings.Contains(reference, ":") {
		reference = "latest"
	}
	rewritten := req.Clone(req.Context())
	rewritten.URL.Path = "/v2/" + images.Repository(found.Image) + "/manifests/" + reference
	return rewritten
}

// put lets the library accept the manifest, and journals it before the client hears that it is safe.
func (r *Registry) put(w http.ResponseWriter, req *http.Request, repository, reference string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 4<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	answer := &held{ResponseWriter: w, status: http.StatusOK}
	r.next.ServeHTTP(answer, req)
	if answer.status == http.StatusCreated {
		err := r.journal.add(push{Repository: repository, Reference: reference, MediaType: req.Header.Get("Content-Type"), Body: body})
		if err != nil {
			r.log.Error("keeping a manifest", "repository", repository, "reference", reference, "error", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		r.mu.Lock()
		r.pushed[repository] = true
		r.mu.Unlock()
		r.log.Info("pushed", "repository", repository, "reference", reference)
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body.Bytes())
}

// held keeps status and body back until the push is on disk.
type held struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (h *held) WriteHeader(status int)            { h.status = status }
func (h *held) Write(content []byte) (int, error) { return h.body.Write(content) }

// Serve serves handler on all addresses until ctx ends.
func Serve(ctx context.Context, handler http.Handler, addresses []string) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, len(addresses))
	for _, address := range addresses {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("serving the registry on %s: %w", address, err)
		}
		go func() { failed <- server.Serve(listener) }()
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serving the registry: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(stop); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("stopping the registry: %w", err)
	}
	return nil
}
