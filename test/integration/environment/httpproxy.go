// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
)

// HTTPProxy forwards requests to an API server, with the access that it was made for, and has some of them hang: the connection
// stays open and answers pings, but nothing is sent any more.
type HTTPProxy struct {
	server *httptest.Server

	mu   sync.Mutex
	hang func(*http.Request) bool
	// changed is closed with the next change of hang.
	changed chan struct{}
	// running are the requests that have no end yet.
	running map[*http.Request]struct{}
	hung    map[*http.Request]struct{}
}

// NewHTTPProxy starts a proxy on the loopback and returns the access through it, which needs no credentials. Close it after use.
func NewHTTPProxy(config *rest.Config) (*HTTPProxy, *rest.Config, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, nil, err
	}
	p := &HTTPProxy{changed: make(chan struct{}), running: map[*http.Request]struct{}{}, hung: map[*http.Request]struct{}{}}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) { p.serve(forward, w, request) }))
	p.server.EnableHTTP2 = true
	p.server.StartTLS()

	through := rest.AnonymousClientConfig(config)
	through.Host = p.server.URL
	through.TLSClientConfig = rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})}
	return p, through, nil
}

// Hang has the requests hang for which it is true, those to come and those that have no end yet; nil for none. Those that hang
// go on when it is false for them.
func (p *HTTPProxy) Hang(hang func(*http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hang = hang
	close(p.changed)
	p.changed = make(chan struct{})
}

// HangWatches has all watches hang that there are now, for good. Others work.
func (p *HTTPProxy) HangWatches() {
	p.mu.Lock()
	watches := map[*http.Request]struct{}{}
	for request := range p.running {
		if request.URL.Query().Get("watch") != "" {
			watches[request] = struct{}{}
		}
	}
	p.mu.Unlock()
	p.Hang(func(request *http.Request) bool {
		_, ok := watches[request]
		return ok
	})
}

// Hung returns how many requests have hung.
func (p *HTTPProxy) Hung() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.hung)
}

// Close ends all requests and the proxy.
func (p *HTTPProxy) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

func (p *HTTPProxy) serve(forward http.Handler, w http.ResponseWriter, request *http.Request) {
	p.mu.Lock()
	p.running[request] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.running, request)
	}()
	if p.pass(request) {
		forward.ServeHTTP(&hangingWriter{ResponseWriter: w, proxy: p, request: request}, request)
		// Nor does the client learn of the end of an answer that hangs.
		p.pass(request)
	}
}

// pass waits until a request may go on, and returns false if its client has gone.
func (p *HTTPProxy) pass(request *http.Request) bool {
	for {
		p.mu.Lock()
		hangs, changed := p.hang != nil && p.hang(request), p.changed
		if hangs {
			p.hung[request] = struct{}{}
		}
		p.mu.Unlock()
		if !hangs {
			return true
		}
		select {
		case <-changed:
		case <-request.Context().Done():
			return false
		}
	}
}

// hangingWriter writes an answer as long as its request may go on.
type hangingWriter struct {
	http.ResponseWriter
	proxy   *HTTPProxy
	request *http.Request
}

// Write implements http.ResponseWriter.
func (w *hangingWriter) Write(data []byte) (int, error) {
	if !w.proxy.pass(w.request) {
		return 0, w.request.Context().Err()
	}
	return w.ResponseWriter.Write(data)
}

// Unwrap is for http.ResponseController.
func (w *hangingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
