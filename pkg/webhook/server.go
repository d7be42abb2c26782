// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

const (
	namespaceWildcard = "namespace"

	// readTimeout and writeTimeout are for one request. An API server waits for 30 seconds at most; package limits sets the
	// deadline of each webhook.
	readTimeout  = 30 * time.Second
	writeTimeout = 35 * time.Second
)

// newServer returns a server that refuses handshakes until the store has a certificate.
func newServer(opts Options, handler http.Handler, store *certificate.Store) ctrlwebhook.Server {
	mux := http.NewServeMux()
	mux.Handle("/", withTimeouts(handler))
	return ctrlwebhook.NewServer(ctrlwebhook.Options{
		Host:       opts.BindAddress,
		Port:       opts.Port,
		WebhookMux: mux,
		TLSOpts: []func(*tls.Config){func(config *tls.Config) {
			config.MinVersion = tls.VersionTLS12
			config.GetCertificate = store.GetCertificate
		}},
	})
}

// withTimeouts bounds a request, as controller-runtime's server bounds no more than its header.
func withTimeouts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		controller, now := http.NewResponseController(w), time.Now()
		if controller.SetReadDeadline(now.Add(readTimeout)) != nil || controller.SetWriteDeadline(now.Add(writeTimeout)) != nil {
			http.Error(w, "no deadline can be set", http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newHandler serves a webhook for the cluster itself at /PATH, one for shoots at /PATH/NAMESPACE, and nothing else, within
// limits. controller-runtime answers when a webhook panics.
func newHandler(webhooks []*extensionswebhook.Webhook, log logr.Logger) (http.Handler, error) {
	// Shoots must not keep the webhooks of the seed busy.
	mux, shared := http.NewServeMux(), map[string]*limits.Server{extensionswebhook.TargetSeed: limits.NewServer(), extensionswebhook.TargetShoot: limits.NewServer()}
	for _, webhook := range webhooks {
		path := "/" + webhook.Path
		if webhook.Target == extensionswebhook.TargetShoot {
			path += "/{" + namespaceWildcard + "}"
		}

		webhook.Webhook.RecoverPanic = new(true)
		handler, err := admission.StandaloneWebhook(webhook.Webhook, admission.StandaloneOptions{Logger: log.WithValues("webhook", webhook.Name), MetricsPath: "/" + webhook.Name})
		if err != nil {
			return nil, fmt.Errorf("making the handler of webhook %q: %w", webhook.Name, err)
		}
		if webhook.Target == extensionswebhook.TargetShoot {
			handler = forShoot(handler)
		}
		timeout := time.Duration(ptr.Deref(webhook.TimeoutSeconds, 10)) * time.Second
		mux.Handle("POST "+path, shared[webhook.Target].Handler(handler, maxBytes(webhook), timeout))
	}
	return mux, nil
}

// maxBytes returns how long a request to the webhook may be.
func maxBytes(webhook *extensionswebhook.Webhook) int64 {
	for _, t := range webhook.Types {
		switch t.Obj.(type) {
		case *extensionsv1alpha1.OperatingSystemConfig, // holds the files of a machine
			*gardencorev1beta1.CloudProfile, *gardencorev1beta1.NamespacedCloudProfile, *gardencorev1beta1.Seed, *gardencorev1beta1.Shoot,
			*corev1.Secret, *gardencorev1beta1.InternalSecret: // may hold data for others
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

type shootNamespaceKey struct{}

// ShootNamespace returns the namespace in the seed of the shoot whose API server calls, and the empty string if it is the
// seed's API server that calls. It is a DNS label.
//
// It is what the caller says, by the URL that it was given: callers are not authenticated. A handler may choose by it how
// to mutate, but must not answer with anything that other shoots must not learn.
func ShootNamespace(ctx context.Context) string {
	namespace, _ := ctx.Value(shootNamespaceKey{}).(string)
	return namespace
}

// WithShootNamespace returns a context in which ShootNamespace returns the given namespace.
func WithShootNamespace(ctx context.Context, namespace string) context.Context {
	return context.WithValue(ctx, shootNamespaceKey{}, namespace)
}
