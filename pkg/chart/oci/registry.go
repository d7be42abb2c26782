// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

const (
	// MediaType is that of the layer which is a chart.
	MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	// CABundleKey is the key in the Secret of caBundleSecretRef.
	CABundleKey = "bundle.crt"

	// manifestBytes and archiveBytes bound the manifest and the compressed archive. No response may be larger than the
	// latter.
	manifestBytes = 256 << 10
	archiveBytes  = 8 << 20
)

// parse returns where the configured chart may be. An error is a mistake that the validation of the configuration should
// have found.
func parse(config configv1alpha1.OCIChart) (refs []name.Reference, err error) {
	registry, rest, _ := strings.Cut(config.Ref, "/")
	for _, at := range append(slices.Clone(config.Mirrors), registry) {
		options := []name.Option{name.StrictValidation}
		if host, _, _ := strings.Cut(at, "/"); config.PlainHTTP || isLoopback(host) {
			options = append(options, name.Insecure)
		}
		ref, err := name.ParseReference(at+"/"+rest, options...)
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// isLoopback reports whether HOST[:PORT] never leaves the machine. Names count only if they are reserved for that.
func isLoopback(host string) bool {
	host = strings.ToLower(host)
	if withoutPort, _, err := net.SplitHostPort(host); err == nil {
		host = withoutPort
	}
	address, _ := netip.ParseAddr(strings.Trim(host, "[]"))
	return address.Unmap().IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// connect reads the Secrets, and forgets the clients if they changed.
func (s *source) connect(ctx context.Context) error {
	pullSecret, err := s.puller.secret(ctx, s.config.PullSecretRef, corev1.DockerConfigJsonKey)
	if err != nil {
		return err
	}
	caBundle, err := s.puller.secret(ctx, s.config.CABundleSecretRef, CABundleKey)
	if err != nil || s.transport != nil && pullSecret == s.pullSecret && caBundle == s.caBundle {
		return err
	}
	var roots *x509.CertPool // nil stands for those of the system.
	if caBundle != "" {
		if roots = rootsWith(caBundle); roots == nil {
			return problemf(ReasonConfiguration, "Secret %s/%s: there is no PEM certificate in its key %s", s.puller.opts.Namespace, s.config.CABundleSecretRef.Name, CABundleKey)
		}
	}
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}

	s.pullSecret, s.caBundle, s.clients = pullSecret, caBundle, map[name.Reference]*remote.Puller{}
	s.transport = http.DefaultTransport.(*http.Transport).Clone()
	s.transport.DialContext = (&net.Dialer{Timeout: s.puller.timing.headers, ControlContext: checkAddress}).DialContext
	s.transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	s.transport.TLSHandshakeTimeout, s.transport.ResponseHeaderTimeout = s.puller.timing.headers, s.puller.timing.headers
	s.transport.MaxResponseHeaderBytes = 64 << 10
	s.transport.DisableCompression = true
	return nil
}

// secret returns a key of the Secret, or "" if none is named.
func (p *Puller) secret(ctx context.Context, ref *corev1.LocalObjectReference, key string) (string, error) {
	if ref == nil {
		return "", nil
	}
	secret := &corev1.Secret{}
	err := p.opts.Reader.Get(ctx, client.ObjectKey{Namespace: p.opts.Namespace, Name: ref.Name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return "", problemf(ReasonConfiguration, "Secret %s/%s does not exist", p.opts.Namespace, ref.Name)
	case err != nil:
		return "", fmt.Errorf("reading Secret %s/%s: %w", p.opts.Namespace, ref.Name, err)
	case len(secret.Data[key]) == 0:
		return "", problemf(ReasonConfiguration, "Secret %s/%s has no key %s", p.opts.Namespace, ref.Name, key)
	}
	return string(secret.Data[key]), nil
}

// rootsWith returns the CAs of the system and of the bundle, or nil if there is none in the bundle.
func rootsWith(bundle string) *x509.CertPool {
	roots, err := x509.SystemCertPool()
	if err != nil {
		// Where the system has no certificates, those of the bundle are all there are.
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM([]byte(bundle)) {
		return nil
	}
	return roots
}

// Resolve implements authn.Keychain. It returns the entry for a repository in the Docker configuration: the one with the
// longest matching path, as kubelet chooses it. Errors contain nothing of the configuration.
func (s *source) Resolve(repository authn.Resource) (authn.Authenticator, error) {
	if s.pullSecret == "" {
		return authn.Anonymous, nil
	}
	invalid := func(how string) error {
		return problemf(ReasonConfiguration, "Secret %s/%s: its key %s %s", s.puller.opts.Namespace, s.config.PullSecretRef.Name, corev1.DockerConfigJsonKey, how)
	}
	var parsed struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal([]byte(s.pullSecret), &parsed); err != nil {
		return nil, invalid("is not a Docker configuration in JSON")
	}
	entries := map[string]json.RawMessage{}
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(parsed.Auths))) {
		entries[canonical(key)] = parsed.Auths[key]
	}
	for at := canonical(repository.String()); at != "."; at = path.Dir(at) {
		if found, ok := entries[at]; ok {
			var entry authn.AuthConfig
			if err := json.Unmarshal(found, &entry); err != nil {
				return nil, invalid("is not valid in the entry for " + repository.RegistryStr())
			}
			return authn.FromConfig(entry), nil
		}
	}
	return authn.Anonymous, nil
}

// canonical returns "[SCHEME://]HOST[:PORT][/PATH]" as HOST[:PORT][/PATH], with one name for all that Docker Hub has. Older
// versions of Docker have an API version as the path.
func canonical(key string) string {
	if _, after, ok := strings.Cut(key, "://"); ok {
		key = after
	}
	host, prefix, _ := strings.Cut(strings.TrimSuffix(key, "/"), "/")
	host = strings.ToLower(host)
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = "docker.io"
	}
	if prefix == "v1" || prefix == "v2" {
		prefix = ""
	}
	return path.Join(host, prefix)
}

// resolve returns the digest of the manifest that the reference leads to.
func (s *source) resolve(ctx context.Context) (digest string, err error) {
	err = s.ask(ctx, http.MethodHead, s.puller.timing.check, func(ctx context.Context, client *remote.Puller, ref name.Reference) error {
		head, err := client.Head(ctx, ref)
		if err == nil {
			digest = head.Digest.String()
		}
		if err == nil || classify(err) != ReasonUnexpectedAnswer {
			return err
		}
		// The response to HEAD may lack the header with the digest.
		got, err := client.Get(ctx, ref)
		if err == nil {
			digest = got.Digest.String()
		}
		return err
	})
	return digest, err
}

// pull gets the packed chart that the reference leads to.
func (s *source) pull(ctx context.Context) (found *pulled, packed []byte, err error) {
	err = s.ask(ctx, http.MethodGet, s.puller.timing.pull, func(ctx context.Context, client *remote.Puller, ref name.Reference) error {
		manifest, err := client.Get(ctx, ref)
		if err != nil {
			return err
		}
		layer, err := chartLayer(manifest)
		if err != nil {
			return err
		}
		blob, err := client.Layer(ctx, ref.Context().Digest(layer.Digest.String()))
		if err != nil {
			return err
		}
		body, err := blob.Compressed()
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }()
		packed, err = io.ReadAll(io.LimitReader(body, layer.Size+1))
		switch {
		case err != nil && isConnectionError(err):
			return fmt.Errorf("reading the archive: %w", err)
		case err != nil || int64(len(packed)) != layer.Size || digestOf(packed) != layer.Digest.String():
			// The library verifies the digest, too, but its error cannot be told from others.
			return problemf(ReasonDigestMismatch, "%s has %d bytes, the registry sends something else", layer.Digest, layer.Size)
		}
		found = &pulled{Ref: s.config.Ref, Manifest: manifest.Digest.String(), Chart: layer.Digest.String()}
		return nil
	})
	return found, packed, err
}

