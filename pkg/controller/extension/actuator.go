// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// retryDeletion is when an Extension whose ManagedResource is being deleted is looked at again, should the watch not
// wake it before.
const retryDeletion = 30 * time.Second

// actuator does for one type of Extension what the reconciler of the extension library asks for. It never needs the
// Cluster, which does not exist for class garden.
type actuator struct {
	kind      kind
	resources *resources.Writer
}

// Reconcile deploys the ManagedResource. While a former one is still being deleted this is an error, which is tried again
// with a back-off or when the watch says so: the library forgets a RequeueAfterError here.
func (a *actuator) Reconcile(ctx context.Context, _ logr.Logger, ex *extensionsv1alpha1.Extension) error {
	return a.resources.Apply(ctx, a.kind.managedResource(ex))
}

// Restore does the same as Reconcile: the objects are still in the cluster, and are found there.
func (a *actuator) Restore(ctx context.Context, log logr.Logger, ex *extensionsv1alpha1.Extension) error {
	return a.Reconcile(ctx, log, ex)
}

// Delete deletes the ManagedResource. As long as GRM is deleting the objects, it gives the worker back: when the
// ManagedResource is gone, the watch on it brings the Extension here again.
func (a *actuator) Delete(ctx context.Context, _ logr.Logger, ex *extensionsv1alpha1.Extension) error {
	key := a.kind.key(ex)
	gone, err := a.resources.Delete(ctx, key)
	if err != nil || gone {
		return err
	}
	return &reconcilerutils.RequeueAfterError{
		Cause:        fmt.Errorf("ManagedResource %s is still being deleted, gardener-resource-manager's status on it tells why", key),
		RequeueAfter: retryDeletion,
	}
}

// ForceDelete deletes the ManagedResource and its Secrets, and waits for nothing: the shoot may be out of reach, so its
// objects are left where they are. gardenlet takes the finalizer off ManagedResources that nobody serves any more.
func (a *actuator) ForceDelete(ctx context.Context, _ logr.Logger, ex *extensionsv1alpha1.Extension) error {
	_, err := a.deleteKeepingObjects(ctx, ex)
	return err
}

// Migrate deletes the ManagedResource, but not the objects: the shoot goes on without this seed.
func (a *actuator) Migrate(ctx context.Context, _ logr.Logger, ex *extensionsv1alpha1.Extension) error {
	gone, err := a.deleteKeepingObjects(ctx, ex)
	if err != nil || gone {
		return err
	}
	return &reconcilerutils.RequeueAfterError{
		Cause:        fmt.Errorf("ManagedResource %s, whose objects are kept, is still being deleted", a.kind.key(ex)),
		RequeueAfter: retryDeletion,
	}
}

func (a *actuator) deleteKeepingObjects(ctx context.Context, ex *extensionsv1alpha1.Extension) (bool, error) {
	key := a.kind.key(ex)
	if err := a.resources.SetKeepObjects(ctx, key, true); err != nil {
		return false, err
	}
	return a.resources.Delete(ctx, key)
}

// check does what Migrate does, before the reconciler of the extension library does: while it waits, that one would
// write the status each time, and while the annotation for the migration is there each write wakes it up again.
func (a *actuator) check(ctx context.Context, ex *extensionsv1alpha1.Extension, operation gardencorev1beta1.LastOperationType) error {
	if operation != gardencorev1beta1.LastOperationTypeMigrate {
		return nil
	}
	return a.Migrate(ctx, logr.Discard(), ex)
}
