// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// MediaType is that of the layer which is a chart.
const MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

const (
	userAgent = "gardener-extension-provider-local"
	// manifestBytes and archiveBytes bound the manifest and the compressed archive. No response may be larger than the
	// latter.
	manifestBytes = 256 << 10
	archiveBytes  = 8 << 20
)

// parse returns where the configured chart may be. An error is a mistake that the validation of the configuration should
// have found.
func parse(config configv1alpha1.OCIChart) ([]name.Reference, error) {
	origin, err := name.ParseReference(config.Ref, options(config, config.Ref)...)
	if err != nil {
		return nil, err
	}
	var refs []name.Reference
	for _, mirror := range config.Mirrors {
		repository, err := name.NewRepository(path.Join(mirror, origin.Context().RepositoryStr()), options(config, mirror)...)
		if err != nil {
			return nil, fmt.Errorf("mirror %q: %w", mirror, err)
		}
		if _, tagged := origin.(name.Tag); tagged {
			refs = append(refs, repository.Tag(origin.Identifier()))
		} else {
			refs = append(refs, repository.Digest(origin.Identifier()))
		}
	}
	return append(refs, origin), nil
}

func options(config configv1alpha1.OCIChart, ref string) []name.Option {
	host, _, _ := strings.Cut(ref, "/")
	if config.PlainHTTP || isLoopback(host) {
		return []name.Option{name.StrictValidation, name.Insecure}
	}
	return []name.Option{name.StrictValidation}
}

// isLoopback reports whether HOST[:PORT] never leaves the machine. Names count only if they are reserved for that.
func isLoopback(host string) bool {
	if address, err := netip.ParseAddrPort(host); err == nil {
		return address.Addr().Unmap().IsLoopback()
	}
	if address, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return address.Unmap().IsLoopback()
	}
	name, _, _ := strings.Cut(strings.ToLower(host), ":")
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// session asks the registries of a source with some credentials. Only one goroutine may use it at a time.
type session struct {
	source  *source
	access  access
	base    *http.Transport
	servers []*server
}

// server is a reference in one registry.
type server struct {
	ref       name.Reference
	transport *registryTransport
	// puller is nil before its first use and after a failure: it would remember that.
	puller *remote.Puller
}

func newSession(s *source, a access) (*session, error) {
	roots, err := s.roots(a.caBundle)
	if err != nil {
		return nil, err
	}
	headers := s.puller.timing.headers
	session := &session{source: s, access: a, base: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: headers, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    headers,
		ResponseHeaderTimeout:  headers,
		MaxResponseHeaderBytes: 64 << 10,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConnsPerHost:    1,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
	}}
	for _, ref := range s.refs {
		session.servers = append(session.servers, &server{ref: ref, transport: &registryTransport{
			base: session.base, source: s, ref: ref,
		}})
	}
	return session, nil
}

// retryAfter returns for how long the registries want to be left alone. That of the reference, which comes last, counts if
// it said so.
func (s *session) retryAfter() (pause time.Duration) {
	for _, server := range s.servers {
		server.transport.lock.Lock()
		pause = cmp.Or(server.transport.retryAfter, pause)
		server.transport.lock.Unlock()
	}
	return pause
}

// resolve returns the digest of the manifest that the reference leads to.
func (s *session) resolve(ctx context.Context) (digest string, err error) {
	err = s.ask(ctx, http.MethodHead, s.source.puller.timing.check, func(ctx context.Context, server *server) error {
		head, err := server.puller.Head(ctx, server.ref)
		if err == nil {
			digest = head.Digest.String()
			return nil
		}
		if classify(err) != ReasonUnexpectedAnswer {
			return err
		}
		// The header with the digest may be missing from a response to HEAD.
		got, err := server.puller.Get(ctx, server.ref)
		if err == nil {
			digest = got.Digest.String()
		}
		return err
	})
	return digest, err
}