// chartLayer finds the one layer that is a chart.
func chartLayer(got *remote.Descriptor) (layer v1.Descriptor, err error) {
	if got.Size > manifestBytes {
		return layer, problemf(ReasonTooLarge, "the manifest has %d bytes, more than %d", got.Size, manifestBytes)
	}
	if got.MediaType.IsIndex() {
		return layer, problemf(ReasonNotAChart, "it is an index of manifests (%s): name one of them by its digest", got.MediaType)
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(got.Manifest))
	if err != nil {
		return layer, problemf(ReasonNotAChart, "reading the manifest (%s): %w", got.MediaType, err)
	}
	charts := slices.DeleteFunc(manifest.Layers, func(layer v1.Descriptor) bool { return layer.MediaType != MediaType })
	if len(charts) != 1 {
		return layer, problemf(ReasonNotAChart, "the manifest (%s) has %d layers of type %s", got.MediaType, len(charts), MediaType)
	}
	if size := charts[0].Size; size > archiveBytes || size < 0 {
		return layer, problemf(ReasonTooLarge, "the archive has %d bytes, more than %d", size, archiveBytes)
	}
	return charts[0], nil
}

// ask asks one registry after the other until one answers. The first request to each is the method for the manifest.
func (s *source) ask(ctx context.Context, method string, timeout time.Duration, request func(context.Context, *remote.Puller, name.Reference) error) error {
	var failures []error
	for _, ref := range s.refs {
		client, err := s.client(ref)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.WithValue(ctx, attemptKey{}, &attempt{ref: ref, method: method, transport: s.transport}), timeout)
		err = request(ctx, client, ref)
		cancel()
		if err == nil {
			return nil
		}
		delete(s.clients, ref) // It would remember the failure.
		s.puller.opts.Log.Info("A registry does not give a chart", "ref", s.config.Ref, "registry", ref.Context().String(), "problem", shortened(withoutQueries(err)))
		failures = append(failures, fmt.Errorf("%s: %w", ref.Context(), err))
	}
	return joined(failures)
}

