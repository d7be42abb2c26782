// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"net/http"
	"slices"
	"sync"
)

// Request is a request that was answered.
type Request struct {
	// Method is that of HTTP, such as GET.
	Method string
	// Path is without the query, such as /api/v1/services.
	Path string
	// Code is the HTTP status; 0 if no answer came.
	Code int
}

// Recorder knows the requests of a client but for its watches, which informers renew from time to time. The zero value
// is ready for use.
type Recorder struct {
	// underWay is read-locked by each request from before it is sent until it is noted down.
	underWay sync.RWMutex

	mu   sync.Mutex
	seen []Request
}

// Wrap is for rest.Config.Wrap.
func (r *Recorder) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if watch := request.URL.Query().Get("watch"); watch == "true" || watch == "1" {
			return next.RoundTrip(request)
		}
		r.underWay.RLock()
		defer r.underWay.RUnlock()
		response, err := next.RoundTrip(request)
		noted := Request{Method: request.Method, Path: request.URL.Path}
		if response != nil {
			noted.Code = response.StatusCode
		}
		r.mu.Lock()
		r.seen = append(r.seen, noted)
		r.mu.Unlock()
		return response, err
	})
}

// Reset forgets all requests, those under way too: it waits for their answers.
func (r *Recorder) Reset() {
	r.underWay.Lock()
	defer r.underWay.Unlock()
	r.seen = nil
}

// List returns all requests in the order of their answers. It waits for those that are under way, so whatever a spec has
// seen in the API server is among them.
func (r *Recorder) List() []Request {
	r.underWay.Lock()
	defer r.underWay.Unlock()
	return slices.Clone(r.seen)
}

// Writes returns the requests that are no reads.
func (r *Recorder) Writes() []Request {
	return slices.DeleteFunc(r.List(), func(request Request) bool { return request.Method == http.MethodGet })
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
