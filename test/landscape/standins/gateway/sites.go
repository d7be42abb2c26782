// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
)

// sites serves the hosts at which TLS ends.
type sites struct {
	router router
	client *http.Client
}

// newSites returns a server for connections that serveTLS sends it.
func newSites(router router) *http.Server {
	return &http.Server{
		Handler:           &sites{router: router, client: &http.Client{Timeout: relay.HandshakeTimeout}},
		ReadHeaderTimeout: relay.HandshakeTimeout,
		IdleTimeout:       time.Minute,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			to, found := router.byHost(strings.ToLower(hello.ServerName))
			if !found || to.site == nil {
				return nil, fmt.Errorf("%q is no site", hello.ServerName)
			}
			return router.certificate(to.site.credential)
		}},
	}
}

// ServeHTTP passes a request on, if its user may come in.
func (s *sites) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	host := strings.ToLower(request.Host)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	to, found := s.router.byHost(host)
	// A host that shares its certificate with another has users of its own.
	if !found || to.site == nil || !strings.EqualFold(request.TLS.ServerName, host) {
		response.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	if to.site.auth != (backend{}) {
		status, err := s.authenticate(request, host, to.site.auth)
		if err != nil {
			slog.Info("No authentication", "host", host, "error", err)
		}
		if status != http.StatusOK {
			response.Header().Set("WWW-Authenticate", `Basic realm="Restricted"`)
			response.WriteHeader(status)
			return
		}
	}
	rule, found := to.site.find(request.URL.Path)
	switch {
	case !found:
		response.WriteHeader(http.StatusNotFound)
	case rule.status != 0:
		response.WriteHeader(rule.status)
	default:
		address, err := s.router.address(rule.to)
		if err != nil {
			slog.Info("No backend", "host", host, "error", err)
			response.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		proxyTo(address).ServeHTTP(response, request)
	}
}

// proxyTo passes requests on as they are. All of its kind share the connections of http.DefaultTransport.
func proxyTo(address string) http.Handler {
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", address, r.In.Host
		r.SetXForwarded()
	}}
}

// authenticate asks the server that knows who may come in: 200 if the request's user may, 401 if not, 503 without an answer.
func (s *sites) authenticate(request *http.Request, host string, auth backend) (int, error) {
	address, err := s.router.address(auth)
	if err != nil {
		return http.StatusServiceUnavailable, err
	}
	ask, err := http.NewRequestWithContext(request.Context(), http.MethodGet, "http://"+address, nil)
	if err != nil {
		return http.StatusServiceUnavailable, err
	}
	ask.Host = host
	ask.Header["Authorization"] = request.Header["Authorization"]
	answer, err := s.client.Do(ask)
	if err != nil {
		return http.StatusServiceUnavailable, err
	}
	return answer.StatusCode, answer.Body.Close()
}