// pull gets what the reference leads to.
func (s *session) pull(ctx context.Context) (found entry, archive []byte, err error) {
	err = s.ask(ctx, http.MethodGet, s.source.puller.timing.pull, func(ctx context.Context, server *server) error {
		got, err := server.puller.Get(ctx, server.ref)
		if err != nil {
			return err
		}
		if got.Size > manifestBytes {
			return problemf(ReasonTooLarge, "the manifest has %d bytes, more than %d", got.Size, manifestBytes)
		}
		layer, err := chartLayer(got)
		if err != nil {
			return err
		}
		found = entry{Ref: s.source.config.Ref, Manifest: got.Digest.String(), Chart: layer.Digest.String()}
		archive, err = server.layer(ctx, layer)
		return err
	})
	return found, archive, err
}

// chartLayer finds the one layer that is a chart.
func chartLayer(got *remote.Descriptor) (layer v1.Descriptor, err error) {
	if got.MediaType.IsIndex() {
		return layer, problemf(ReasonNotAChart, "it is an index of manifests (%s): name one of them by its digest", got.MediaType)
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(got.Manifest))
	if err != nil {
		return layer, problemf(ReasonNotAChart, "reading the manifest (%s): %w", got.MediaType, err)
	}
	var (
		charts []v1.Descriptor
		others []types.MediaType
	)
	for _, layer := range manifest.Layers {
		if layer.MediaType == MediaType {
			charts = append(charts, layer)
		} else {
			others = append(others, layer.MediaType)
		}
	}
	if len(charts) != 1 {
		return layer, problemf(ReasonNotAChart, "the manifest (%s) has %d layers of type %s, others are of %q", got.MediaType, len(charts), MediaType, others)
	}
	return charts[0], nil
}

// layer gets an archive. The library verifies its digest too, but its error could not be told from others.
func (s *server) layer(ctx context.Context, layer v1.Descriptor) ([]byte, error) {
	if layer.Size > archiveBytes || layer.Size < 0 {
		return nil, problemf(ReasonTooLarge, "the archive has %d bytes, more than %d", layer.Size, archiveBytes)
	}
	remoteLayer, err := s.puller.Layer(ctx, s.ref.Context().Digest(layer.Digest.String()))
	if err != nil {
		return nil, err
	}
	body, err := remoteLayer.Compressed()
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	archive, err := io.ReadAll(io.LimitReader(body, layer.Size+1))
	switch {
	case err != nil && isConnectionError(err):
		return nil, fmt.Errorf("reading the archive: %w", err)
	case err != nil || int64(len(archive)) != layer.Size || digestOf(archive) != layer.Digest.String():
		return nil, problemf(ReasonDigestMismatch, "%s has %d bytes, the registry sends something else", layer.Digest, layer.Size)
	}
	return archive, nil
}

func digestOf(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

// ask asks one registry after the other until one gives an answer. The first request to each is the method for the manifest.
func (s *session) ask(ctx context.Context, method string, timeout time.Duration, request func(context.Context, *server) error) error {
	var failures []error
	for _, server := range s.servers {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			if err := s.login(server, method); err != nil {
				return err
			}
			return request(ctx, server)
		}()
		if err == nil {
			return nil
		}
		server.puller = nil
		failures = append(failures, fmt.Errorf("%s: %w", server.ref.Context(), err))
		s.source.puller.opts.Log.Info("A registry does not give a chart", "ref", s.source.config.Ref, "registry", server.ref.Context().String(),
			"problem", shorten(withoutQueries(err.Error())))
	}
	return failure(failures)
}

