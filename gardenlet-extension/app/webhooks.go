// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/controlplane"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
	controlplanewebhook "github.com/gardener/gardener-extension-provider-local/pkg/webhook/controlplane"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/dnsconfig"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/mockcontrolplane"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/node"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/shoot"
)

// newWebhooks is the list of the webhooks that this instance serves.
func (s *seed) newWebhooks() ([]*extensionswebhook.Webhook, error) {
	var (
		webhooks []*extensionswebhook.Webhook
		config   = s.Config
		switches = config.Webhooks
		one      = func(w *extensionswebhook.Webhook, err error) ([]*extensionswebhook.Webhook, error) {
			return []*extensionswebhook.Webhook{w}, err
		}
	)

	for _, entry := range []struct {
		name   string
		config configv1alpha1.WebhookConfiguration
		make   func() ([]*extensionswebhook.Webhook, error)
	}{
		{"controlPlane", switches.ControlPlane, func() ([]*extensionswebhook.Webhook, error) {
			return one(controlplanewebhook.New(s, controlplanewebhook.Options{
				ControllerImage: config.Machines.ControllerImage,
				AllowedCIDRs:    config.Machines.Remote.AllowedCIDRs,
				RegistryMirrors: config.Machines.RegistryMirrors,
			}))
		}},
		{"dnsConfig", switches.DNSConfig, func() ([]*extensionswebhook.Webhook, error) {
			return dnsconfig.New(s, dnsconfig.Options{
				Namespace:     config.DNS.CoreDNS.Namespace,
				ClusterDomain: config.DNS.CoreDNS.ClusterDomain,
			})
		}},
		{"node", switches.Node, func() ([]*extensionswebhook.Webhook, error) {
			return node.New(s, node.Options{Capacity: config.Nodes.Capacity, GPUResourceName: config.Machines.GPUResourceName}), nil
		}},
		{"shoot", switches.Shoot, func() ([]*extensionswebhook.Webhook, error) {
			return one(shoot.New(s))
		}},
		{mockcontrolplane.Name, configv1alpha1.WebhookConfiguration{Disabled: !s.hasMockNodes()}, func() ([]*extensionswebhook.Webhook, error) {
			return one(mockcontrolplane.New(s))
		}},
	} {
		if entry.config.Disabled {
			continue
		}
		made, err := entry.make()
		if err != nil {
			return nil, fmt.Errorf("making the webhook %s: %w", entry.name, err)
		}
		webhooks = append(webhooks, made...)
	}
	if _, shoots := s.Classes.Only(extensionsv1alpha1.ExtensionClassShoot); !shoots {
		webhooks = slices.DeleteFunc(webhooks, func(w *extensionswebhook.Webhook) bool { return w.Target == extensionswebhook.TargetShoot })
	}
	if !config.SelfHostedShootCluster {
		// The seed of a ManagedSeed has a webhook for its Nodes here, which says what their machine types have.
		return slices.DeleteFunc(webhooks, func(w *extensionswebhook.Webhook) bool { return s.InShoot && w.Name == node.NameSeed }), nil
	}
	// The cluster is the shoot: its webhooks are registered in it. That for its Nodes is there already. Gardener reports one that may
	// refuse ConfigMaps in kube-system as a problem of the shoot.
	webhooks = slices.DeleteFunc(webhooks, func(w *extensionswebhook.Webhook) bool { return w.Name == node.NameShoot })
	for _, w := range webhooks {
		if w.Target == extensionswebhook.TargetShoot {
			w.Target, w.FailurePolicy = extensionswebhook.TargetSeed, new(admissionregistrationv1.Ignore)
		}
	}
	return webhooks, nil
}

// addWebhooks adds the webhooks. It returns what deploys those of shoots, or nil if there are none.
func (s *seed) addWebhooks() (controlplane.ShootWebhooks, error) {
	webhooks, err := s.newWebhooks()
	if err != nil {
		return nil, err
	}
	if err := s.hidePaths(webhooks); err != nil {
		return nil, err
	}
	config, switches := s.Config, s.Config.Webhooks
	watches := instance.NewWatches(s.Options.WatchTimeout)
	if err := s.Add(watches); err != nil {
		return nil, err
	}
	registered, err := webhook.AddToManager(s, webhook.Options{
		Webhooks:             webhooks,
		Name:                 Name,
		Namespace:            s.Options.Namespace,
		OwnerNamespace:       s.Options.Namespace,
		BindAddress:          config.Server.Webhooks.BindAddress,
		Port:                 config.Server.Webhooks.Port,
		ServicePort:          *switches.ServicePort,
		URL:                  s.Options.WebhookURL,
		CertificateNamespace: s.Options.Namespace,
		Identity:             Name + "-webhooks",
		NewInformer:          watches.NewInformer,
		Resources:            s.Resources,
		Log:                  s.GetLogger().WithName("webhooks"),
	})
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(webhooks, func(w *extensionswebhook.Webhook) bool { return w.Name == node.NameSeed }) {
		if err := node.AddTouchToManager(s, config.Nodes.Capacity, registered.Registered()); err != nil {
			return nil, err
		}
	}
	if config.SelfHostedShootCluster || switches.Node.Disabled && switches.Shoot.Disabled {
		return nil, nil
	}
	return registered, nil
}

// hidePaths puts the webhooks of the seed where nobody in a shoot can have them called, who might keep them busy: callers are not
// authenticated, and shoots know the server. They are told no UID of the seed.
func (s *seed) hidePaths(webhooks []*extensionswebhook.Webhook) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := s.GetAPIReader().Get(ctx, client.ObjectKey{Name: s.Options.Namespace}, namespace); err != nil {
		return fmt.Errorf("reading the namespace %s of the instance: %w", s.Options.Namespace, err)
	}
	for _, w := range webhooks {
		if w.Target == extensionswebhook.TargetSeed {
			w.Path = string(namespace.UID) + "/" + w.Path
		}
	}
	return nil
}
