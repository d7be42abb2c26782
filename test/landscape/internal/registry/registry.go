// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package registry is the landscape's image registry: what is pushed is kept on disk and outlives a restart, and what
// containerd asks for in the name of a registry that can't be reached is answered from the table of images.
package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/prometheus/procfs"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

// Given is the folder of repositories that stand for those of others by their names (images.StandsFor), at any tag: what is pushed as
// Given + "extensions/foo" is the image example.com/extensions/foo.
const Given = "given/"

var manifestPath = regexp.MustCompile(`^/v2/(.+)/manifests/([^/]+)$`)

// Registry is an http.Handler.
type Registry struct {
	table images.Table
	next  http.Handler
	log   *slog.Logger

	mu     sync.RWMutex
	pushed map[string]bool
	// journal has manifests in the order of their arrival, which is one in which an index comes after its parts. The library keeps
	// them in memory; replaying them at start makes it remember.
	journal *os.File
}

const journalName = "manifests.jsonl"

// Open makes a registry that keeps everything in dir. What newest drops goes from the disk on that occasion.
func Open(dir string, table images.Table, logger *slog.Logger) (*Registry, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("opening the registry: %w", err)
	}
	pushes, err := readJournal(dir)
	if err != nil {
		return nil, err
	}
	r := &Registry{table: table, log: logger, pushed: map[string]bool{}}
	r.next = registry.New(registry.WithBlobHandler(blobs{dir: dir}), registry.Logger(log.New(io.Discard, "", 0)))
	var kept []push
	for _, p := range newest(pushes) {
		request := httptest.NewRequest(http.MethodPut, "/v2/"+p.Repository+"/manifests/"+p.Reference, bytes.NewReader(p.Body))
		request.Header.Set("Content-Type", p.MediaType)
		response := httptest.NewRecorder()
		r.next.ServeHTTP(response, request)
		r.pushed[p.Repository] = true
		// If it is refused, its parts are gone; whoever needs it pushes it again.
		if response.Code == http.StatusCreated {
			kept = append(kept, p)
		}
	}
	if err := writeJournal(dir, kept); err != nil {
		return nil, err
	}
	if r.journal, err = os.OpenFile(filepath.Join(dir, journalName), os.O_WRONLY, 0); err != nil { // #nosec G304 -- the registry's own file.
		return nil, fmt.Errorf("opening the registry's journal: %w", err)
	}
	_, err = r.journal.Seek(0, io.SeekEnd)
	return r, err
}

// Prune removes the manifests in dir that keep, which gets a repository and a digest, doesn't want, and the blobs that only
// these named. No registry may have dir open.
func Prune(dir string, keep func(repository, digest string) bool) error {
	pushes, err := readJournal(dir)
	if err != nil {
		return err
	}
	return writeJournal(dir, slices.DeleteFunc(pushes, func(p push) bool {
		return !keep(p.Repository, fmt.Sprintf("sha256:%x", sha256.Sum256(p.Body)))
	}))
}

// Close closes the journal.
func (r *Registry) Close() error { return r.journal.Close() }

// ServeHTTP serves the distribution API. A manifest that was pushed is served as it was pushed, every tag for itself, and
// clients that name this registry get honest answers: Skaffold decides by a 404 what to build. Only a request which
// containerd redirects here from another registry (it says so with the parameter ns) falls back to the table of images, and then
// to what was pushed as Given. At a 404, containerd asks that registry itself.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	match := manifestPath.FindStringSubmatch(req.URL.Path)
	if match != nil && (req.Method == http.MethodPut || req.Method == http.MethodDelete) {
		r.change(w, req, match[1], match[2])
		return
	}
	host := req.URL.Query().Get("ns")
	if reads := req.Method == http.MethodGet || req.Method == http.MethodHead; match != nil && reads && host != "" && !r.knows(match[1]) {
		req = r.fallback(req, host, match[1], match[2])
	}
	r.next.ServeHTTP(w, req)
}

// ForCaches is the registry for pull-through caches, which do not say in whose name they ask.
func (r *Registry) ForCaches() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.URL.RawQuery = "ns=cache"
		r.ServeHTTP(w, req)
	})
}

func (r *Registry) knows(repository string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.pushed[repository]
}

