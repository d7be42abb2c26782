// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-provider-local/pkg/bounds"
)

const (
	// requestTimeout bounds each request to a server that a user has named and that need not answer.
	requestTimeout = 30 * time.Second
	// watchTimeout bounds each watch. Reflectors ask for at most 10 minutes and then begin another one, as they do when a
	// watch breaks off.
	watchTimeout = 15 * time.Minute
	// bodyMax is the size in bytes of the largest answer that is read, and of what is read of one watch.
	bodyMax = 8 << 20
	// elementsMax is how many list elements and fields that may have. Each may be empty, and takes a kilobyte and more in memory. The pod
	// of a machine has some 500.
	elementsMax = 1 << 17
	// errorMax is the size in bytes of what is read of an answer that is an error, and messageMax of what is logged of it.
	errorMax, messageMax = 64 << 10, 2 << 10
)

// bounded is the RoundTripper for a server that a user has named. An answer takes no more than bodyMax and its time, leads
// nowhere else, and has no text of the server in its error, as that may be somebody else's: it is logged. So errors are the
// same for each attempt, too.
type bounded struct{ next http.RoundTripper }

// WrappedRoundTripper implements net.RoundTripperWrapper of apimachinery, by which connections are closed.
func (b *bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	timeout := requestTimeout
	if watch := request.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		timeout = watchTimeout
	}
	ctx, cancel := context.WithTimeout(request.Context(), timeout)
	request = request.Clone(ctx)
	request.Header.Set("Accept", acceptJSON(request.Header.Get("Accept")))
	response, err := b.next.RoundTrip(request)
	if err != nil {
		err = explain(ctx, err)
		cancel()
		return nil, err
	}
	response.Body = &boundedBody{ReadCloser: http.MaxBytesReader(nil, response.Body, bodyMax), ctx: ctx, cancel: cancel}

	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case response.StatusCode >= http.StatusBadRequest:
		return withoutTexts(ctx, request, response)
	case response.StatusCode >= http.StatusMultipleChoices && response.Header.Get("Location") != "":
		// It may lead to where no kubeconfig may, such as a server without TLS that only the seed reaches. An API server
		// redirects nobody.
		return nil, errors.Join(fmt.Errorf("the server answers with a redirect (%d), which is not followed", response.StatusCode), response.Body.Close())
	case response.StatusCode != http.StatusNoContent && mediaType != runtime.ContentTypeJSON:
		return nil, errors.Join(errors.New("the server is no API server: it does not answer in JSON"), response.Body.Close())
	}
	response.Body = &checkedBody{Closer: response.Body, lines: bufio.NewReader(response.Body)}
	return response, nil
}

// acceptJSON leaves Protocol Buffers, in which nobody can look for a hugeNumber, out of what a client accepts: clients for metadata
// ask for them, whatever their configuration says.
func acceptJSON(accept string) string {
	types := slices.DeleteFunc(strings.Split(accept, ","), func(t string) bool {
		return strings.HasPrefix(strings.TrimSpace(t), runtime.ContentTypeProtobuf)
	})
	return cmp.Or(strings.Join(types, ","), runtime.ContentTypeJSON)
}

// hugeNumber is a value in JSON that resource.Quantity would write out, digit by digit, or read in a time that grows with the square of
// its length, which may take hours.
var hugeNumber = regexp.MustCompile(`(?:^|["\s:,\[])[\s\v\x{85}\pZ]*[+-]?(?:[0-9.]{65}|[0-9.]+[eE](?:-[0-9]{3,}|\+?[0-9]{5,})[\s\v\x{85}\pZ]*["\s,\]}])`)

// checkedBody lets through one line after the other, which is an event of a watch or more, and none with a hugeNumber: these
// would be parsed. All of them together have elementsMax at most.
type checkedBody struct {
	io.Closer
	lines *bufio.Reader
	// checked is what has not been read yet.
	checked []byte
	// elements is how many there were at most.
	elements int
}

