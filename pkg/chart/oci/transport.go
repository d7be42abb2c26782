// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/opencontainers/go-digest"
	"k8s.io/utils/clock"
	"oras.land/oras-go/v2/registry/remote"
)

const (
	userAgent     = "gardener-extension-provider-local"
	contentDigest = "Docker-Content-Digest"
	maxRedirects  = 5
)

// newHTTPClient returns a client that trusts the given CAs. Its transport turns answers which may be others soon into
// errors and refuses plain HTTP where it is not allowed, also when a registry redirects to it.
func newHTTPClient(s *source, a *access) *http.Client {
	dialer := &net.Dialer{Timeout: s.puller.opts.HeaderTimeout, KeepAlive: 30 * time.Second}
	base := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.roots},
		TLSHandshakeTimeout:    s.puller.opts.HeaderTimeout,
		ResponseHeaderTimeout:  s.puller.opts.HeaderTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConnsPerHost:    1,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
	}
	known := make(map[string]bool, len(s.target.Endpoints))
	for _, e := range s.target.Endpoints {
		known[e.reference().Host()] = true
	}
	return &http.Client{
		Transport: &transport{base: base, plain: s.config.PlainHTTP, known: known, clock: s.puller.opts.Clock, metrics: s.puller.metrics},
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) >= maxRedirects {
				return fmt.Errorf("stopped after %d redirects", maxRedirects)
			}
			return nil
		},
	}
}

type transport struct {
	base  *http.Transport
	plain bool
	// known are the registries that are configured; others, to which they send, have no label of their own.
	known   map[string]bool
	clock   clock.PassiveClock
	metrics *metrics
}

// CloseIdleConnections is what http.Client calls.
func (t *transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme == "http" && !t.plain && !isLoopback(request.URL.Host) {
		return nil, problemf(ReasonConfiguration, "the registry sends to %s by HTTP without TLS, which is allowed only with plainHTTP", request.URL.Host)
	}

	response, err := t.base.RoundTrip(request)
	registry, code := "other", "error"
	if t.known[request.URL.Host] {
		registry = request.URL.Host
	}
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	t.metrics.requests.WithLabelValues(registry, request.Method, code).Inc()
	if err != nil {
		return nil, err
	}

	switch status := response.StatusCode; {
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		response.Body.Close()
		return nil, &busyError{status: status, retryAfter: parseRetryAfter(response.Header.Get("Retry-After"), t.clock.Now())}
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

// verifying refuses an answer whose headers tell already that it is not what was asked for.
type verifying struct {
	remote.Client
	// digest is what is expected, or "" for whatever a tag means.
	digest digest.Digest
	// size is what is expected, or 0 if it is not known.
	size int64
}

// Do implements remote.Client.
func (v *verifying) Do(request *http.Request) (*http.Response, error) {
	response, err := v.Client.Do(request)
	if err != nil || response.StatusCode != http.StatusOK || v.digest == "" {
		return response, err
	}
	fail := func(format string, args ...any) (*http.Response, error) {
		response.Body.Close()
		return nil, problemf(ReasonDigestMismatch, format, args...)
	}
	got := response.Header.Get(contentDigest)
	switch {
	case got == "":
		// The content itself is verified in any case, the header only saves reading it.
		response.Header.Set(contentDigest, v.digest.String())
	case got != v.digest.String():
		return fail("asked for %s, the registry says that it sends %s", v.digest, got)
	}
	if v.size > 0 && response.ContentLength >= 0 && request.Method == http.MethodGet && response.ContentLength != v.size {
		return fail("%s has %d bytes, the registry sends %d", v.digest, v.size, response.ContentLength)
	}
	return response, nil
}
