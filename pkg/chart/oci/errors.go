// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Reason is why there is no chart. It is the label "result" of the pulls in the metrics as well.
type Reason string

const (
	// ReasonConfiguration means that a Secret is missing or does not hold what it should.
	ReasonConfiguration Reason = "Configuration"
	// ReasonUnauthorized means that the registry refuses the credentials, or asks for some.
	ReasonUnauthorized Reason = "Unauthorized"
	// ReasonNotFound means that the registry has no such tag, digest or repository.
	ReasonNotFound Reason = "NotFound"
	// ReasonUnreachable means that the registry did not answer in time, or not properly: a connection that broke, status
	// 5xx, 429 or 408. Trying again later may help.
	ReasonUnreachable Reason = "Unreachable"
	// ReasonUntrusted means that the certificate of the registry is not trusted.
	ReasonUntrusted Reason = "Untrusted"
	// ReasonUnexpectedAnswer means that what answers does not behave as a registry does.
	ReasonUnexpectedAnswer Reason = "UnexpectedAnswer"
	// ReasonDigestMismatch means that the content is not what its digest says. It is never kept.
	ReasonDigestMismatch Reason = "DigestMismatch"
	// ReasonNotAChart means that there is something else than one Helm chart under the reference.
	ReasonNotAChart Reason = "NotAChart"
	// ReasonTooLarge means that the chart goes beyond one of the limits.
	ReasonTooLarge Reason = "TooLarge"
	// ReasonUnsafeArchive means that the archive holds a link, a device, or a name that leads out of it.
	ReasonUnsafeArchive Reason = "UnsafeArchive"
)

// remedies say what a user can do.
var remedies = map[Reason]string{
	ReasonConfiguration:    "correct charts.sources in the instance's configuration, or the Secret it names",
	ReasonUnauthorized:     "check the Secret in pullSecretRef, and that its user may pull from the repository",
	ReasonNotFound:         "check ref, and that the chart was pushed to the registry or to one of the mirrors",
	ReasonUnreachable:      "check the registry, the network and the mirrors",
	ReasonUntrusted:        "put the registry's CA into the key bundle.crt of a Secret and name it in caBundleSecretRef",
	ReasonUnexpectedAnswer: "check that there is a registry under this address",
	ReasonDigestMismatch:   "what the registry sends is damaged or was tampered with: push the chart again",
	ReasonNotAChart:        "ref must lead to one chart that was pushed by helm push",
	ReasonTooLarge:         "make the chart smaller",
	ReasonUnsafeArchive:    "pack the chart with helm package",
}

// Error is why there is no chart.
type Error struct {
	// Ref is the reference of the chart as configured, or "" within this package.
	Ref string
	// Reason classifies Err.
	Reason Reason
	// Err is what happened.
	Err error
}

