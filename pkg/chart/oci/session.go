// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

// MediaType is that of the layer which is a chart.
const MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

// session asks the registries of a target with some credentials. It holds the tokens that they gave out for these, so one
// session is not to be used for longer than a change of what the credentials may do is to take. Only one goroutine may use
// it at a time.
type session struct {
	target  target
	opts    Options
	began   time.Time
	access  *access
	http    *http.Client
	servers []*server
}

// server is an endpoint with what is known of it.
type server struct {
	endpoint
	client *auth.Client
	// http tells that it was found to speak no TLS.
	http bool
}

func newSession(s *source, a *access) *session {
	session := &session{
		target: s.target, opts: s.puller.opts, began: s.puller.opts.Clock.Now(), access: a, http: newHTTPClient(s, a),
	}
	for i, e := range s.target.Endpoints {
		session.servers = append(session.servers, &server{endpoint: e, client: &auth.Client{
			Client:     session.http,
			Header:     http.Header{"User-Agent": {userAgent}},
			Credential: auth.StaticCredential(e.Registry, a.credentials[i]),
			Cache:      auth.NewCache(),
		}})
	}
	return session
}

func (s *session) close() {
	if s != nil {
		s.http.CloseIdleConnections()
	}
}

// resolve asks what the reference leads to, once and with little patience. A registry that grants this lets the
// credentials pull.
func (s *session) resolve(ctx context.Context) (digest.Digest, error) {
	var resolved digest.Digest
	err := s.ask(ctx, 1, s.opts.CheckTimeout, func(ctx context.Context, repository *remote.Repository) error {
		repository.Client = &verifying{Client: repository.Client, digest: s.expected()}
		descriptor, err := repository.Manifests().Resolve(ctx, s.target.Reference)
		if err != nil && classify(err) == ReasonUnexpectedAnswer && !errors.Is(err, http.ErrSchemeMismatch) {
			// The header with the digest may be missing from a response to HEAD.
			_, descriptor, err = s.manifest(ctx, repository)
		}
		resolved = descriptor.Digest
		return err
	})
	return resolved, err
}

// expected is the digest of the manifest, or "" if the reference is a tag.
func (s *session) expected() digest.Digest {
	if s.target.Tagged {
		return ""
	}
	return digest.Digest(s.target.Reference)
}

// pulled is what a reference led to.
type pulled struct {
	manifest digest.Digest
	chart    digest.Digest
	// archive is verified; nil if it was known.
	archive []byte
}

// pull gets the chart, without the archive if known tells that it is there.
func (s *session) pull(ctx context.Context, known func(digest.Digest) bool) (*pulled, error) {
	var result *pulled
	err := s.ask(ctx, s.opts.Attempts, s.opts.AttemptTimeout, func(ctx context.Context, repository *remote.Repository) error {
		layer, manifest, err := s.manifest(ctx, repository)
		if err != nil {
			return err
		}
		found := &pulled{manifest: manifest.Digest, chart: layer.Digest}
		if !known(layer.Digest) {
			if found.archive, err = s.layer(ctx, repository, layer); err != nil {
				return err
			}
		}
		result = found
		return nil
	})
	return result, err
}

// manifest gets the manifest, verified, and returns the descriptors of the layer with the chart and of itself.
func (s *session) manifest(ctx context.Context, repository *remote.Repository) (layer, manifest ocispec.Descriptor, err error) {
	repository.Client = &verifying{Client: s.clientOf(repository), digest: s.expected()}
	repository.MaxMetadataBytes = s.opts.Limits.ManifestBytes

	manifest, body, err := repository.Manifests().FetchReference(ctx, s.target.Reference)
	if err != nil {
		return layer, manifest, err
	}
	defer body.Close()
	if manifest.Size > s.opts.Limits.ManifestBytes {
		return layer, manifest, problemf(ReasonTooLarge, "the manifest has %d bytes, more than %d", manifest.Size, s.opts.Limits.ManifestBytes)
	}
	raw, err := content.ReadAll(body, manifest)
	if err != nil {
		return layer, manifest, fmt.Errorf("reading the manifest: %w", err)
	}
	layer, err = chartLayer(raw, manifest.MediaType)
	return layer, manifest, err
}

// chartLayer finds the one layer that is a chart.
func chartLayer(raw []byte, mediaType string) (ocispec.Descriptor, error) {
	var manifest struct {
		MediaType string               `json:"mediaType"`
		Manifests []json.RawMessage    `json:"manifests"`
		Layers    []ocispec.Descriptor `json:"layers"`
	}
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return ocispec.Descriptor{}, problemf(ReasonNotAChart, "the manifest is not JSON: %w", err)
	}
	if len(manifest.Manifests) > 0 || mediaType == ocispec.MediaTypeImageIndex {
		return ocispec.Descriptor{}, problemf(ReasonNotAChart, "it is an index of manifests (%s): name one of them by its digest", mediaType)
	}

	var (
		charts []ocispec.Descriptor
		others []string
	)
	for _, layer := range manifest.Layers {
		if layer.MediaType == MediaType {
			charts = append(charts, layer)
		} else {
			others = append(others, layer.MediaType)
		}
	}
	if len(charts) != 1 {
		return ocispec.Descriptor{}, problemf(ReasonNotAChart, "the manifest (%s) has %d layers of type %s, others are of %q", mediaType, len(charts), MediaType, others)
	}
	if err := charts[0].Digest.Validate(); err != nil {
		return ocispec.Descriptor{}, problemf(ReasonNotAChart, "the digest of the layer is not valid: %w", err)
	}
	return charts[0], nil
}

