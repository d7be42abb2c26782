// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// SmallObject is the limit of a request about an object of a few kilobytes. The request has the old object as well.
	SmallObject = 1 << 20
	// LargeObject is the limit of a request about an object that holds files or tables. etcd takes 1.5 MiB of each, and some of
	// them are shorter there than as JSON.
	LargeObject = 6 << 20

	// bytesInFlight is how many bytes the requests may have that a webhook serves at a time. Decoded, they take several times
	// as much.
	bytesInFlight = 16 << 20
	// minBytes is what a request counts at least: a webhook serves at most bytesInFlight/minBytes requests at a time.
	minBytes = 128 << 10
)

// Handler serves a webhook within limits. A request is refused with 413 if it is longer than maxBytes, and with 503 while
// the webhook serves as many requests as it may. Requests have a deadline, in their context and for their body: timeout, or
// less if the API server says so. The webhook is next; limits of one webhook do not touch others.
func Handler(next http.Handler, maxBytes int64, timeout time.Duration) http.Handler {
	inFlight := semaphore.NewWeighted(bytesInFlight)

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		length := r.ContentLength
		if length > maxBytes {
			http.Error(w, fmt.Sprintf("the request has %d bytes, at most %d are allowed", length, maxBytes), http.StatusRequestEntityTooLarge)
			return
		}
		if length < 0 { // unknown
			length = maxBytes
		}

		weight := max(length, minBytes)
		if !inFlight.TryAcquire(weight) {
			// API servers try again after this time, within their timeout.
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the webhook serves too many requests at the moment", http.StatusServiceUnavailable)
			return
		}
		defer inFlight.Release(weight)

		deadline := time.Now().Add(timeoutOf(r, timeout))
		// Who sends a body byte by byte must not keep others out for longer. A writer without deadlines is that of a test.
		_ = http.NewResponseController(w).SetReadDeadline(deadline)
		ctx, cancel := context.WithDeadline(r.Context(), deadline)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, maxBytes)
		next.ServeHTTP(w, r)
	})
}

// timeoutOf returns how long the API server waits, which it says in the query, and at most the given time.
func timeoutOf(r *http.Request, most time.Duration) time.Duration {
	if timeout, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && timeout > 0 {
		return min(timeout, most)
	}
	return most
}