// client returns the client for the registry of a reference, which remembers tokens.
func (s *source) client(ref name.Reference) (client *remote.Puller, err error) {
	if s.clients[ref] == nil {
		s.clients[ref], err = remote.NewPuller(
			remote.WithTransport(s), remote.WithAuthFromKeychain(s), remote.WithUserAgent("gardener-extension-provider-local"),
			remote.WithRetryBackoff(s.puller.timing.backoff),
			// Not 429 and 503: such a registry wants to be left alone.
			remote.WithRetryStatusCodes(http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout),
		)
	}
	return s.clients[ref], err
}

// attempt is one attempt to get something from one registry. The library begins with GET /v2/, to learn which protocol and which
// credentials the registry wants. The request for the manifest tells the same, so it is sent instead, and its answer is kept for
// when the library asks for it: two requests instead of three.
type attempt struct {
	ref       name.Reference
	method    string
	transport *http.Transport
	answer    atomic.Pointer[http.Response]
}

type attemptKey struct{}

// RoundTrip implements http.RoundTripper for the clients.
func (s *source) RoundTrip(request *http.Request) (*http.Response, error) {
	a := request.Context().Value(attemptKey{}).(*attempt)
	manifest := "/v2/" + a.ref.Context().RepositoryStr() + "/manifests/" + a.ref.Identifier()
	switch request.URL.Path {
	case manifest:
		if answer := a.answer.Swap(nil); answer != nil {
			answer.Request = request
			return answer, nil
		}
	case "/v2/":
		request = request.Clone(request.Context())
		request.Method, request.URL.Path = a.method, manifest
		request.Header.Set("Accept", strings.Join([]string{
			string(types.OCIManifestSchema1), string(types.DockerManifestSchema2), string(types.OCIImageIndex), string(types.DockerManifestList),
		}, ","))
		response, err := s.send(a, request)
		if err != nil || response.StatusCode != http.StatusOK {
			return response, err
		}
		body, err := io.ReadAll(response.Body)
		if err = errors.Join(err, response.Body.Close()); err != nil {
			return nil, err
		}
		answer := *response
		answer.Body, response.Body = io.NopCloser(bytes.NewReader(body)), http.NoBody
		a.answer.Store(&answer)
		return response, nil
	}
	return s.send(a, request)
}

var (
	// errPlainHTTP ends a request that would go over the network without TLS.
	errPlainHTTP = errors.New("HTTP without TLS is allowed only with plainHTTP")
	// errElsewhere is all that a status tells of a server that nobody but a registry has named.
	errElsewhere = errors.New("it leads to another server, of which the log has more")
)

// send bounds responses, counts requests, and refuses plain HTTP and addresses of this machine where they are not allowed, also
// when a registry redirects to them or names them for tokens.
func (s *source) send(a *attempt, request *http.Request) (*http.Response, error) {
	registry, code, own := "other", "error", a.ref.Context().RegistryStr()
	if request.URL.Host == own {
		registry = own
	}
	if proxy, err := http.ProxyFromEnvironment(request); registry != own && !isLoopback(own) && proxy == nil && err == nil {
		request = request.WithContext(context.WithValue(request.Context(), ledKey{}, true))
	}
	response, err := (*http.Response)(nil), fmt.Errorf("asking %s: %w", request.URL.Host, errPlainHTTP)
	if request.URL.Scheme != "http" || s.config.PlainHTTP || isLoopback(request.URL.Host) && isLoopback(own) {
		response, err = a.transport.RoundTrip(request)
	}
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	s.puller.metrics.Requests.WithLabelValues(registry, request.Method, code).Inc()
	if err != nil && registry != own {
		return nil, fmt.Errorf("%w: %w", errElsewhere, err)
	}
	if err != nil {
		return nil, err
	}
	response.Body = http.MaxBytesReader(nil, response.Body, archiveBytes)
	if after := parseRetryAfter(response.Header.Get("Retry-After"), s.puller.opts.Clock.Now()); after > 0 {
		s.retryAfter.Store(int64(after))
	}
	return response, nil
}

// ledKey marks the context of a request to a server that a registry has named: it redirects there, or names it for tokens.
type ledKey struct{}

// checkAddress refuses connections to which a registry leads, but that only this machine can make. The address is that to which
// a name was resolved.
func checkAddress(ctx context.Context, _, address string, _ syscall.RawConn) error {
	if ctx.Value(ledKey{}) == nil {
		return nil
	}
	parsed, err := netip.ParseAddrPort(address)
	if err != nil || !parsed.Addr().Unmap().IsGlobalUnicast() {
		return problemf(ReasonUnexpectedAnswer, "the address %s is a loopback, link-local, multicast or unspecified one", address)
	}
	return nil
}

// parseRetryAfter reads both forms of the header, seconds and a date.
func parseRetryAfter(value string, now time.Time) time.Duration {
	pause, err := time.ParseDuration(value + "s")
	if date, dateErr := http.ParseTime(value); err != nil && dateErr == nil {
		pause = date.Sub(now)
	}
	return min(pause, maxFailureMemory)
}
