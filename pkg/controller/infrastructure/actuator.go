// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// retryWait is when a namespace that is being deleted is looked at again at the latest: in another cluster nothing is
	// watched. At first it is retrySoon, as an empty namespace is gone at once.
	retryWait = 5 * time.Second
	retrySoon = 100 * time.Millisecond
	// forceDeleteTimeout bounds what a forced deletion spends on a cluster that may be out of reach.
	forceDeleteTimeout = 20 * time.Second
)

// attempt is one at an operation on an Infrastructure.
type attempt = reconciler.Operation[*extensionsv1alpha1.Infrastructure]

type actuator struct {
	client client.Client
	// reader asks the API server: what is read here is not worth an informer for the whole seed.
	reader client.Reader
	clock  clock.PassiveClock

	clusters         cluster.Clusters
	ranges           ranges
	coreDNSNamespace string
}

var _ reconciler.Actuator[*extensionsv1alpha1.Infrastructure] = (*actuator)(nil)

// Reconcile applies all that machines need, and says in the status what that is.
func (a *actuator) Reconcile(ctx context.Context, op *attempt) error {
	infra, shoot := op.Object, op.Cluster.Shoot()
	if shoot == nil {
		return reconciler.NoCluster(infra.Namespace, "a shoot")
	}
	networks, err := networksOf(shoot)
	if err != nil {
		return reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
	}
	seed, err := seedRangesOf(op.Cluster.Seed())
	if err != nil {
		return reconciler.ConfigurationProblem(fmt.Errorf("spec.networks of the seed: %w", err), reconciler.RetryMistake)
	}
	at, err := a.placeOf(ctx, infra)
	if err != nil {
		return err
	}

	namespace, err := at.applyNamespace(ctx, op)
	if err != nil {
		return at.explain(err)
	}
	reach := reach{
		namespace: infra.Namespace, machines: at.namespace, remote: at.remote,
		nodes: networks.nodes, seed: seed, ranges: a.ranges, coreDNSNamespace: a.coreDNSNamespace,
	}
	for _, policy := range reach.policies() {
		in := at
		if policy.Namespace == infra.Namespace {
			in = a.inSeed(infra)
		}
		if err := op.Apply(ctx, in.WithoutState(), policy); err != nil {
			return in.explain(err)
		}
	}
	pools, message, err := at.applyPools(ctx, op, namespace, networks, reach.refusal)
	if err != nil {
		return at.explain(err)
	}
	// What machines send comes from their own addresses, and from those of the seed's nodes once it leaves the seed; where machines
	// are elsewhere, these are not known.
	egress := slices.Clone(networks.nodes)
	if seed != nil && !at.remote {
		egress = minimal(append(egress, seed.nodes...))
	}
	infra.Status.Networking, infra.Status.EgressCIDRs = networks.status(), toStrings(egress)
	infra.Status.ProviderStatus, err = reconciler.ProviderStatus(localv1alpha1.InfrastructureStatus{
		TypeMeta:         metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.InfrastructureStatusKind},
		MachineNamespace: at.namespace,
		IPPools:          pools,
		Message:          message,
	})
	return err
}

// Restore does the same as Reconcile. What is in a cluster other than the seed is still there; in a new seed there is
// nothing yet.
func (a *actuator) Restore(ctx context.Context, op *attempt) error { return a.Reconcile(ctx, op) }

// Migrate leaves everything where it is. Machines in a cluster other than the seed go on as if nothing had happened, and
// their namespace, policies and addresses with them: the next seed finds them by the same names. Machines in the seed
// run until gardenlet, which does that last, deletes the shoot's namespace; until then they are to have their policies.
// These go with the namespace, and so do the IPPools, which it owns. There is nothing to be kept in status.state.
func (*actuator) Migrate(context.Context, *attempt) error { return nil }

// Delete removes everything. gardenlet has waited for the Worker before, so there are no machines any more. As long as a
// namespace is being deleted, it gives the worker back.
func (a *actuator) Delete(ctx context.Context, op *attempt) error {
	at, err := a.placeOf(ctx, op.Object)
	if err != nil {
		return err
	}
	isGone, err := at.deleteNamespace(ctx, op)
	if err != nil {
		return at.explain(err)
	}
	if !isGone {
		// Shortly at first, and the longer it takes the less often. What time it is in the other cluster does not matter, and the
		// time of the deletion has no fraction of a second.
		retryAfter := min(max(retrySoon, a.clock.Since(op.Object.DeletionTimestamp.Time)-time.Second), retryWait)
		return reconciler.Waiting(fmt.Errorf("namespace %s of the machines is still being deleted, its status tells why", at.namespace), retryAfter)
	}
	// The pools go after the machines, which have their addresses of them.
	if err := at.deletePools(ctx, op); err != nil {
		return at.explain(err)
	}
	return a.deletePolicies(ctx, op)
}

// ForceDelete asks for the deletion of everything, waits for nothing and never fails: the credentials or the cluster that
// they are for may be gone. What cannot be deleted is left there, and logged.
func (a *actuator) ForceDelete(ctx context.Context, op *attempt) error {
	ctx, cancel := context.WithTimeout(ctx, forceDeleteTimeout)
	defer cancel()

	at, err := a.placeOf(ctx, op.Object)
	if err != nil {
		// The seed is still in reach.
		at = a.inSeed(op.Object)
	}
	_, errNamespace := at.deleteNamespace(ctx, op)
	if err := errors.Join(err, a.deletePolicies(ctx, op), errNamespace, at.deletePools(ctx, op)); err != nil {
		op.Log.Info("Leaving behind what could not be deleted, as deletion is forced", "reason", err.Error())
	}
	return nil
}
