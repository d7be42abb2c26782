// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// retryWait is when an Extension that waits for its ManagedResource is looked at again, should the watch not wake it
// before.
const retryWait = 30 * time.Second

// attempt is one at an operation on an Extension.
type attempt = reconciler.Operation[*extensionsv1alpha1.Extension]

// actuator serves one type of Extension.
type actuator struct {
	client client.Client
	// reader asks the API server.
	reader    client.Reader
	kind      kind
	resources *resources.Writer
	// forceDeleteTest is set if Shoots may ask for leftovers. Those that exist are removed in any case.
	forceDeleteTest bool
}

var _ reconciler.Actuator[*extensionsv1alpha1.Extension] = (*actuator)(nil)

// Reconcile deploys the ManagedResource, and waits until its objects are healthy if the type wants that.
func (a *actuator) Reconcile(ctx context.Context, op *attempt) error {
	ex := op.Object
	err := a.resources.Apply(ctx, a.kind.managedResource(ex))
	if errors.Is(err, resources.ErrDeleting) {
		return waitFor(err)
	}
	if err != nil {
		return err
	}
	if a.forceDeleteTest && a.asksForLeftovers(op) {
		if err := a.applyLeftovers(ctx, op); err != nil {
			return err
		}
	}
	if a.kind.waits && (a.kind.isInSeed() || !op.Cluster.IsHibernated()) {
		if err := a.waitUntilHealthy(ctx, a.kind.key(ex)); err != nil {
			return err
		}
	}
	return reconciler.CheckCluster(ctx, a.reader, ex, op.Cluster)
}

// Restore does the same as Reconcile: objects in a shoot are still there, and are found there.
func (a *actuator) Restore(ctx context.Context, op *attempt) error { return a.Reconcile(ctx, op) }

// Delete deletes the ManagedResource. As long as GRM is deleting the objects, it gives the worker back: when the
// ManagedResource is gone, the watch on it brings the Extension here again.
func (a *actuator) Delete(ctx context.Context, op *attempt) error {
	key := a.kind.key(op.Object)
	gone, err := a.resources.Delete(ctx, key)
	if err != nil || gone {
		return err
	}
	return waitFor(fmt.Errorf("ManagedResource %s is still being deleted, gardener-resource-manager's status on it tells why", key))
}

// ForceDelete deletes the ManagedResource and its Secrets, and waits for nothing: the shoot may be out of reach, so its
// objects are left where they are. gardenlet takes the finalizer off ManagedResources that nobody serves any more.
func (a *actuator) ForceDelete(ctx context.Context, op *attempt) error {
	if a.kind.hasLeftovers {
		if err := a.removeLeftovers(ctx, op); err != nil {
			return err
		}
	}
	_, err := a.release(ctx, op.Object)
	return err
}

// Migrate deletes the ManagedResource, but not what is in the shoot: that goes on without this seed.
func (a *actuator) Migrate(ctx context.Context, op *attempt) error {
	if a.asksForLeftovers(op) {
		// The other seed gets its own, and the namespace here has to go.
		if err := a.removeLeftovers(ctx, op); err != nil {
			return err
		}
	}

	gone, err := a.release(ctx, op.Object)
	if err != nil || gone {
		return err
	}
	return waitFor(fmt.Errorf("ManagedResource %s is still being deleted for the migration", a.kind.key(op.Object)))
}

// release deletes the ManagedResource, but keeps its objects unless they are in the seed.
func (a *actuator) release(ctx context.Context, ex *extensionsv1alpha1.Extension) (bool, error) {
	if a.kind.isInSeed() {
		return a.resources.Delete(ctx, a.kind.key(ex))
	}
	return a.resources.Orphan(ctx, a.kind.key(ex))
}
