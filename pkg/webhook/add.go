// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/upkeep"
)

// AddToManager adds the server of the webhooks (on all replicas, with a check for readiness), and what keeps certificates
// and registrations (on the leader). If there are no webhooks, no server is added, and the leader removes what an earlier
// run has left. Whatever cannot be done at the moment is tried again; an error here is one of the options.
//
// Needed permissions:
//   - in the instance's namespace: get, list, watch, create, patch, delete on Secrets; get on that Namespace;
//   - MutatingWebhookConfigurations: create; get, list, watch, patch, delete on the one of the instance's name;
//   - ManagedResources: list, and get, create, patch, delete on them and on Secrets in the namespaces of shoots, as
//     package resources needs them.
func AddToManager(mgr manager.Manager, options Options) (*ShootWebhooks, error) {
	opts := options.complete()
	if err := opts.validate(mgr.GetClient()); err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}
	seed, shoot, err := buildConfigs(mgr.GetClient(), opts)
	if err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}

	// Decisions about certificates are not made by what a cache has seen so far.
	live, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}
	registrar, store, err := newRegistrar(live, opts, seed, shoot)
	if err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}

	if len(opts.Webhooks) > 0 {
		if err := addServer(mgr, opts, store, registrar); err != nil {
			return nil, fmt.Errorf("webhooks: %w", err)
		}
	}
	return registrar.shoots, mgr.Add(registrar)
}

func newRegistrar(c client.Client, opts Options, seed, shoot *admissionregistrationv1.MutatingWebhookConfiguration) (*registrar, *certificate.Store, error) {
	dnsNames, addresses, err := opts.serverNames()
	if err != nil {
		return nil, nil, err
	}
	authority, err := certificate.New(certificate.Options{
		Client:      c,
		Clock:       opts.Clock,
		Log:         opts.Log,
		Identity:    opts.identity(),
		Namespace:   opts.Namespace,
		DNSNames:    dnsNames,
		IPAddresses: addresses,
	})
	if err != nil {
		return nil, nil, err
	}

	store := certificate.NewStore(opts.Log, opts.Clock)
	return &registrar{
		log:       opts.Log,
		clock:     opts.Clock,
		client:    c,
		authority: authority,
		name:      opts.Name,
		namespace: opts.Namespace,
		seed:      seed,
		shoots:    newShootWebhooks(shoot, opts.Resources, c, store.Bundle),
		loop:      upkeep.NewLoop(),
	}, store, nil
}

// addServer adds the server, and a cache of its own through which all replicas follow the certificates and the leader
// learns of changes. It holds these Secrets and this one registration and nothing else of the cluster.
func addServer(mgr manager.Manager, opts Options, store *certificate.Store, registrar *registrar) error {
	server, err := newServer(opts.Server, opts.Webhooks, store, opts.Log)
	if err != nil {
		return err
	}
	registrar.serving = []<-chan struct{}{server.listening, store.Present()}

	watched, err := newCache(mgr, opts)
	if err != nil {
		return err
	}
	wake := registrar.loop.Handler()
	if err := upkeep.Watch(watched, &corev1.Secret{}, store, wake); err != nil {
		return err
	}
	if opts.has(extensionswebhook.TargetSeed) {
		if err := upkeep.Watch(watched, &admissionregistrationv1.MutatingWebhookConfiguration{}, wake); err != nil {
			return err
		}
	}

	if err := mgr.AddReadyzCheck("webhook-server", server.ready); err != nil {
		return err
	}
	if err := mgr.Add(upkeep.Runnable{Cache: watched}); err != nil {
		return err
	}
	return mgr.Add(server)
}

func newCache(mgr manager.Manager, opts Options) (cache.Cache, error) {
	return cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient:       mgr.GetHTTPClient(),
		Scheme:           mgr.GetScheme(),
		Mapper:           mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {
				Namespaces: map[string]cache.Config{opts.Namespace: {}},
				Label:      certificate.Selector(opts.identity()),
			},
			&admissionregistrationv1.MutatingWebhookConfiguration{}: {
				Field: fields.OneTermEqualSelector(metav1.ObjectNameField, opts.Name),
			},
		},
	})
}
