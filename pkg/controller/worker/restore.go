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
	// The library would wrap these errors.
	pools, err := a.poolsOf(w, op.Cluster)
	if err != nil {
		return err
	}
	machines, err := machinesOf(w, pools)
	if err != nil {
		return err
	}
	w.Status.State = live.Status.State
	return genericactuator.RestoreWithoutReconcile(ctx, op.Log, nil, a.client, factory{&delegate{actuator: a, op: op, machines: machines}}, w, op.Cluster.Decoded())
}

// factory implements genericactuator.DelegateFactory.
type factory struct{ delegate *delegate }

// WorkerDelegate implements genericactuator.DelegateFactory.
func (f factory) WorkerDelegate(context.Context, *extensionsv1alpha1.Worker, *extensionscontroller.Cluster) (genericactuator.WorkerDelegate, error) {
	return f.delegate, nil
}

// delegate implements what a restoration calls of genericactuator.WorkerDelegate.
type delegate struct {
	genericactuator.WorkerDelegate
	actuator *actuator
	op       *operation
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
