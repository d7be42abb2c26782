// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"time"

	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

// Reason tells why there is no chart. It is the label "result" of the pulls in the metrics as well.
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
	// ReasonTooLarge means that the chart goes beyond one of the Limits.
	ReasonTooLarge Reason = "TooLarge"
	// ReasonUnsafeArchive means that the archive holds a link, a device, or a name that leads out of it.
	ReasonUnsafeArchive Reason = "UnsafeArchive"
)

// remedy tells a user what to do.
func (r Reason) remedy() string {
	switch r {
	case ReasonConfiguration:
		return "correct charts.sources in the instance's configuration, or the Secret it names"
	case ReasonUnauthorized:
		return "check the Secret in pullSecretRef, and that its user may pull from the repository"
	case ReasonNotFound:
		return "check ref, and that the chart was pushed to the registry or to one of the mirrors"
	case ReasonUnreachable:
		return "check the registry, the network and the mirrors"
	case ReasonUntrusted:
		return "put the registry's CA into the key bundle.crt of a Secret and name it in caBundleSecretRef"
	case ReasonUnexpectedAnswer:
		return "check that there is a registry under this address"
	case ReasonDigestMismatch:
		return "what the registry sends is damaged or was tampered with: push the chart again"
	case ReasonNotAChart:
		return "ref must lead to one chart that was pushed by helm push"
	case ReasonTooLarge:
		return "make the chart smaller"
	case ReasonUnsafeArchive:
		return "pack the chart with helm package"
	default:
		return "see the logs"
	}
}

// Error is why there is no chart.
type Error struct {
	// Ref is the reference of the chart as configured.
	Ref string
	// Reason classifies Err.
	Reason Reason
	// Err tells what happened.
	Err error
}

var query = regexp.MustCompile(`(https?://[^\s"?]+)\?[^\s"]*`)

// Error implements error. URLs are without their query, which is a signature in those that registries redirect to.
func (e *Error) Error() string {
	return fmt.Sprintf("getting chart %s: %s: %s", e.Ref, query.ReplaceAllString(e.Err.Error(), "$1"), e.Reason.remedy())
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the Reason of an error that a source of this package returned, and "" for others, as of a context that
// has ended.
func ReasonOf(err error) Reason {
	var known *Error
	if errors.As(err, &known) {
		return known.Reason
	}
	return ""
}

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

// busyError is an answer that may be another one soon.
type busyError struct {
	status     int
	retryAfter time.Duration
}

func (e *busyError) Error() string {
	text := fmt.Sprintf("response status code %d: %s", e.status, http.StatusText(e.status))
	if e.retryAfter > 0 {
		text += fmt.Sprintf(", to be tried again in %s", e.retryAfter)
	}
	return text
}

// classify returns the reason of an error that came from a registry or from what was made of its answer.
func classify(err error) Reason {
	var (
		known       *problem
		response    *errcode.ErrorResponse
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
	)
	switch {
	case errors.As(err, &known):
		return known.reason
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData):
		return ReasonDigestMismatch
	case errors.Is(err, errdef.ErrNotFound):
		return ReasonNotFound
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return ReasonUnauthorized
	case errors.As(err, &response):
		return classifyResponse(response)
	case errors.As(err, &certificate), errors.As(err, &authority):
		return ReasonUntrusted
	case isConnectionError(err):
		return ReasonUnreachable
	default:
		return ReasonUnexpectedAnswer
	}
}

// classifyResponse knows that whatever a token server refuses with, it refuses the credentials: by OAuth2, 400 stands for
// a refresh token that is no longer valid.
func classifyResponse(response *errcode.ErrorResponse) Reason {
	switch {
	case response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden:
		return ReasonUnauthorized
	case !strings.Contains(response.URL.Path, "/manifests/") && !strings.Contains(response.URL.Path, "/blobs/"):
		return ReasonUnauthorized
	case response.StatusCode == http.StatusNotFound:
		return ReasonNotFound
	default:
		return ReasonUnexpectedAnswer
	}
}

// isConnectionError tells whether there was no answer, or only a part of it.
func isConnectionError(err error) bool {
	var (
		busy    *busyError
		network net.Error
	)
	return errors.As(err, &busy) || errors.As(err, &network) && (network.Timeout() || isOpError(err)) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// isOpError leaves out *url.Error, which is a net.Error for whatever it wraps.
func isOpError(err error) bool {
	var (
		operation *net.OpError
		dns       *net.DNSError
	)
	return errors.As(err, &operation) || errors.As(err, &dns)
}

// transient tells whether it makes sense to ask again at once. A name that does not exist will not come up that fast.
func transient(err error) bool {
	var dns *net.DNSError
	return classify(err) == ReasonUnreachable && (!errors.As(err, &dns) || !dns.IsNotFound)
}

// retryAfter is how long a registry asks to be left alone.
func retryAfter(err error) time.Duration {
	var busy *busyError
	if errors.As(err, &busy) {
		return busy.retryAfter
	}
	return 0
}

// worst returns the reason that tells most about why none of several endpoints gave what was asked for. That of an
// endpoint which could not be asked comes last: in a network without a way out, this is the registry behind the mirrors.
func worst(failures []error) Reason {
	order := []Reason{
		ReasonDigestMismatch, ReasonUnsafeArchive, ReasonTooLarge, ReasonNotAChart, ReasonUnauthorized, ReasonConfiguration,
		ReasonUntrusted, ReasonUnexpectedAnswer,
	}
	reasons := make(map[Reason]bool, len(failures))
	for _, failure := range failures {
		reasons[classify(failure)] = true
	}
	for _, reason := range order {
		if reasons[reason] {
			return reason
		}
	}
	if reasons[ReasonUnreachable] {
		return ReasonUnreachable
	}
	return ReasonNotFound
}
