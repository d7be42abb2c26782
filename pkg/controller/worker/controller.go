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
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// DefaultGPUResourceName is the resource of which a machine gets as many as its machine type has GPUs, by default.
const DefaultGPUResourceName corev1.ResourceName = "nvidia.com/gpu"

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Sizing is how a machine type bounds machines unless the pool's providerConfig says otherwise. Default: Exact.
	Sizing localv1alpha1.MachineSizing
	// AllowedSizings are what the providerConfig of a pool may choose. Default: Exact, Overcommit and Sizing.
	AllowedSizings []localv1alpha1.MachineSizing
	// GPUResourceName is the resource for the GPUs of a machine type. Default: DefaultGPUResourceName.
	GPUResourceName corev1.ResourceName
	// BackupHostPath is the folder of the backup buckets as the seed's nodes see it, for pools that share it.
	BackupHostPath string
	// Clusters find the machine pods of a Worker that is deleted by force. If it is nil, they are looked for in the seed.
	Clusters cluster.Clusters
	// GardenReader reads the ShootState to restore from if it is not in the status of the Worker, where gardenlet puts it.
	// It may be nil.
	GardenReader client.Reader
	// Clock tells since when something is awaited. Default: the real one.
	Clock clock.Clock
}

func (o *Options) complete() error {
	if o.Sizing == "" {
		o.Sizing = localv1alpha1.MachineSizingExact
	}
	if err := localv1alpha1.ValidateMachineSizing(o.Sizing, nil).ToAggregate(); err != nil {
		return err
	}
	if len(o.AllowedSizings) == 0 {
		o.AllowedSizings = localv1alpha1.DefaultAllowedSizings(o.Sizing)
	}
	if o.GPUResourceName == "" {
		o.GPUResourceName = DefaultGPUResourceName
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return nil
}

// AddToManager adds the controller. It does nothing if the classes do not include shoot. It is an error if there are no
// classes, or if the sizing is none that there is.
//
// The client of the manager is to cache the kinds of machine.sapcloud.io, and neither Secrets nor Deployments.
//
// Needed permissions, beyond those of reconciler.Reconciler: get, list, watch, create, patch and
// delete on machinedeployments, machinesets, machines and machineclasses of machine.sapcloud.io; get, list, create, patch
// and delete on secrets; list and delete on pods, list and delete on services; get on deployments and patch on
// deployments/scale named machine-controller-manager.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := opts.complete(); err != nil {
		return err
	}
	r := newReconciler(mgr, opts)
	return r.AddToManager(mgr, worker.ControllerName, func(b *builder.Builder) {
		watchAwaited(b, mgr.GetClient(), r.Classes)
		// Machines that are updated in place by hand, as the library has it. The library looks at MachineDeployments with this
		// context, in the manager's cache. Nothing is under way when it would end.
		updated := worker.MachineConditionChangedPredicate(context.Background(), mgr.GetLogger().WithValues("controller", worker.ControllerName), mgr.GetClient())
		ours := r.Classes.Predicates(nil, localv1alpha1.Type)
		b.Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(worker.MachineToWorkerMapper(mgr.GetClient(), ours)), builder.WithPredicates(updated))
	})
}

func newReconciler(mgr manager.Manager, opts Options) *reconciler.Reconciler[*extensionsv1alpha1.Worker] {
	if opts.ShootClusters == nil {
		opts.ShootClusters = reconciler.NewClusters(mgr.GetClient())
	}
	actuator := &actuator{Options: opts, client: mgr.GetClient(), reader: mgr.GetAPIReader(), shoots: opts.ShootClusters}
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.Worker]{
		Shared:    opts.Shared,
		Client:    mgr.GetClient(),
		Types:     []string{localv1alpha1.Type},
		Finalizer: worker.FinalizerName,
		Actuator:  actuator,
		IsAmiss:   actuator.isUpdating,
		Clock:     opts.Clock,
	})
}
