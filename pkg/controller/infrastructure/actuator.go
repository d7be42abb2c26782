// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
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
	status, err := a.apply(ctx, op)
	if err != nil {
		return err
	}
	return status.keep(op.Object)
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
func (a *actuator) Delete(ctx context.Context, op *attempt) error { return a.remove(ctx, op.Object) }

// ForceDelete asks for the deletion of everything, waits for nothing and never fails: the credentials or the cluster that
// they are for may be gone. What cannot be deleted is left there, and logged.
func (a *actuator) ForceDelete(ctx context.Context, op *attempt) error {
	ctx, cancel := context.WithTimeout(ctx, forceDeleteTimeout)
	defer cancel()

	infra := op.Object
	seed := place{client: a.client, reader: a.reader, namespace: infra.Namespace}
	errs := []error{seed.deletePolicies(ctx, infra.Namespace, serversPolicies()...)}
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
		op.Log.Info("Leaving behind what could not be deleted, as deletion is forced", "reason", err.Error())
	}
	return nil
}

// apply applies everything.
func (a *actuator) apply(ctx context.Context, op *attempt) (*status, error) {
	infra, shoot := op.Object, op.Cluster.Shoot()
	if shoot == nil {
		return nil, common.NoCluster(infra.Namespace, "a shoot")
	}
	networks, err := networksOf(shoot)
	if err != nil {
		return nil, common.ConfigurationProblem(err, common.RetryMistake)
	}
	seed, err := seedRangesOf(op.Cluster.Seed())
	if err != nil {
		return nil, common.ConfigurationProblem(fmt.Errorf("spec.networks of the seed: %w", err), common.RetryMistake)
	}
	at, err := a.placeOf(ctx, infra)
	if err != nil {
		return nil, err
	}

	// What is there already is usually as it is to be: then it is read. Else it is created, which is one request less.
	at.isNew = infra.Status.ProviderStatus == nil
	if err := at.applyNamespace(ctx); err != nil {
		return nil, at.explain(err)
	}
	reach := reach{
		namespace: infra.Namespace, machines: at.namespace, remote: at.remote,
		nodes: networks.nodes, seed: seed, ranges: a.ranges, coreDNSNamespace: a.coreDNSNamespace,
	}
	for _, policy := range reach.policies() {
		in := at
		if policy.Namespace == infra.Namespace {
			in = place{client: a.client, namespace: infra.Namespace}
		}
		if err := op.Apply(ctx, reconciler.Target{Client: in.client, ID: in.config, Unread: true}, policy); err != nil {
			return nil, in.explain(err)
		}
	}
	pools, message, err := at.applyPools(ctx, infra.Namespace, networks, reach.refusal)
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
	going, err := at.deleteNamespace(ctx)
	if err != nil {
		return at.explain(err)
	}
	if going != nil {
		return a.waitFor(going)
	}
	// The pools go after the machines, which have their addresses of them.
	if err := at.deletePools(ctx, infra.Namespace); err != nil {
		return at.explain(err)
	}
	if at.remote {
		// Those of the machines went with their namespace.
		seed := place{client: a.client, reader: a.reader}
		return seed.deletePolicies(ctx, infra.Namespace, serversPolicies()...)
	}
	return at.deletePolicies(ctx, at.namespace)
}

// waitFor waits for a namespace that is going: shortly at first, and the longer it takes the less often.
func (a *actuator) waitFor(namespace *corev1.Namespace) error {
	retryAfter := retrySoon
	if namespace.DeletionTimestamp != nil {
		retryAfter = min(max(retrySoon, a.clock.Since(namespace.DeletionTimestamp.Time)), retryWait)
	}
	return common.Waiting(fmt.Errorf("namespace %s of the machines is still being deleted, its status tells why", namespace.Name), retryAfter)
}