// Read implements io.Reader.
func (b *checkedBody) Read(p []byte) (int, error) {
	if len(b.checked) == 0 {
		line, err := b.lines.ReadBytes('\n')
		if hugeNumber.Match(line) {
			return 0, errors.New("the server's answer has a number that is too long, or whose exponent is too large")
		}
		if b.elements += bounds.Elements(line); b.elements > elementsMax {
			return 0, fmt.Errorf("the server's answer has more than %d elements", elementsMax)
		}
		if b.checked = line; len(line) == 0 {
			return 0, err
		}
	}
	n := copy(p, b.checked)
	b.checked = b.checked[n:]
	return n, nil
}

// boundedBody is the body of an answer, with errors that are explained. Closing it ends the request's time.
type boundedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelFunc
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = explain(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *boundedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// withoutTexts logs an answer that is an error, and returns one that says no more than what kind of error it is.
func withoutTexts(ctx context.Context, request *http.Request, response *http.Response) (*http.Response, error) {
	defer response.Body.Close()
	// What is cut off, or breaks off, tells enough.
	body, _ := io.ReadAll(io.LimitReader(response.Body, errorMax))
	said := metav1.Status{}
	if json.Unmarshal(body, &said) != nil || said.Kind != "Status" {
		said = metav1.Status{} // It is no API server that says this.
	}
	logf.FromContext(ctx).Info("The server of a kubeconfig answers with an error", "host", request.URL.Host, "method", request.Method, "path", request.URL.Path,
		"code", response.StatusCode, "message", strings.ToValidUTF8(string(body[:min(len(body), messageMax)]), ""))

	status := apierrors.NewGenericServerResponse(response.StatusCode, request.Method, schema.GroupResource{}, "", "", 0, said.Kind == "").Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if slices.Contains(knownReasons, said.Reason) {
		status.Reason = said.Reason
	}
	status.Message = fmt.Sprintf("the server answers with %d (%s), the log has what it says", response.StatusCode, cmp.Or(status.Reason, "Unknown"))
	if apierrors.HasStatusCause(&apierrors.StatusError{ErrStatus: said}, corev1.NamespaceTerminatingCause) {
		status.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	}
	if strings.Contains(said.Message, quotaExceeded) {
		// The API server has no reason of its own for that.
		status.Message += ": " + quotaExceeded
	}
	content, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	// Without Retry-After: whoever asks has a back-off.
	response.Header = http.Header{"Content-Type": {runtime.ContentTypeJSON}}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	return response, nil
}

const quotaExceeded = "exceeded quota"

// knownReasons are those that clients act upon and that do not follow from the code.
var knownReasons = []metav1.StatusReason{
	metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, metav1.StatusReasonGone, metav1.StatusReasonExpired, metav1.StatusReasonInvalid,
	metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout, metav1.StatusReasonRequestEntityTooLarge,
}

// explain returns an error without what differs from attempt to attempt, such as our own port, and without what the server
// says by it, such as what is no HTTP, or the names in its certificate. What it was is logged.
func explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var (
		network     *net.OpError
		certificate *tls.CertificateVerificationError
		tooLarge    *http.MaxBytesError
		text        = "the connection to the server breaks off, or it does not speak HTTP by TLS"
	)
	switch {
	case errors.As(err, &certificate):
		text = "the server's certificate is not trusted: write its authority into certificate-authority-data, and a name that it is for into server or tls-server-name"
	case errors.As(err, &tooLarge):
		text = fmt.Sprintf("the server's answer is larger than %d MiB", bodyMax>>20)
	case errors.As(err, &network) && network.Op == "dial":
		stable := *network
		stable.Source = nil
		text = stable.Error()
	}
	logf.FromContext(ctx).Info("The server of a kubeconfig cannot be asked", "reason", err.Error())
	return &explained{text: text, err: err}
}

// explained is an error with another text.
type explained struct {
	text string
	err  error
}

// Error implements error.
func (e *explained) Error() string { return e.text }

// Unwrap is for package errors.
func (e *explained) Unwrap() error { return e.err }
