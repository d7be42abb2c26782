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
	"syscall"

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
	// Ref is the reference of the chart as configured.
	Ref string
	// Reason classifies Err.
	Reason Reason
	// Err is what happened.
	Err error
}

var query = regexp.MustCompile(`(https?://[^\s"?]+)\?[^\s"]*`)

// Error implements error. URLs are without their query.
func (e *Error) Error() string {
	return fmt.Sprintf("getting chart %s: %s: %s", e.Ref, withoutQueries(e.Err.Error()), remedies[e.Reason])
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// problem is an error whose reason is known where it comes up.
type problem struct {
	reason Reason
	err    error
}

func (p *problem) Error() string { return p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

func problemf(reason Reason, format string, args ...any) error {
	return &problem{reason: reason, err: fmt.Errorf(format, args...)}
}

// failure returns the one error of all registries.
func failure(failures []error) error {
	order := []Reason{
		ReasonDigestMismatch, ReasonUnsafeArchive, ReasonTooLarge, ReasonNotAChart, ReasonUnauthorized, ReasonConfiguration,
		// A registry that could not be asked says least: in a network without a way out, this is the one behind the mirrors.
		ReasonUntrusted, ReasonUnexpectedAnswer, ReasonUnreachable, ReasonNotFound,
	}
	reasons := make(map[Reason]bool, len(failures))
	var texts []string
	for _, err := range failures {
		reasons[classify(err)] = true
		texts = append(texts, told(err))
	}
	reason := order[slices.IndexFunc(order, func(r Reason) bool { return reasons[r] })]
	return &problem{reason: reason, err: errors.New(strings.Join(texts, "; "))}
}

// classify returns the reason of an error that came from a registry or from reading its answer. Where the library has
// tried with TLS and without, the error holds both.
func classify(err error) Reason {
	var (
		known       *problem
		tooLarge    *http.MaxBytesError
		certificate *tls.CertificateVerificationError
		response    *transport.Error
	)
	switch {
	case errors.As(err, &known):
		return known.reason
	case errors.As(err, &tooLarge):
		return ReasonTooLarge
	case errors.As(err, &certificate):
		return ReasonUntrusted
	case errors.As(err, &response):
		return classifyResponse(response)
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
func classifyResponse(response *transport.Error) Reason {
	switch status := response.StatusCode; {
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return ReasonUnreachable
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return ReasonUnauthorized
	case !strings.Contains(response.Request.URL.Path, "/manifests/") && !strings.Contains(response.Request.URL.Path, "/blobs/"):
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
		dns       *net.DNSError
	)
	// *url.Error is a net.Error for whatever it wraps.
	return errors.As(err, &network) && network.Timeout() || errors.As(err, &operation) || errors.As(err, &dns) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// told returns what a status may repeat of an error: the same for each attempt, and nothing that the registry has written.
func told(err error) string {
	var (
		response    *transport.Error
		certificate *tls.CertificateVerificationError
		network     *net.OpError
	)
	text := err.Error()
	registry, _, _ := strings.Cut(text, ": ")
	switch {
	case errors.As(err, &certificate):
		return registry + ": " + certificate.Error()
	case errors.As(err, &response):
		return fmt.Sprintf("%s: %s %q: response status code %d: %s", registry, response.Request.Method, response.Request.URL.Redacted(),
			response.StatusCode, http.StatusText(response.StatusCode))
	case errors.Is(err, http.ErrSchemeMismatch) && classify(err) == ReasonConfiguration && !errors.Is(err, errPlainHTTP):
		text += ": " + errPlainHTTP.Error()
	case errors.As(err, &network) && network.Source != nil:
		// Each connection has another port here.
		text = strings.ReplaceAll(text, network.Source.String()+"->", "")
	}
	return shorten(text)
}

// withoutQueries cuts the queries from URLs. In those that registries redirect to, they are signatures.
func withoutQueries(text string) string { return query.ReplaceAllString(text, "$1") }

// shorten cuts a text between two characters.
func shorten(text string) string {
	const most = 1 << 10
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
