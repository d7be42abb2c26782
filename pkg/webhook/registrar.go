// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/upkeep"
)

// registrar is what the leader does: it keeps the certificates and what the clusters know of them. It looks at all of it
// when something has changed and when the next step is due.
type registrar struct {
	log   logr.Logger
	clock clock.Clock
	// client does not cache.
	client    client.Client
	authority *certificate.Authority
	// name and namespace are those of the instance.
	name, namespace string
	// seed is what to register in the seed, nil if there is nothing.
	seed   *admissionregistrationv1.MutatingWebhookConfiguration
	shoots *ShootWebhooks
	// serving are closed when this replica serves. If there are none, there is no webhook at all.
	serving []<-chan struct{}
	loop    *upkeep.Loop

	seedDone  bool
	announced sync.Once
}

// NeedLeaderElection tells the manager that this is for the leader.
func (*registrar) NeedLeaderElection() bool {
	return true
}

// Start works until ctx ends, or until nothing is left to remove if there are no webhooks.
func (r *registrar) Start(ctx context.Context) error {
	r.loop.Run(ctx, r.log, r.clock, func(ctx context.Context) (time.Time, bool, error) {
		next, err := r.round(ctx)
		if r.seedDone {
			r.announced.Do(func() { go r.announce(ctx) })
		}
		return next, len(r.serving) == 0, err
	})
	return nil
}

// round brings everything up to date and returns when to look again.
func (r *registrar) round(ctx context.Context) (time.Time, error) {
	if len(r.serving) == 0 {
		if err := r.publish(ctx, nil); err != nil {
			return time.Time{}, err
		}
		return time.Time{}, r.authority.Delete(ctx)
	}
	return r.authority.Rotate(ctx, r.publish)
}

// announce closes the channel registered as soon as this replica serves what is registered.
func (r *registrar) announce(ctx context.Context) {
	for _, serving := range r.serving {
		select {
		case <-serving:
		case <-ctx.Done():
			return
		}
	}
	close(r.shoots.registered)
}

// publish tells all clusters whom to trust.
func (r *registrar) publish(ctx context.Context, bundle []byte) error {
	seedErr := r.publishToSeed(ctx, bundle)
	if seedErr == nil {
		r.seedDone = true
	}
	return errors.Join(seedErr, r.shoots.update(ctx, bundle))
}

func (r *registrar) publishToSeed(ctx context.Context, bundle []byte) error {
	config := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
	if r.seed == nil {
		if err := client.IgnoreNotFound(r.client.Delete(ctx, config)); err != nil {
			return fmt.Errorf("deleting MutatingWebhookConfiguration %s: %w", r.name, err)
		}
		return nil
	}

	owner, err := upkeep.Owner(ctx, r.client, r.namespace)
	if err != nil {
		return err
	}
	want := withBundle(r.seed, bundle, "")
	return upkeep.Register(ctx, r.client, config, want.Labels, owner, func() { config.Webhooks = want.Webhooks })
}