// fallback rewrites a request for a repository that nobody pushed. A digest comes from an earlier answer of ours and keeps
// its value; any tag becomes the one tag that there is, unless the table has exact versions.
func (r *Registry) fallback(req *http.Request, host, repository, reference string) *http.Request {
	found, listed := r.table.Lookup(repository)
	source := images.Repository(found.Image)
	if !listed {
		source = r.given(repository)
	}
	r.log.Info("answering for another registry", "host", host, "repository", repository, "reference", reference, "from", source)
	if source == "" {
		return req
	}
	if !found.Exact && !strings.Contains(reference, ":") {
		reference = "latest"
	}
	rewritten := req.Clone(req.Context())
	rewritten.URL.Path = "/v2/" + source + "/manifests/" + reference
	return rewritten
}

// given finds what was pushed as Given for a repository: that of the longest name.
func (r *Registry) given(repository string) (longest string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for pushed, there := range r.pushed {
		if name, is := strings.CutPrefix(pushed, Given); is && there && images.StandsFor(name, repository) && len(pushed) > len(longest) {
			longest = pushed
		}
	}
	return longest
}

// change lets the library accept or delete the manifest, and journals that before the client hears that it is safe.
func (r *Registry) change(w http.ResponseWriter, req *http.Request, repository, reference string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 4<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	r.next.ServeHTTP(answer, req)
	deleted := answer.Code == http.StatusAccepted
	if answer.Code == http.StatusCreated || deleted {
		if err := r.keep(push{Repository: repository, Reference: reference, MediaType: req.Header.Get("Content-Type"), Body: body, Deleted: deleted}); err != nil {
			r.log.Error("keeping a manifest", "repository", repository, "reference", reference, "error", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		r.log.Info("changed", "repository", repository, "reference", reference, "deleted", deleted)
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// keep adds a push to the journal.
func (r *Registry) keep(p push) error {
	line, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("writing the registry's journal: %w", err)
	}
	r.mu.Lock()
	n, err := r.journal.Write(append(line, '\n'))
	if err != nil {
		// The next push takes its place: nothing is read behind a line that is cut off.
		_, errSeek := r.journal.Seek(-int64(n), io.SeekCurrent)
		err = errors.Join(err, errSeek)
	} else {
		r.pushed[p.Repository] = !p.Deleted
	}
	r.mu.Unlock()
	if err == nil {
		err = r.journal.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing the registry's journal: %w", err)
	}
	return nil
}

// onlyHostPushes refuses whatever changes the registry, unless it comes from root or the owner of the folder on this machine: machines run
// what is in it, as root. A program here has the connection's own address, and pods and other machines have theirs. It is for connections to one of the
// addresses: whoever listens on all of a container's has others as clients.
func onlyHostPushes(next http.Handler, addresses []string, folder string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		local, _ := req.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if req.Method != http.MethodGet && req.Method != http.MethodHead && local != nil && slices.Contains(addresses, local.String()) {
			here, errHere := netip.ParseAddrPort(local.String())
			there, errThere := netip.ParseAddrPort(req.RemoteAddr)
			if errors.Join(errHere, errThere) != nil || there.Addr() != here.Addr() && !there.Addr().IsLoopback() {
				http.Error(w, "the registry of the landscape takes images from its own machine only: push them there", http.StatusForbidden)
				return
			}
			user, err := userOf(there, here)
			info, errStat := os.Stat(folder)
			if errors.Join(err, errStat) != nil || user != 0 && user != uint64(info.Sys().(*syscall.Stat_t).Uid) {
				http.Error(w, "the registry of the landscape takes images from root and the owner of the clone only", http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// userOf returns the user whose socket on this machine is connected from one address to another.
func userOf(from, to netip.AddrPort) (uint64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	sockets, err := fs.NetTCP() //nolint:staticcheck // Netlink would be faster; pushes are few.
	if err != nil {
		return 0, err
	}
	for _, s := range sockets {
		// One that was closed has no user any more, and reads as root's. Connected is TCP_ESTABLISHED of include/net/tcp_states.h.
		const connected = 1
		if s.St == connected && s.LocalPort == uint64(from.Port()) && s.RemPort == uint64(to.Port()) &&
			s.LocalAddr.Equal(from.Addr().AsSlice()) && s.RemAddr.Equal(to.Addr().AsSlice()) {
			return s.UID, nil
		}
	}
	return 0, fmt.Errorf("no socket is connected from %s to %s", from, to)
}

// Serve serves handler on all addresses until ctx ends. On this machine, root and the owner of the folder may push.
func Serve(ctx context.Context, handler http.Handler, addresses []string, folder string) error {
	server := &http.Server{Handler: onlyHostPushes(handler, addresses, folder), ReadHeaderTimeout: 10 * time.Second}
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

// blobs keeps blobs as files named by their digest. The library's own disk handler reads the whole file for every HEAD,
// which for images of 100 MB is what a push spends most of its time on.
type blobs struct{ dir string }

var (
	_ registry.BlobHandler     = blobs{}
	_ registry.BlobStatHandler = blobs{}
	_ registry.BlobPutHandler  = blobs{}
)

func (b blobs) path(h v1.Hash) string { return filepath.Join(b.dir, h.Algorithm, h.Hex) }

// Stat returns the size of a blob.
func (b blobs) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	info, err := os.Stat(b.path(h))
	if errors.Is(err, os.ErrNotExist) {
		return 0, registry.ErrNotFound
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Get opens a blob.
func (b blobs) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	file, err := os.Open(b.path(h))
	if errors.Is(err, os.ErrNotExist) {
		return nil, registry.ErrNotFound
	}
	return file, err
}

// Put stores a blob; the caller's reader fails if the content doesn't match the digest, and then nothing is stored.
func (b blobs) Put(_ context.Context, _ string, h v1.Hash, content io.ReadCloser) (err error) {
	defer func() { err = errors.Join(err, content.Close()) }()
	if err := os.MkdirAll(filepath.Dir(b.path(h)), 0o750); err != nil {
		return err
	}
	file, err := os.CreateTemp(b.dir, "upload-*")
	if err != nil {
		return err
	}
	if _, err = io.Copy(file, content); err == nil {
		// After a power cut, no blob of this name may be empty.
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return os.Rename(file.Name(), b.path(h))
}

var digests = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// push is one accepted manifest, as it came in.
type push struct {
	Repository string `json:"repository"`
	Reference  string `json:"reference"`
	MediaType  string `json:"mediaType"`
	Body       []byte `json:"body"`
	// Deleted is true if the tag was deleted: then there is no body.
	Deleted bool `json:"deleted,omitempty"`
}

// keptReferences is how many tags and digests of a repository outlive a restart: those that were pushed last. It bounds what
// the registry takes on disk, as every change of a program makes another image.
const keptReferences = 16

// newest drops the pushes that a later one of the same tag replaced or deleted, and those of a repository that are too many.
func newest(pushes []push) []push {
	seen, count := map[string]bool{}, map[string]int{}
	var kept []push
	for _, p := range slices.Backward(pushes) {
		if reference := p.Repository + ":" + p.Reference; !seen[reference] && count[p.Repository] < keptReferences {
			seen[reference] = true
			if p.Deleted {
				continue
			}
			count[p.Repository]++
			kept = append(kept, p)
		}
	}
	slices.Reverse(kept)
	return kept
}

// sweep removes the blobs that none of the manifests names, and what uploads left that were cut off.
func (b blobs) sweep(manifests []push) error {
	named := map[string]bool{}
	for _, p := range manifests {
		for _, digest := range digests.FindAllString(string(p.Body), -1) {
			named[digest] = true
		}
	}
	uploads, errUploads := filepath.Glob(filepath.Join(b.dir, "upload-*"))
	files, errFiles := filepath.Glob(filepath.Join(b.dir, "sha256", "*"))
	if err := errors.Join(errUploads, errFiles); err != nil {
		return fmt.Errorf("sweeping the registry: %w", err)
	}
	files = slices.DeleteFunc(files, func(path string) bool { return named["sha256:"+filepath.Base(path)] })
	for _, path := range append(uploads, files...) {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("sweeping the registry: %w", err)
		}
	}
	return nil
}

// readJournal reads up to the first broken line: the registry was killed while it wrote that one, and its client, which got
// no answer, will try again.
func readJournal(dir string) ([]push, error) {
	content, err := os.ReadFile(filepath.Join(dir, journalName)) // #nosec G304 -- the registry's own file.
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the registry's journal: %w", err)
	}
	var pushes []push
	decoder := json.NewDecoder(bytes.NewReader(content))
	for {
		var p push
		if err := decoder.Decode(&p); err != nil {
			return pushes, nil
		}
		pushes = append(pushes, p)
	}
}

// writeJournal makes these manifests all that there are, and removes the blobs that none of them names.
func writeJournal(dir string, pushes []push) error {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for _, p := range pushes {
		if err := encoder.Encode(p); err != nil {
			return fmt.Errorf("writing the registry's journal: %w", err)
		}
	}
	if err := layout.WriteFile(filepath.Join(dir, journalName), lines.Bytes(), 0o600); err != nil {
		return fmt.Errorf("writing the registry's journal: %w", err)
	}
	return blobs{dir: dir}.sweep(pushes)
}
