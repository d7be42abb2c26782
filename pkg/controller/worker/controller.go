// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Sizing is how a machine type bounds machines unless the pool's providerConfig says otherwise.
	Sizing localv1alpha1.MachineSizing
	// AllowedSizings are what the providerConfig of a pool may choose.
	AllowedSizings []localv1alpha1.MachineSizing
	// GPUResourceName is the resource for the GPUs of a machine type.
	GPUResourceName corev1.ResourceName
	// BackupHostPath is the folder of the backup buckets as the seed's nodes see it, for pools that share it.
	BackupHostPath string
	// Clusters find the machine pods of a Worker that is deleted by force. If it is nil, they are looked for in the seed.
	Clusters cluster.Clusters
	// Clock tells since when something is awaited. Default: the real one.
	Clock clock.Clock
}

// AddToManager adds the controller. It does nothing if the classes do not include shoot. It is an error if there are no classes.
//
// The client of the manager is to cache the kinds of machine.sapcloud.io, and neither Secrets nor Deployments.
//
// Needed permissions, beyond those of reconciler.Reconciler: get, list, watch, create, patch, delete and deletecollection on
// machinedeployments, machinesets, machines and machineclasses of machine.sapcloud.io; get, list, create, patch, delete and
// deletecollection on secrets; list and delete on pods, list and delete on services; get on deployments and patch on
// deployments/scale named machine-controller-manager.
func AddToManager(mgr manager.Manager, opts Options) error {
	r := newReconciler(mgr, opts)
	return r.AddToManager(mgr, worker.ControllerName, func(b *builder.Builder) {
		// What Workers wait for.
		for _, kind := range []client.Object{
			&machinev1alpha1.MachineDeployment{}, &machinev1alpha1.MachineSet{}, &machinev1alpha1.Machine{}, &machinev1alpha1.MachineClass{},
		} {
			b.Watches(kind, handler.EnqueueRequestsFromMapFunc(r.UnderWay), builder.WithPredicates(awaited()))
		}
		// Machines that are updated in place by hand, as the library has it. The library looks at MachineDeployments with this
		// context, in the manager's cache. Nothing is under way when it would end.
		updated := worker.MachineConditionChangedPredicate(context.Background(), mgr.GetLogger().WithValues("controller", worker.ControllerName), mgr.GetClient())
		ours := r.Classes.Predicates(nil, localv1alpha1.Type)
		b.Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(worker.MachineToWorkerMapper(mgr.GetClient(), ours)), builder.WithPredicates(updated))
	})
}

func newReconciler(mgr manager.Manager, opts Options) *reconciler.Reconciler[*extensionsv1alpha1.Worker] {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	actuator := &actuator{Options: opts, client: mgr.GetClient(), reader: mgr.GetAPIReader()}
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.Worker]{
		Shared:    opts.Shared,
		Client:    mgr.GetClient(),
		Finalizer: worker.FinalizerName,
		Actuator:  actuator,
		IsAmiss:   actuator.isUpdating,
		Clock:     opts.Clock,
	})
}

// awaited lets through what may be the end of a wait: an object that is gone, a MachineSet that is new, and a change of
// what aspect returns. That all others are new is seen at the start of a program only, where all Workers that are under
// way are reconciled anyway.
func awaited() predicate.Predicate {
	changed := reconciler.Changed(aspect)
	changed.CreateFunc = func(e event.CreateEvent) bool {
		_, isSet := e.Object.(*machinev1alpha1.MachineSet)
		return isSet
	}
	return changed
}

// aspect is what the checks look at, see availability.go and delete.go.
func aspect(obj client.Object) any {
	switch o := obj.(type) {
	case *machinev1alpha1.MachineDeployment:
		status := o.Status.DeepCopy()
		for i := range status.Conditions {
			// The times of conditions change without end.
			c := status.Conditions[i]
			status.Conditions[i] = machinev1alpha1.MachineDeploymentCondition{Type: c.Type, Status: c.Status, Message: c.Message}
		}
		return *status
	case *machinev1alpha1.MachineSet:
		return []any{o.Spec.Template.Spec.Class.Name, o.Status.Replicas}
	case *machinev1alpha1.Machine:
		reason := ""
		for _, condition := range o.Status.Conditions {
			if condition.Type == machinev1alpha1.NodeInPlaceUpdate {
				reason = condition.Reason
			}
		}
		failure := ""
		if o.DeletionTimestamp != nil && o.Status.LastOperation.State == machinev1alpha1.MachineStateFailed {
			failure = o.Status.LastOperation.Description
		}
		return []string{reason, failure}
	default:
		return nil
	}
}
