// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

const (
	namespaceWildcard = "namespace"

	// readTimeout and writeTimeout are for one request. An API server waits for 30 seconds at most; package limits sets the
	// deadline of each webhook.
	readTimeout  = 30 * time.Second
	writeTimeout = 35 * time.Second
	// idleTimeout is how long API servers keep connections.
	idleTimeout = 90 * time.Second
	// shutdownTimeout is how long requests under way may take when the instance stops.
	shutdownTimeout = 10 * time.Second
)

// server serves webhooks on all replicas, from the start. Until there is a certificate, it is not ready and refuses
// handshakes.
type server struct {
	log     logr.Logger
	address string
	store   *certificate.Store
	handler http.Handler
	// listening is closed when the server takes connections, on addr.
	listening chan struct{}
	addr      net.Addr
}

func newServer(config configv1alpha1.Server, webhooks []*extensionswebhook.Webhook, store *certificate.Store, log logr.Logger) (*server, error) {
	handler, err := newHandler(webhooks, log)
	if err != nil {
		return nil, err
	}
	return &server{
		log:       log,
		address:   net.JoinHostPort(config.BindAddress, strconv.Itoa(config.Port)),
		store:     store,
		handler:   handler,
		listening: make(chan struct{}),
	}, nil
}

// newHandler serves a webhook for the seed at /PATH, one for shoots at /PATH/NAMESPACE, and nothing else, within limits.
// Panics are answers, by controller-runtime.
func newHandler(webhooks []*extensionswebhook.Webhook, log logr.Logger) (http.Handler, error) {
	mux := http.NewServeMux()
	for _, webhook := range webhooks {
		path := "/" + webhook.Path
		if webhook.Target == extensionswebhook.TargetShoot {
			path += "/{" + namespaceWildcard + "}"
		}

		handler, err := admission.StandaloneWebhook(&admission.Webhook{
			Handler:         webhook.Webhook.Handler,
			RecoverPanic:    new(true),
			WithContextFunc: webhook.Webhook.WithContextFunc,
			LogConstructor:  webhook.Webhook.LogConstructor,
		}, admission.StandaloneOptions{Logger: log.WithValues("webhook", webhook.Name), MetricsPath: path})
		if err != nil {
			return nil, fmt.Errorf("making the handler of webhook %q: %w", webhook.Name, err)
		}
		if webhook.Target == extensionswebhook.TargetShoot {
			handler = forShoot(handler)
		}
		mux.Handle("POST "+path, limits.Handler(handler, maxBytes(webhook), time.Duration(*webhook.TimeoutSeconds)*time.Second))
	}
	return mux, nil
}

// maxBytes returns how long a request to the webhook may be. Of what the webhooks of a seed get, only an
// OperatingSystemConfig is large: it holds the files of a machine.
func maxBytes(webhook *extensionswebhook.Webhook) int64 {
	for _, t := range webhook.Types {
		if _, ok := t.Obj.(*extensionsv1alpha1.OperatingSystemConfig); ok {
			return limits.LargeObject
		}
	}
	return limits.SmallObject
}

// forShoot tells the handler which shoot calls.
func forShoot(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		namespace := r.PathValue(namespaceWildcard)
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			http.Error(w, "the last element of the path is not the namespace of a shoot", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r.WithContext(WithShootNamespace(r.Context(), namespace)))
	})
}

// NeedLeaderElection tells the manager that all replicas serve.
func (*server) NeedLeaderElection() bool {
	return false
}

// Start serves until ctx ends, and then ends the requests under way.
func (s *server) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("listening for webhooks: %w", err)
	}

	httpServer := &http.Server{
		Handler:           s.handler,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.store.GetCertificate},
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		// Handshakes that fail are the client's business, and anybody can make them fail.
		ErrorLog: log.New(debugWriter{s.log}, "", 0),
	}

	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		stopped <- httpServer.Shutdown(shutdownCtx)
	}()

	s.addr = listener.Addr()
	close(s.listening)
	s.log.Info("Serving webhooks", "address", s.addr.String())
	if err := httpServer.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving webhooks: %w", err)
	}
	return <-stopped
}

// ready is a check for readiness.
func (s *server) ready(*http.Request) error {
	select {
	case <-s.listening:
	default:
		return errors.New("the webhook server is not started")
	}
	select {
	case <-s.store.Present():
		return nil
	default:
		return certificate.ErrNone
	}
}

// debugWriter writes what the HTTP server has to tell to the log.
type debugWriter struct{ log logr.Logger }

// Write implements io.Writer.
func (w debugWriter) Write(line []byte) (int, error) {
	w.log.V(1).Info(string(line))
	return len(line), nil
}