// login makes the client for a registry, with the credentials for it.
func (s *session) login(server *server, method string) (err error) {
	if server.puller != nil {
		return nil
	}
	auth, err := credential(s.access.pullSecret, server.ref.Context())
	if err != nil {
		return problemf(ReasonConfiguration, "Secret %s/%s: %w", s.source.puller.opts.Namespace, s.source.config.PullSecretRef.Name, err)
	}
	server.transport.reset(method)
	server.puller, err = remote.NewPuller(
		remote.WithTransport(server.transport), remote.WithAuth(auth), remote.WithUserAgent(userAgent),
		remote.WithRetryBackoff(s.source.puller.timing.backoff),
		// Not 429 and 503: such a registry wants to be left alone.
		remote.WithRetryStatusCodes(http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout),
	)
	return err
}

// errPlainHTTP is the end of a request that would go over the network without TLS.
var errPlainHTTP = errors.New("HTTP without TLS is allowed only with plainHTTP")

// registryTransport bounds responses, counts requests, and refuses plain HTTP where it is not allowed, also when a registry
// redirects to it.
//
// The library begins with GET /v2/, to learn which protocol and which credentials the registry wants. The transport sends
// the request for the manifest in its place, which tells the same, and keeps a good answer for when the library asks for
// it. That saves one of three requests.
type registryTransport struct {
	base   http.RoundTripper
	source *source
	ref    name.Reference

	lock sync.Mutex
	// method is that of the first request, or "" when its answer was used.
	method string
	// early is a good answer to it, or nil, and body its content.
	early *http.Response
	body  []byte
	// retryAfter is how long the registry wants to be left alone.
	retryAfter time.Duration
}

func (t *registryTransport) reset(method string) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.method, t.early, t.retryAfter = method, nil, 0
}

func (t *registryTransport) manifestPath() string {
	return "/v2/" + t.ref.Context().RepositoryStr() + "/manifests/" + t.ref.Identifier()
}

// RoundTrip implements http.RoundTripper.
func (t *registryTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	t.lock.Lock()
	method, early := t.method, t.early
	t.lock.Unlock()
	switch request.URL.Path {
	case "/v2/":
		return t.ping(request, method)
	case t.manifestPath():
		if early != nil && request.Method == method {
			t.lock.Lock()
			defer t.lock.Unlock()
			t.early, t.method = nil, ""
			early.Request, early.Body = request, io.NopCloser(bytes.NewReader(t.body))
			return early, nil
		}
	}
	return t.send(request)
}

// ping asks for the manifest.
func (t *registryTransport) ping(request *http.Request, method string) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Method, request.URL.Path = method, t.manifestPath()
	request.Header.Set("Accept", strings.Join([]string{
		string(types.OCIManifestSchema1), string(types.DockerManifestSchema2), string(types.OCIImageIndex), string(types.DockerManifestList),
	}, ","))
	response, err := t.send(request)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	response.Body = http.NoBody
	kept := *response
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.method == method { // Unless it lost a race of HTTP and HTTPS, and is late.
		t.early, t.body = &kept, body
	}
	return response, nil
}

func (t *registryTransport) send(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme == "http" && !t.source.config.PlainHTTP && !isLoopback(request.URL.Host) {
		return nil, fmt.Errorf("asking %s: %w", request.URL.Host, errPlainHTTP)
	}
	response, err := t.base.RoundTrip(request)
	registry, code := "other", "error"
	if request.URL.Host == t.ref.Context().RegistryStr() {
		registry = request.URL.Host
	}
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	t.source.puller.metrics.Requests.WithLabelValues(registry, request.Method, code).Inc()
	if err != nil {
		return nil, err
	}
	response.Body = http.MaxBytesReader(nil, response.Body, archiveBytes)
	if after := parseRetryAfter(response.Header.Get("Retry-After"), t.source.puller.opts.Clock.Now()); after > 0 {
		t.lock.Lock()
		t.retryAfter = after
		t.lock.Unlock()
	}
	return response, nil
}

// parseRetryAfter reads both forms of the header, seconds and a date.
func parseRetryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 {
		return time.Duration(min(seconds, int(maxFailureMemory/time.Second))) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil && date.After(now) {
		return min(date.Sub(now), maxFailureMemory)
	}
	return 0
}