// Error implements error. URLs are without their query.
func (e *Error) Error() string {
	if e.Ref == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("getting chart %s: %s: %s", e.Ref, withoutQueries(e.Err), remedies[e.Reason])
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// problemf returns an error with this reason, or with that of the error it wraps.
func problemf(reason Reason, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	var known *Error
	if errors.As(err, &known) {
		reason = known.Reason
	}
	return &Error{Reason: reason, Err: err}
}

// joined returns the errors of all registries as one. Its reason is that of the registry that says most.
func joined(failures []error) error {
	order := []Reason{
		ReasonDigestMismatch, ReasonUnsafeArchive, ReasonTooLarge, ReasonNotAChart, ReasonUnauthorized, ReasonConfiguration,
		// A registry that could not be asked says least: in a network without a way out, this is the one behind the mirrors.
		ReasonUntrusted, ReasonUnexpectedAnswer, ReasonUnreachable, ReasonNotFound,
	}
	first := len(order)
	var texts []string
	for _, err := range failures {
		first = min(first, slices.Index(order, classify(err)))
		texts = append(texts, stable(err))
	}
	return &Error{Reason: order[first], Err: errors.New(strings.Join(texts, "; "))}
}

// classify returns the reason of an error that came from a registry or from reading its answer. Where the library has
// tried with TLS and without, the error holds both.
func classify(err error) Reason {
	var (
		known       *Error
		tooLarge    *http.MaxBytesError
		certificate *tls.CertificateVerificationError
		response    *transport.Error
	)
	switch {
	case errors.As(err, &known):
		return known.Reason
	case errors.As(err, &tooLarge):
		return ReasonTooLarge
	case errors.As(err, &certificate):
		return ReasonUntrusted
	case errors.As(err, &response):
		return classifyResponse(response.StatusCode, response.Request.URL.Path)
	case isConnectionError(err):
		return ReasonUnreachable
	case errors.Is(err, http.ErrSchemeMismatch), errors.Is(err, errPlainHTTP):
		return ReasonConfiguration
	case strings.Contains(err.Error(), "does not match requested digest"):
		return ReasonDigestMismatch // The library's error has no type.
	default:
		return ReasonUnexpectedAnswer
	}
}

// classifyResponse treats any refusal by a token server as one of the credentials: by OAuth2, 400 stands for a refresh
// token that is no longer valid.
func classifyResponse(status int, path string) Reason {
	fromRegistry := strings.Contains(path, "/manifests/") || strings.Contains(path, "/blobs/")
	switch {
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return ReasonUnreachable
	case status == http.StatusUnauthorized, status == http.StatusForbidden, !fromRegistry:
		return ReasonUnauthorized
	case status == http.StatusNotFound:
		return ReasonNotFound
	default:
		return ReasonUnexpectedAnswer
	}
}

// isConnectionError reports whether there was no answer, or only a part of it.
func isConnectionError(err error) bool {
	var (
		network   net.Error
		operation *net.OpError
	)
	// *url.Error is a net.Error for whatever it wraps.
	return errors.As(err, &network) && network.Timeout() || errors.As(err, &operation) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// stable returns what a status may repeat of an error: the same for each attempt, and nothing that the registry has written.
func stable(err error) string {
	var (
		response    *transport.Error
		certificate *tls.CertificateVerificationError
		network     *net.OpError
	)
	text := err.Error()
	registry, _, _ := strings.Cut(text, ": ")
	switch {
	case errors.Is(err, errPlainHTTP) && errors.Is(err, errElsewhere):
		return fmt.Sprintf("%s: %s: %s", registry, errElsewhere, errPlainHTTP)
	case errors.Is(err, errElsewhere):
		return registry + ": " + errElsewhere.Error()
	case errors.As(err, &certificate):
		return registry + ": " + certificate.Error()
	case errors.As(err, &response):
		asked := fmt.Sprintf("%s %q", response.Request.Method, response.Request.URL.Redacted())
		if !strings.HasPrefix(registry, response.Request.URL.Host+"/") {
			asked = errElsewhere.Error()
		}
		return fmt.Sprintf("%s: %s: response status code %d: %s", registry, asked, response.StatusCode, http.StatusText(response.StatusCode))
	case errors.Is(err, http.ErrSchemeMismatch) && classify(err) == ReasonConfiguration && !errors.Is(err, errPlainHTTP):
		text += ": " + errPlainHTTP.Error()
	case errors.As(err, &network) && network.Source != nil:
		// Each connection has another port here.
		text = strings.ReplaceAll(text, network.Source.String()+"->", "")
	}
	return shortened(text)
}

var query = regexp.MustCompile(`(https?://[^\s"?]+)\?[^\s"]*`)

// withoutQueries returns the error's text without the queries of URLs. In those that registries redirect to, they are
// signatures.
func withoutQueries(err error) string { return query.ReplaceAllString(err.Error(), "$1") }

// shortened cuts a text between two characters.
func shortened(text string) string { return strings.ToValidUTF8(text[:min(len(text), 1<<10)], "") }
