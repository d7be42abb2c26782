// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// retryWait is when an Extension that waits for its ManagedResource is looked at again, should the watch not wake it
// before.
const retryWait = 30 * time.Second

// actuator does for one type of Extension what the reconciler of the extension library asks for.
type actuator struct {
	client client.Client
	// reader asks the API server.
	reader    client.Reader
	kind      kind
	resources *resources.Writer
	leftovers leftovers
}

// Reconcile deploys the ManagedResource. Where that is waited for, check has done so already, and this costs nothing. While
// a former one is still being deleted this is an error, which is tried again with a back-off or when the watch says so.
func (a *actuator) Reconcile(ctx context.Context, _ logr.Logger, ex *extensionsv1alpha1.Extension) error {
	if err := a.resources.Apply(ctx, a.kind.managedResource(ex)); err != nil {
		return err
	}
	if asked, err := a.asksForLeftovers(ctx, ex); err != nil || !asked {
		return err
	}
	return a.leftovers.apply(ctx, ex.Namespace)
}

// Restore does the same as Reconcile: objects in a shoot are still there, and are found there.
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
	return waitFor(fmt.Errorf("ManagedResource %s is still being deleted, gardener-resource-manager's status on it tells why", key))
}

// ForceDelete deletes the ManagedResource and its Secrets, and waits for nothing: the shoot may be out of reach, so its
// objects are left where they are. gardenlet takes the finalizer off ManagedResources that nobody serves any more.
func (a *actuator) ForceDelete(ctx context.Context, _ logr.Logger, ex *extensionsv1alpha1.Extension) error {
	if a.kind.hasLeftovers {
		if err := a.leftovers.remove(ctx, ex.Namespace); err != nil {
			return err
		}
	}
	_, err := a.release(ctx, ex)
	return err
}

// Migrate deletes the ManagedResource, but not what is in the shoot: that goes on without this seed.
func (a *actuator) Migrate(ctx context.Context, _ logr.Logger, ex *extensionsv1alpha1.Extension) error {
	asked, err := a.asksForLeftovers(ctx, ex)
	if err != nil {
		return err
	}
	if asked {
		// The other seed gets its own, and the namespace here has to go.
		if err := a.leftovers.remove(ctx, ex.Namespace); err != nil {
			return err
		}
	}

	gone, err := a.release(ctx, ex)
	if err != nil || gone {
		return err
	}
	return waitFor(fmt.Errorf("ManagedResource %s is still being deleted for the migration", a.kind.key(ex)))
}

// release deletes the ManagedResource, but keeps its objects unless they are in the seed.
func (a *actuator) release(ctx context.Context, ex *extensionsv1alpha1.Extension) (bool, error) {
	key := a.kind.key(ex)
	if !a.kind.isInSeed() {
		if err := a.resources.SetKeepObjects(ctx, key, true); err != nil {
			return false, err
		}
	}
	return a.resources.Delete(ctx, key)
}

func (a *actuator) asksForLeftovers(ctx context.Context, ex *extensionsv1alpha1.Extension) (bool, error) {
	if !a.kind.hasLeftovers {
		return false, nil
	}
	cluster, err := a.cluster(ctx, ex)
	return a.leftovers.isAskedFor(cluster.Shoot()), err
}

// cluster returns the Cluster of the Extension, or nil: only those of class shoot have one, and in the garden runtime
// cluster there need not even be the CustomResourceDefinition.
func (a *actuator) cluster(ctx context.Context, ex *extensionsv1alpha1.Extension) (*extensioncluster.Cluster, error) {
	if extensionsv1alpha1helper.GetExtensionClassOrDefault(ex.Spec.Class) != extensionsv1alpha1.ExtensionClassShoot {
		return nil, nil
	}
	return extensioncluster.Get(ctx, a.client, ex.Namespace)
}

func waitFor(cause error) error {
	return &reconcilerutils.RequeueAfterError{Cause: cause, RequeueAfter: retryWait}
}
