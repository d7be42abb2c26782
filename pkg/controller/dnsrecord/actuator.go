// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsrecord

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/dnsrecord"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

const (
	// retryConflict is how long a record waits for the one that stands against it: its going makes no event here.
	retryConflict = time.Minute
	// retryServer is how long a record waits whose server doesn't answer as it should.
	retryServer = 5 * time.Second
)

type actuator struct {
	provider   dns.Provider
	zones      []string
	defaultTTL int64
}

// NewActuator returns the Actuator of the controller.
func NewActuator(provider dns.Provider, zones []string, defaultTTL int64) dnsrecord.Actuator {
	return &actuator{provider: provider, zones: zones, defaultTTL: defaultTTL}
}

// Reconcile implements dnsrecord.Actuator: a DNSRecord is Succeeded once it resolves.
func (a *actuator) Reconcile(ctx context.Context, _ logr.Logger, object *extensionsv1alpha1.DNSRecord, _ *extensionscontroller.Cluster) error {
	record, err := dns.New(object, a.zones, a.defaultTTL)
	if err != nil {
		return common.ConfigurationProblem(err, common.RetryMistake)
	}

	err = a.provider.Apply(ctx, record)
	var conflict *dns.ConflictError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &conflict):
		return common.ConfigurationProblem(err, retryConflict)
	default:
		return common.WithCode(err, gardencorev1beta1.ErrorRetryableInfraDependencies, retryServer)
	}
}

// Restore implements dnsrecord.Actuator. There is no state to restore: all of a record is in its spec.
func (a *actuator) Restore(ctx context.Context, log logr.Logger, object *extensionsv1alpha1.DNSRecord, cluster *extensionscontroller.Cluster) error {
	return a.Reconcile(ctx, log, object, cluster)
}

// Delete implements dnsrecord.Actuator.
func (a *actuator) Delete(ctx context.Context, _ logr.Logger, object *extensionsv1alpha1.DNSRecord, _ *extensionscontroller.Cluster) error {
	if err := a.provider.Remove(ctx, client.ObjectKeyFromObject(object)); err != nil {
		return common.WithCode(err, gardencorev1beta1.ErrorRetryableInfraDependencies, retryServer)
	}
	return nil
}

// ForceDelete implements dnsrecord.Actuator. What can't be removed now the provider drops once the DNSRecord is gone.
func (a *actuator) ForceDelete(ctx context.Context, log logr.Logger, object *extensionsv1alpha1.DNSRecord, _ *extensionscontroller.Cluster) error {
	if err := a.provider.Remove(ctx, client.ObjectKeyFromObject(object)); err != nil {
		log.Error(err, "Leaving a record to be removed later, as it is deleted by force")
	}
	return nil
}

// Migrate implements dnsrecord.Actuator. The seed that a shoot moves to serves its names, so this one forgets them. A
// shoot that runs its own control plane takes its machines along, which still need the names that they know, and a
// DNSRecord without a Cluster belongs to the garden or the seed itself, which don't move.
func (a *actuator) Migrate(ctx context.Context, log logr.Logger, object *extensionsv1alpha1.DNSRecord, cluster *extensionscontroller.Cluster) error {
	shoot := extensioncluster.From(cluster).Shoot()
	if shoot == nil || v1beta1helper.IsShootSelfHosted(shoot.Spec.Provider.Workers) {
		return nil
	}
	return a.Delete(ctx, log, object, cluster)
}
