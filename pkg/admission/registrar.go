// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/upkeep"
)

// identity tells our certificates from others in their namespace.
const identity = Name

// registrar is what the leader does: it keeps the certificates and the registrations. It looks at all of it when something
// has changed and when the next step of a rotation is due.
type registrar struct {
	log   logr.Logger
	clock clock.Clock
	// garden is a client of the virtual garden that does not cache.
	garden         client.Client
	authority      *certificate.Authority
	configs        extensionswebhook.Configs
	ownerNamespace string
	loop           *upkeep.Loop
}

func newRegistrar(mgr manager.Manager, configs extensionswebhook.Configs, opts Options) (*registrar, error) {
	dnsNames, addresses, err := opts.serverNames()
	if err != nil {
		return nil, err
	}
	// Decisions about certificates and registrations are not made by what a cache has seen so far.
	runtimeClient, err := client.New(opts.Runtime, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	garden, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	authority, err := certificate.New(certificate.Options{
		Client:      runtimeClient,
		Clock:       opts.Clock,
		Log:         opts.Log,
		Identity:    identity,
		Namespace:   opts.CertificateNamespace,
		DNSNames:    dnsNames,
		IPAddresses: addresses,
	})
	if err != nil {
		return nil, err
	}
	return &registrar{
		log:            opts.Log,
		clock:          opts.Clock,
		garden:         garden,
		authority:      authority,
		configs:        configs,
		ownerNamespace: opts.OwnerNamespace,
		loop:           upkeep.NewLoop(),
	}, nil
}

// NeedLeaderElection tells the manager that this is for the leader.
func (*registrar) NeedLeaderElection() bool {
	return true
}

// Start works until ctx ends.
func (r *registrar) Start(ctx context.Context) error {
	r.loop.Run(ctx, r.log, r.clock, func(ctx context.Context) (time.Time, bool, error) {
		next, err := r.authority.Rotate(ctx, r.publish)
		return next, false, err
	})
	return nil
}

// publish tells the virtual garden's API server what to call and whom to trust.
func (r *registrar) publish(ctx context.Context, bundle []byte) error {
	owner, err := upkeep.Owner(ctx, r.garden, r.ownerNamespace)
	if err != nil {
		return fmt.Errorf("virtual garden: %w", err)
	}
	validating, mutating := r.configs.ValidatingWebhookConfig.DeepCopy(), r.configs.MutatingWebhookConfig.DeepCopy()
	for _, config := range []client.Object{validating, mutating} {
		if err := extensionswebhook.InjectCABundleIntoWebhookConfig(config, bundle); err != nil {
			return err
		}
	}

	nowValidating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: validating.Name}}
	nowMutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: mutating.Name}}
	return errors.Join(
		upkeep.Register(ctx, r.garden, nowValidating, validating.Labels, owner, func() { nowValidating.Webhooks = validating.Webhooks }),
		upkeep.Register(ctx, r.garden, nowMutating, mutating.Labels, owner, func() { nowMutating.Webhooks = mutating.Webhooks }),
	)
}
