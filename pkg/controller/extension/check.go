// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/extension"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// check does what may have to wait, before the reconciler of the extension library gets its turn. That one holds a worker
// while its actuator waits; if the actuator gives up instead, it forgets when to come back, and writes the status twice
// in each attempt, which wakes it up again as long as the annotation for migrate or restore is there. What is returned
// here is written once, and the watch on ManagedResources brings the Extension here again.
func (a *actuator) check(ctx context.Context, ex *extensionsv1alpha1.Extension, operation gardencorev1beta1.LastOperationType) error {
	switch operation {
	case gardencorev1beta1.LastOperationTypeDelete:
		return nil
	case gardencorev1beta1.LastOperationTypeMigrate:
		return a.Migrate(ctx, logr.Discard(), ex)
	default:
		return a.deployAndWait(ctx, ex)
	}
}

// deployAndWait does nothing if there is nothing to wait for.
func (a *actuator) deployAndWait(ctx context.Context, ex *extensionsv1alpha1.Extension) error {
	if !a.kind.waits {
		return nil
	}
	cluster, err := a.cluster(ctx, ex)
	if err != nil {
		return err
	}
	if extensionscontroller.IsShootFailed(cluster.Shoot()) || !a.kind.isInSeed() && cluster.IsHibernated() {
		return nil
	}

	// Before the first object, else nobody would delete that.
	if finalizer := extension.FinalizerPrefix + "/" + a.kind.extensionType; !controllerutil.ContainsFinalizer(ex, finalizer) {
		if err := controllerutils.AddFinalizers(ctx, a.client, ex, finalizer); err != nil {
			return fmt.Errorf("adding the finalizer: %w", err)
		}
	}

	err = a.resources.Apply(ctx, a.kind.managedResource(ex))
	switch {
	case errors.Is(err, resources.ErrDeleting):
		return waitFor(err)
	case err != nil:
		return err
	}
	return a.waitUntilHealthy(ctx, a.kind.key(ex))
}

// waitUntilHealthy gives up as long as the ManagedResource is not healthy. That of the cache is asked first, as the watch
// tells when it changes. If it is healthy, it may still be the one from before the last write.
func (a *actuator) waitUntilHealthy(ctx context.Context, key client.ObjectKey) error {
	for _, reader := range []client.Reader{a.client, a.reader} {
		mr := &resourcesv1alpha1.ManagedResource{}
		if err := reader.Get(ctx, key, mr); apierrors.IsNotFound(err) {
			return waitFor(fmt.Errorf("ManagedResource %s was written, but is not to be seen yet", key))
		} else if err != nil {
			return fmt.Errorf("reading ManagedResource %s: %w", key, err)
		}
		if err := health.CheckManagedResource(mr); err != nil {
			return waitFor(err)
		}
	}
	return nil
}
