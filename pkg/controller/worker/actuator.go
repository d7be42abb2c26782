// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// actuator implements reconciler.Actuator.
type actuator struct {
	Options
	// client has the kinds of machine.sapcloud.io in its cache.
	client client.Client
	// reader asks the API server.
	reader client.Reader
}

type operation = reconciler.Operation[*extensionsv1alpha1.Worker]

var _ reconciler.Actuator[*extensionsv1alpha1.Worker] = &actuator{}

// Reconcile implements reconciler.Actuator.
func (a *actuator) Reconcile(ctx context.Context, op *operation) error {
	if err := checkCluster(op); err != nil {
		return err
	}
	return transient(a.reconcile(ctx, op))
}

// Restore implements reconciler.Actuator.
func (a *actuator) Restore(ctx context.Context, op *operation) error {
	if err := checkCluster(op); err != nil {
		return err
	}
	if err := a.restore(ctx, op); err != nil {
		return transient(err)
	}
	return transient(a.reconcile(ctx, op))
}

// Migrate implements reconciler.Actuator. As with the generic actuator there is nothing to do: the machines stay, and gardenlet
// takes the objects of machine-controller-manager away without it.
func (a *actuator) Migrate(context.Context, *operation) error {
	return nil
}

func checkCluster(op *operation) error {
	if op.Cluster.Shoot() == nil || op.Cluster.CloudProfile() == nil {
		return reconciler.NoCluster(op.Object.Namespace, "a shoot and a CloudProfile")
	}
	return nil
}

// reconcile takes all steps of a reconciliation up to the first for which something else has to happen before. What it puts
// into the status is written when it returns.
func (a *actuator) reconcile(ctx context.Context, op *operation) error {
	w, cluster := op.Object, op.Cluster
	pools, err := a.poolsOf(w, cluster)
	if err != nil {
		return err
	}
	existing, err := a.observe(ctx, w.Namespace)
	if err != nil {
		return err
	}
	if !a.isRequested(op) {
		keepClassesInPlace(pools, existing.deployments)
	}
	machines, err := machinesOf(w, pools)
	if err != nil {
		return err
	}

	starts := isStart(w, op.Asked)
	if err := a.deployClasses(ctx, op, machines, existing.classes, starts); err != nil {
		return err
	}
	if err := recordImages(w, inUse(pools)); err != nil {
		return err
	}
	deployed, err := a.deployDeployments(ctx, w, machines, existing, cluster.IsHibernated())
	if err != nil {
		return err
	}
	a.recordDeployments(w, machines, starts)
	if starts && op.Type == gardencorev1beta1.LastOperationTypeRestore {
		// Else an attempt that is stopped here would be followed by another restoration.
		if err := op.SaveStatus(ctx); err != nil {
			return err
		}
	}
	if err := a.awaitMachines(ctx, w, deployed, existing, cluster.IsHibernated()); err != nil {
		return err
	}
	if err := recordUpdatesInPlace(w, cluster, deployed); err != nil {
		return err
	}
	if err := a.deleteUnwanted(ctx, op, machines, existing); err != nil {
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
