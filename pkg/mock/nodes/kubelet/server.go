// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package kubelet stands in for the kubelets of fake Nodes where kube-apiservers call them: for port-forward, logs and exec.
// gardenlet takes a shoot for healthy only once it can open a port-forward to the pod vpn-shoot, which it does through the
// kube-apiserver of the shoot and the kubelet of the pod's Node. That nothing listens behind the port makes no difference to it.
//
// One server is enough for all Nodes of all shoots: it knows no Node and no pod, gives the same answers for all of them, keeps no
// state, and may run in any number of instances. As there is nothing to protect, clients need no certificate. Its own is
// self-signed, and made at the start. The kube-apiserver of a shoot verifies kubelets by a CA of the shoot
// (--kubelet-certificate-authority); package mockcontrolplane of pkg/webhook removes that flag.
package kubelet

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/netutil"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/util/cert"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// message is the answer wherever a container would have written something.
	message = "this pod runs on a fake node of the mock provider: it has no containers\n"

	// requestTimeout is for reading a request, idleTimeout for a connection without requests.
	requestTimeout  = 10 * time.Second
	idleTimeout     = time.Minute
	shutdownTimeout = 2 * time.Second
	certificateLife = 10 * 365 * 24 * time.Hour
	// forwardTimeout ends a port-forward, which nobody needs for longer.
	forwardTimeout = time.Minute
	// connectionsMax is the number of connections at a time. More wait.
	connectionsMax = 1000
)

// New returns a runnable of a manager that serves on "HOST:PORT", where the host may be empty, on all instances rather than just
// on the leader. Connections that were upgraded are not waited for at the end.
func New(address string) (*manager.Server, error) {
	certificate, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("making a certificate for the stand-in of kubelets: %w", err)
	}
	// Connections are upgraded to SPDY, which HTTP/2 cannot do.
	listener, err := tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return nil, fmt.Errorf("listening as stand-in of kubelets: %w", err)
	}
	return &manager.Server{
		Name:            "mock-kubelet",
		Server:          &http.Server{Handler: handler(), ReadTimeout: requestTimeout, IdleTimeout: idleTimeout},
		Listener:        netutil.LimitListener(listener, connectionsMax),
		ShutdownTimeout: new(shutdownTimeout),
	}, nil
}

func handler() http.Handler {
	mux := http.NewServeMux()
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = io.WriteString(w, text)
		}
	}
	mux.HandleFunc("GET /healthz", say("ok"))
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", say(message))
	mux.HandleFunc("/portForward/{namespace}/{pod}", portForward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", portForward)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, message, http.StatusNotImplemented) })
	return mux
}

// portForward upgrades the connection to SPDY as a kubelet does, and opens no streams: it drops what comes, as nobody listens. A server
// of SPDY would keep as much as the client, whoever that is, sends as headers.
func portForward(w http.ResponseWriter, request *http.Request) {
	if _, err := httpstream.Handshake(request, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return // Handshake has answered.
	}
	if !httpstream.IsUpgradeRequest(request) || !strings.EqualFold(request.Header.Get(httpstream.HeaderUpgrade), spdy.HeaderSpdy31) {
		http.Error(w, "a port-forward begins with an upgrade to "+spdy.HeaderSpdy31, http.StatusBadRequest)
		return
	}
	w.Header().Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	w.Header().Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	w.WriteHeader(http.StatusSwitchingProtocols)
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = connection.Close() }()
	_ = connection.SetReadDeadline(time.Now().Add(forwardTimeout))
	_, _ = io.Copy(io.Discard, connection)
}

// selfSigned returns a certificate that nobody can verify.
func selfSigned() (tls.Certificate, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: "mock-kubelet", MaxAge: certificateLife})
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certificate, key)
}
