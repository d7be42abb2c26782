// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"

	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
)

// Options are the options of AddToManager.
type Options struct {
	// Webhooks are the webhooks to serve. If there are none, the registration of an earlier run is removed. The failure
	// policy defaults to Fail (in shoots: Ignore), the timeout to 10 seconds, as in Gardener's library.
	Webhooks []*extensionswebhook.Webhook
	// Name is the name of the Service and of the registration; that in shoots has the suffix "-shoot".
	Name string
	// Namespace is the namespace of the Service.
	Namespace string
	// OwnerNamespace is the namespace that owns the registration: it is deleted with it.
	OwnerNamespace string
	// BindAddress and Port are what the server listens on.
	BindAddress string
	Port        int
	// ServicePort is the port of the Service.
	ServicePort int
	// URL is the HOST:PORT that API servers call. Default: the Service.
	URL string
	// Certificates is the cluster that holds the certificates. Default: that of the manager.
	Certificates *rest.Config
	// CertificateNamespace is the namespace of the certificates, and Identity tells them from other Secrets in it.
	CertificateNamespace, Identity string
	// Resources writes the ManagedResources of shoots. Without it there are no webhooks for shoots.
	Resources *resources.Writer
	// Clock is the time. Default: the real one.
	Clock clock.Clock
	// Log is the logger.
	Log logr.Logger
}

// serverNames returns the names and addresses that API servers call.
func (o Options) serverNames() ([]string, []net.IP, error) {
	if o.URL == "" {
		return []string{o.Name + "." + o.Namespace + ".svc", o.Name + "." + o.Namespace, o.Name}, nil, nil
	}
	host, _, err := net.SplitHostPort(o.URL)
	if err != nil {
		return nil, nil, fmt.Errorf("the URL of the webhooks is not HOST:PORT: %w", err)
	}
	if address := net.ParseIP(host); address != nil {
		return nil, []net.IP{address}, nil
	}
	return []string{host}, nil, nil
}

// AddToManager adds the webhook server, which runs on all replicas, and the controller that keeps certificates and
// registrations, which runs on the leader.
//
// Needed permissions:
//   - in CertificateNamespace: get, list, watch, create, patch, delete on Secrets;
//   - get on the Namespace OwnerNamespace;
//   - MutatingWebhookConfigurations: create; get, list, watch, patch, delete on the one of the instance's name;
//     the same for ValidatingWebhookConfigurations if there are validating webhooks;
//   - with Resources: list on ManagedResources, and get, create, patch, delete on them and on Secrets in the namespaces of
//     shoots, as package resources needs them.
func AddToManager(mgr manager.Manager, opts Options) (*ShootWebhooks, error) {
	shoots, err := addToManager(mgr, opts)
	if err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}
	return shoots, nil
}

func addToManager(mgr manager.Manager, opts Options) (*ShootWebhooks, error) {
	target, err := newCluster(mgr, nil, opts)
	if err != nil {
		return nil, err
	}
	certificates, err := newCluster(mgr, opts.Certificates, opts)
	if err != nil {
		return nil, err
	}
	registrar, err := newRegistrar(target.GetClient(), certificates.GetClient(), opts)
	if err != nil {
		return nil, err
	}
	if len(opts.Webhooks) == 0 {
		return registrar.shoots, registrar.addToManager(mgr)
	}

	// All replicas follow the certificates, the leader follows the registration.
	secrets, err := certificates.GetCache().GetInformer(context.Background(), &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if _, err := secrets.AddEventHandler(registrar.store); err != nil {
		return nil, err
	}
	watches := []source.Source{source.Kind[client.Object](certificates.GetCache(), &corev1.Secret{}, enqueue())}
	for _, config := range registrar.configs.GetWebhookConfigs() {
		watches = append(watches, source.Kind(target.GetCache(), config, enqueue()))
	}
	handler, err := newHandler(opts.Webhooks, opts.Log)
	if err != nil {
		return nil, err
	}
	return registrar.shoots, errors.Join(
		mgr.Add(certificates),
		mgr.Add(target),
		mgr.Add(newServer(opts, handler, registrar.store)),
		mgr.AddReadyzCheck("webhook-server", registrar.store.Ready),
		registrar.addToManager(mgr, watches...),
	)
}

// newCluster returns a cluster whose cache holds nothing but the certificates and the registration, and whose client does not
// read from the cache: decisions about certificates need the current state. Without config it is that of the manager.
func newCluster(mgr manager.Manager, config *rest.Config, opts Options) (cluster.Cluster, error) {
	var httpClient *http.Client
	if config == nil {
		config, httpClient = mgr.GetConfig(), mgr.GetHTTPClient()
	}
	byName := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, opts.Name)}
	return cluster.New(config, func(o *cluster.Options) {
		o.HTTPClient = httpClient
		o.Scheme = mgr.GetScheme()
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mgr.GetRESTMapper(), nil }
		o.Cache.DefaultTransform = cache.TransformStripManagedFields()
		o.Cache.ByObject = map[client.Object]cache.ByObject{
			&corev1.Secret{}: {
				Namespaces: map[string]cache.Config{opts.CertificateNamespace: {}},
				Label:      certificate.Selector(opts.Identity),
			},
			&admissionregistrationv1.MutatingWebhookConfiguration{}:   byName,
			&admissionregistrationv1.ValidatingWebhookConfiguration{}: byName,
		}
		o.NewClient = func(config *rest.Config, options client.Options) (client.Client, error) {
			options.Cache = nil
			return client.New(config, options)
		}
	})
}
