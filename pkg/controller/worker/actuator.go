// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	"github.com/gardener/gardener/pkg/utils/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

// actuator implements worker.Actuator of the extension library, and the check before it.
type actuator struct {
	Options
	// client has the kinds of machine.sapcloud.io in its cache.
	client client.Client
	// reader asks the API server.
	reader client.Reader
}

var _ worker.Actuator = &actuator{}

// check does the work of an operation, as far as that can be done now, before the reconciler of the extension library gets
// its turn: that one calls everything that is not finished an error, and wakes itself by writing that while the annotation
// for a restoration is there. When check has no error the operation is done, and the library says so.
//
// A forced deletion is the library's own, as it waits for nothing.
func (a *actuator) check(ctx context.Context, w *extensionsv1alpha1.Worker, operation gardencorev1beta1.LastOperationType) error {
	cluster, err := extensioncluster.Get(ctx, a.client, w.Namespace)
	if err != nil {
		return err
	}
	if cluster == nil {
		return common.NoCluster(w.Namespace, "a shoot and a CloudProfile")
	}

	switch {
	case extensionscontroller.IsShootFailed(cluster.Shoot()):
		return nil // The library does nothing for it either.
	case operation == gardencorev1beta1.LastOperationTypeMigrate:
		return nil
	case operation == gardencorev1beta1.LastOperationTypeDelete:
		if cluster.NeedsForceDeletion() || !controllerutil.ContainsFinalizer(w, worker.FinalizerName) {
			return nil
		}
		return transient(a.delete(ctx, w, cluster))
	case cluster.Shoot() == nil || cluster.CloudProfile() == nil:
		return common.NoCluster(w.Namespace, "a shoot and a CloudProfile")
	}

	// Before the first object, else nobody would delete that.
	if !controllerutil.ContainsFinalizer(w, worker.FinalizerName) {
		if err := controllerutils.AddFinalizers(ctx, a.client, w, worker.FinalizerName); err != nil {
			return transient(fmt.Errorf("adding the finalizer: %w", err))
		}
	}
	if operation == gardencorev1beta1.LastOperationTypeRestore {
		if err := a.restore(ctx, w, cluster); err != nil {
			return transient(err)
		}
	}
	return transient(a.reconcile(ctx, w, cluster))
}

// Reconcile implements worker.Actuator. All is done by check.
func (a *actuator) Reconcile(context.Context, logr.Logger, *extensionsv1alpha1.Worker, *extensionscontroller.Cluster) error {
	return nil
}

// Restore implements worker.Actuator. All is done by check.
func (a *actuator) Restore(context.Context, logr.Logger, *extensionsv1alpha1.Worker, *extensionscontroller.Cluster) error {
	return nil
}

// Delete implements worker.Actuator. All is done by check.
func (a *actuator) Delete(context.Context, logr.Logger, *extensionsv1alpha1.Worker, *extensionscontroller.Cluster) error {
	return nil
}

// Migrate implements worker.Actuator. As with the generic actuator there is nothing to do: the machines stay, and gardenlet
// takes the objects of machine-controller-manager away without it.
func (a *actuator) Migrate(context.Context, logr.Logger, *extensionsv1alpha1.Worker, *extensionscontroller.Cluster) error {
	return nil
}

// reconcile takes all steps of a reconciliation up to the first for which something else has to happen before.
func (a *actuator) reconcile(ctx context.Context, w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster) error {
	pools, err := a.poolsOf(w, cluster)
	if err != nil {
		return err
	}
	machines, err := machinesOf(w, pools)
	if err != nil {
		return err
	}
	existing, err := a.observe(ctx, w.Namespace)
	if err != nil {
		return err
	}

	starts := isStart(w)
	if err := a.deployClasses(ctx, machines, existing.classes, starts); err != nil {
		return err
	}
	if err := a.recordImages(ctx, w, inUse(pools)); err != nil {
		return err
	}
	deployed, err := a.deployDeployments(ctx, w, machines, existing, cluster.IsHibernated())
	if err != nil {
		return err
	}
	if err := a.recordDeployments(ctx, w, machines, starts); err != nil {
		return err
	}
	if err := a.awaitMachines(ctx, w, deployed, existing, cluster.IsHibernated()); err != nil {
		return err
	}
	if err := a.recordUpdatesInPlace(ctx, w, cluster, deployed); err != nil {
		return err
	}
	if err := a.deleteUnwanted(ctx, w, machines, existing); err != nil {
		return err
	}
	if cluster.IsHibernated() {
		return a.scaleMachineControllerManager(ctx, w.Namespace, 0)
	}
	return nil
}

func (a *actuator) scaleMachineControllerManager(ctx context.Context, namespace string, replicas int32) error {
	key := client.ObjectKey{Namespace: namespace, Name: v1beta1constants.DeploymentNameMachineControllerManager}
	if err := client.IgnoreNotFound(kubernetes.ScaleDeployment(ctx, a.client, key, replicas)); err != nil {
		return fmt.Errorf("scaling Deployment %s to %d: %w", key, replicas, err)
	}
	return nil
}
