// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/infrastructure"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

const (
	// retryWait is when a namespace that is being deleted is looked at again: in another cluster nothing is watched.
	retryWait = 5 * time.Second
	// forceDeleteTimeout bounds what a forced deletion spends on a cluster that may be out of reach.
	forceDeleteTimeout = 20 * time.Second
)

// actuator implements infrastructure.Actuator of the extension library.
type actuator struct {
	client client.Client
	// reader asks the API server: what is read here is not worth an informer for the whole seed.
	reader client.Reader

	clusters              cluster.Clusters
	egress, loadBalancers []netip.Prefix
	coreDNSNamespace      string
}

// check does what may have to wait or to be tried again before the reconciler of the extension library gets its turn. For
// a deletion that is because the library would report waiting as a failure; for a restore because it writes the status
// twice in each attempt, which wakes it up again as long as the annotation is there.
func (a *actuator) check(ctx context.Context, infra *extensionsv1alpha1.Infrastructure, operation gardencorev1beta1.LastOperationType) error {
	shootCluster, err := extensioncluster.Get(ctx, a.client, infra.Namespace)
	if err != nil {
		return err
	}
	if shootCluster == nil {
		return common.NoCluster(infra.Namespace, "a shoot")
	}
	if extensionscontroller.IsShootFailed(shootCluster.Shoot()) {
		return nil // The library does nothing for it either.
	}

	hasFinalizer := controllerutil.ContainsFinalizer(infra, infrastructure.FinalizerName)
	switch {
	case operation == gardencorev1beta1.LastOperationTypeDelete && hasFinalizer && !shootCluster.NeedsForceDeletion():
		return a.remove(ctx, infra)
	case operation == gardencorev1beta1.LastOperationTypeRestore:
		// Before the first object, else nobody would delete that.
		if !hasFinalizer {
			if err := controllerutils.AddFinalizers(ctx, a.client, infra, infrastructure.FinalizerName); err != nil {
				return fmt.Errorf("adding the finalizer: %w", err)
			}
		}
		_, err := a.apply(ctx, infra, shootCluster)
		return err
	}
	return nil
}

// Reconcile applies all that machines need, and says in the status what that is.
func (a *actuator) Reconcile(ctx context.Context, _ logr.Logger, infra *extensionsv1alpha1.Infrastructure, shootCluster *extensionscontroller.Cluster) error {
	status, err := a.apply(ctx, infra, extensioncluster.From(shootCluster))
	if err != nil {
		return err
	}
	return a.writeStatus(ctx, infra, status)
}

// Restore does the same as Reconcile. What is in a cluster other than the seed is still there; in a new seed there is
// nothing yet.
func (a *actuator) Restore(ctx context.Context, log logr.Logger, infra *extensionsv1alpha1.Infrastructure, shootCluster *extensionscontroller.Cluster) error {
	return a.Reconcile(ctx, log, infra, shootCluster)
}

// Migrate leaves everything where it is. Machines in a cluster other than the seed go on as if nothing had happened, and
// their namespace, policies and addresses with them: the next seed finds them by the same names. Machines in the seed
// run until gardenlet, which does that last, deletes the shoot's namespace; until then they are to have their policies.
// These go with the namespace, and so do the IPPools, which it owns. There is nothing to be kept in status.state.
func (*actuator) Migrate(context.Context, logr.Logger, *extensionsv1alpha1.Infrastructure, *extensionscontroller.Cluster) error {
	return nil
}

// Delete removes everything. gardenlet has waited for the Worker before, so there are no machines any more. As long as a
// namespace is being deleted, it gives the worker back.
func (a *actuator) Delete(ctx context.Context, _ logr.Logger, infra *extensionsv1alpha1.Infrastructure, _ *extensionscontroller.Cluster) error {
	return a.remove(ctx, infra)
}

// ForceDelete asks for the deletion of everything, waits for nothing and never fails: the credentials or the cluster that
// they are for may be gone. What cannot be deleted is left there, and logged.
func (a *actuator) ForceDelete(ctx context.Context, log logr.Logger, infra *extensionsv1alpha1.Infrastructure, _ *extensionscontroller.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, forceDeleteTimeout)
	defer cancel()

	seed := place{client: a.client, reader: a.reader, namespace: infra.Namespace}
	errs := []error{seed.deletePolicies(ctx, infra.Namespace)}
	at, err := a.placeOf(ctx, infra)
	if err != nil {
		errs = append(errs, err)
		// The seed is still in reach.
		at = seed
	}
	if _, err := at.deleteNamespace(ctx); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, at.deletePolicies(ctx, at.namespace), at.deletePools(ctx, infra.Namespace))
	if err := errors.Join(errs...); err != nil {
		log.Info("Leaving behind what could not be deleted, as deletion is forced", "reason", err.Error())
	}
	return nil
}

// apply applies everything, and writes only what is not as it is to be.
func (a *actuator) apply(ctx context.Context, infra *extensionsv1alpha1.Infrastructure, shootCluster *extensioncluster.Cluster) (*status, error) {
	shoot := shootCluster.Shoot()
	if shoot == nil {
		return nil, common.NoCluster(infra.Namespace, "a shoot")
	}
	networks, err := networksOf(shoot)
	if err != nil {
		return nil, common.ConfigurationProblem(err, common.RetryMistake)
	}
	seed, err := seedRangesOf(shootCluster.Seed())
	if err != nil {
		return nil, common.ConfigurationProblem(fmt.Errorf("spec.networks of the seed: %w", err), common.RetryMistake)
	}
	at, err := a.placeOf(ctx, infra)
	if err != nil {
		return nil, err
	}

	if err := at.applyNamespace(ctx); err != nil {
		return nil, at.explain(err)
	}
	reach := reach{
		namespace: infra.Namespace, machines: at.namespace, remote: at.remote,
		nodes: networks.nodes, seed: seed, loadBalancers: a.loadBalancers, egress: a.egress, coreDNSNamespace: a.coreDNSNamespace,
	}
	for _, policy := range reach.policies() {
		in := at
		if policy.Namespace == infra.Namespace {
			in = place{client: a.client, reader: a.reader, namespace: infra.Namespace}
		}
		if err := in.applyPolicy(ctx, policy); err != nil {
			return nil, in.explain(err)
		}
	}
	pools, message, err := at.applyPools(ctx, infra.Namespace, networks, reach.usedBySeed())
	if err != nil {
		return nil, at.explain(err)
	}
	return newStatus(at, networks, seed, pools, message), nil
}

// remove deletes everything. Called again, it goes on where it was.
func (a *actuator) remove(ctx context.Context, infra *extensionsv1alpha1.Infrastructure) error {
	at, err := a.placeOf(ctx, infra)
	if err != nil {
		return err
	}
	gone, err := at.deleteNamespace(ctx)
	if err != nil {
		return at.explain(err)
	}
	if !gone {
		return common.Waiting(fmt.Errorf("namespace %s of the machines is still being deleted, its status tells why", at.namespace), retryWait)
	}
	// The pools go after the machines, which have their addresses of them.
	if err := at.deletePools(ctx, infra.Namespace); err != nil {
		return at.explain(err)
	}
	if at.remote {
		seed := place{client: a.client, reader: a.reader}
		if err := seed.deletePolicies(ctx, infra.Namespace); err != nil {
			return err
		}
	}
	return at.explain(at.deletePolicies(ctx, at.namespace))
}