func (s *session) layer(ctx context.Context, repository *remote.Repository, layer ocispec.Descriptor) ([]byte, error) {
	if layer.Size > s.opts.Limits.ArchiveBytes || layer.Size < 0 {
		return nil, problemf(ReasonTooLarge, "the archive has %d bytes, more than %d", layer.Size, s.opts.Limits.ArchiveBytes)
	}
	repository.Client = &verifying{Client: s.clientOf(repository), digest: layer.Digest, size: layer.Size}
	body, err := repository.Blobs().Fetch(ctx, layer)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	// This verifies size and digest, and reads no more than one byte too much.
	archive, err := content.ReadAll(io.LimitReader(body, s.opts.Limits.ArchiveBytes+1), layer)
	if err != nil {
		return nil, fmt.Errorf("reading the archive: %w", err)
	}
	return archive, nil
}

// clientOf returns the client below what verifies an answer.
func (*session) clientOf(repository *remote.Repository) remote.Client {
	if wrapped, ok := repository.Client.(*verifying); ok {
		return wrapped.Client
	}
	return repository.Client
}

// ask asks one server after the other until one gives an answer. Only those that failed in a way that may pass are asked
// again, after a pause, at most attempts times.
func (s *session) ask(ctx context.Context, attempts int, timeout time.Duration, request func(context.Context, *remote.Repository) error) error {
	var (
		backoff  = wait.Backoff{Duration: s.opts.RetryWait, Factor: 2, Jitter: 1, Steps: attempts, Cap: maxRetryWait}
		failures = make(map[*server]error)
		pending  = s.servers
	)
	for attempt := 1; ; attempt++ {
		var (
			again []*server
			pause time.Duration
		)
		for _, server := range pending {
			err := server.ask(ctx, timeout, request)
			if err == nil {
				return nil
			}
			failures[server] = err
			if transient(err) {
				again = append(again, server)
				pause = max(pause, retryAfter(err))
			}
		}
		if len(again) == 0 || attempt >= attempts || pause > maxRetryWait {
			break
		}
		if !s.sleep(ctx, max(pause, backoff.Step())) {
			break
		}
		pending = again
	}
	return s.failure(failures)
}

// sleep returns false if there is not enough time left.
func (s *session) sleep(ctx context.Context, pause time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
		return false
	}
	timer := s.opts.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// failure is the one error of all servers.
func (s *session) failure(failures map[*server]error) error {
	var (
		all  []error
		text []string
	)
	for _, server := range s.servers {
		if err := failures[server]; err != nil {
			all = append(all, err)
			s.opts.Log.Info("A registry does not give a chart", "ref", s.target.Ref, "registry", server.String(),
				"problem", shorten(query.ReplaceAllString(err.Error(), "$1")))
			text = append(text, fmt.Sprintf("%s: %s", server.endpoint, told(err)))
		}
	}
	slices.Reverse(all) // The Retry-After of the registry itself is found before that of a mirror.
	return &problem{reason: worst(all), err: &described{text: strings.Join(text, "; "), error: errors.Join(all...)}}
}

// told is what a status may repeat of an error: the same for each attempt, and nothing that the registry has written, which
// failure logs.
func told(err error) string {
	var (
		response *errcode.ErrorResponse
		network  *net.OpError
	)
	if errors.As(err, &response) {
		return fmt.Sprintf("%s %q: response status code %d: %s", response.Method, response.URL, response.StatusCode, http.StatusText(response.StatusCode))
	}
	text := err.Error()
	if errors.As(err, &network) && network.Source != nil {
		// Each connection has another port here.
		text = strings.ReplaceAll(text, network.Source.String()+"->", "")
	}
	return shorten(text)
}

// shorten cuts a text between two characters.
func shorten(text string) string {
	const most = 1 << 10
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// described is an error with another text.
type described struct {
	error
	text string
}

func (d *described) Error() string { return d.text }
func (d *described) Unwrap() error { return d.error }

// ask asks by TLS, and without it where that is allowed and the server speaks no TLS.
func (s *server) ask(ctx context.Context, timeout time.Duration, request func(context.Context, *remote.Repository) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	repository := func() *remote.Repository {
		return &remote.Repository{Client: s.client, Reference: s.reference(), PlainHTTP: s.http}
	}
	err := request(ctx, repository())
	if err == nil || s.http {
		return err
	}
	mismatch := errors.Is(err, http.ErrSchemeMismatch)
	if mismatch && !s.Plain {
		return problemf(ReasonConfiguration, "%w: it speaks HTTP without TLS, which is allowed only with plainHTTP", err)
	}
	// Without a port in the reference, the protocol decides about it.
	_, _, noPort := net.SplitHostPort(s.Registry)
	if !mismatch && (!s.Plain || noPort == nil || !errors.Is(err, syscall.ECONNREFUSED)) {
		return err
	}
	s.http = true
	if err = request(ctx, repository()); err != nil && classify(err) == ReasonUnreachable {
		// Perhaps it was only down.
		s.http = false
	}
	return err
}
