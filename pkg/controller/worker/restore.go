// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	"github.com/gardener/gardener/extensions/pkg/controller/worker/genericactuator"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

// restore brings back what another seed had of machines, once: reconcile puts into the status when it has deployed the
// MachineDeployments, and from then on machines that are not there any more have been replaced. The API server is asked
// for the status, as the cache may be behind.
func (a *actuator) restore(ctx context.Context, op *operation) error {
	w := op.Object
	live := &extensionsv1alpha1.Worker{}
	if err := a.reader.Get(ctx, client.ObjectKeyFromObject(w), live); err != nil {
		return fmt.Errorf("reading the Worker: %w", err)
	}
	if live.Status.MachineDeploymentsLastUpdateTime != nil {
		w.Status.MachineDeploymentsLastUpdateTime = live.Status.MachineDeploymentsLastUpdateTime
		return nil
	}

	// gardenlet puts the state there, so it need not be looked for in the garden.
	if state := live.Status.State; state == nil || len(state.Raw) == 0 {
		op.Log.Info("There is no state to restore")
		if op.Cluster.IsHibernated() {
			return nil
		}
		return a.scaleMachineControllerManager(ctx, w.Namespace, 1)
	}
	// Its errors the library would wrap.
	if _, err := a.poolsOf(w, op.Cluster); err != nil {
		return err
	}
	w.Status.State = live.Status.State
	return genericactuator.RestoreWithoutReconcile(ctx, op.Log, nil, a.client, &delegates{actuator: a, op: op}, w, op.Cluster.Decoded())
}

// delegates implements genericactuator.DelegateFactory.
type delegates struct {
	actuator *actuator
	op       *operation
}

// WorkerDelegate implements genericactuator.DelegateFactory.
func (d *delegates) WorkerDelegate(_ context.Context, w *extensionsv1alpha1.Worker, cluster *extensionscontroller.Cluster) (genericactuator.WorkerDelegate, error) {
	pools, err := d.actuator.poolsOf(w, extensioncluster.From(cluster))
	if err != nil {
		return nil, err
	}
	machines, err := machinesOf(w, pools)
	if err != nil {
		return nil, err
	}
	return &delegate{delegates: d, pools: pools, machines: machines}, nil
}

// delegate implements genericactuator.WorkerDelegate.
type delegate struct {
	*delegates
	pools    []pool
	machines []zoned
}

// GenerateMachineDeployments implements genericactuator.WorkerDelegate.
func (d *delegate) GenerateMachineDeployments(context.Context) (worker.MachineDeployments, error) {
	return wanted(d.machines), nil
}

// DeployMachineClasses implements genericactuator.WorkerDelegate.
func (d *delegate) DeployMachineClasses(ctx context.Context) error {
	return d.actuator.deployClasses(ctx, d.op, d.machines, nil, true)
}

// UpdateMachineImagesStatus implements genericactuator.WorkerDelegate.
func (d *delegate) UpdateMachineImagesStatus(context.Context) error {
	return recordImages(d.op.Object, inUse(d.pools))
}

// PreReconcileHook implements genericactuator.WorkerDelegate.
func (d *delegate) PreReconcileHook(context.Context) error { return nil }

// PostReconcileHook implements genericactuator.WorkerDelegate.
func (d *delegate) PostReconcileHook(context.Context) error { return nil }

// PreDeleteHook implements genericactuator.WorkerDelegate.
func (d *delegate) PreDeleteHook(context.Context) error { return nil }

// PostDeleteHook implements genericactuator.WorkerDelegate.
func (d *delegate) PostDeleteHook(context.Context) error { return nil }
