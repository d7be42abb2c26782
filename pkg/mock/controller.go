// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// Type is the type of the objects that are served.
	Type = "mock"
	// TypeOS is a further type of OperatingSystemConfigs: the name of an operating system.
	TypeOS = "mockos"
	// FinalizerName is the finalizer of the objects of all kinds.
	FinalizerName = "extensions.gardener.cloud/mock"
)

// Options are what the controllers need.
type Options struct {
	// Shared has the classes of the objects to serve. With class garden alone there are controllers only for the kinds of which a
	// Garden has objects.
	reconciler.Shared

	// Config says which operations take time and which fail. Its Enabled does not matter here.
	Config configv1alpha1.MockConfiguration
	// HostPath is the folder of all buckets as the nodes see it, which BackupEntries tell etcd-druid.
	HostPath string
	// Nodes creates the fake Nodes of shoots. Without it, Workers only report their MachineDeployments.
	Nodes Nodes
}

// AddToManager adds a controller for each kind. The client of the manager must read its own writes (instance.NewClient).
//
// Needed permissions: get, list, watch and patch on the extension objects of all kinds, patch on their status; update on the
// finalizers of OperatingSystemConfigs where OwnerReferencesPermissionEnforcement is on; get, create, patch and delete on
// Secrets, with class garden only in the namespace garden; with class shoot get, list and watch on Clusters.
func AddToManager(mgr manager.Manager, opts Options) error {
	for _, kind := range kinds() {
		if err := newReconciler(mgr.GetClient(), opts, kind).AddToManager(mgr, "mock-"+strings.ToLower(kind.name())); err != nil {
			return fmt.Errorf("adding the mock controller for %ss: %w", kind.name(), err)
		}
	}
	return nil
}

// kind is a kind of extension objects, and how it differs from others.
type kind struct {
	// types are further types that are served.
	types []string
	// inGarden reports whether there are objects of class garden. The garden runtime cluster does not know other kinds.
	inGarden bool
	// object is an empty object.
	object extensionsv1alpha1.Object
	// apply is for reconcile and restore. Its changes of the object's status are written afterwards.
	apply step
	// remove is for both kinds of deletion.
	remove step
	// migrate usually has nothing to do: objects in the seed go with the namespace, and those in the shoot move along with it.
	migrate step
}

// step does the work of an operation. Its error is put on the object: one of reconciler.Waiting as the progress of the operation,
// any other as its failure.
type step func(ctx context.Context, r *kindReconciler, o *operation) error

// kinds returns all kinds of extension objects.
func kinds() []kind {
	return []kind{
		{object: &extensionsv1alpha1.BackupBucket{}, inGarden: true},
		{object: &extensionsv1alpha1.BackupEntry{}, inGarden: true, apply: on(applyBackupEntry), remove: on(removeBackupEntry)},
		{object: &extensionsv1alpha1.Bastion{}, apply: on(applyBastion)},
		{object: &extensionsv1alpha1.ContainerRuntime{}},
		{object: &extensionsv1alpha1.ControlPlane{}},
		{object: &extensionsv1alpha1.DNSRecord{}, inGarden: true, apply: on(applyDNSRecord)},
		{object: &extensionsv1alpha1.Extension{}, inGarden: true},
		{object: &extensionsv1alpha1.Infrastructure{}, apply: on(applyInfrastructure)},
		{object: &extensionsv1alpha1.Network{}, apply: on(applyNetwork)},
		{object: &extensionsv1alpha1.OperatingSystemConfig{}, types: []string{TypeOS}, apply: on(applyOperatingSystemConfig)},
		{object: &extensionsv1alpha1.SelfHostedShootExposure{}, apply: on(applyExposure)},
		{object: &extensionsv1alpha1.Worker{}, apply: on(applyWorker), remove: on(removeWorker), migrate: on(migrateWorker)},
	}
}

// name returns the name of the kind, which is that of its type.
func (k kind) name() string { return reflect.TypeOf(k.object).Elem().Name() }

func (k kind) newObject() extensionsv1alpha1.Object {
	return k.object.DeepCopyObject().(extensionsv1alpha1.Object)
}

// on turns a function for one kind into a step.
func on[T extensionsv1alpha1.Object](do func(context.Context, *kindReconciler, *operation, T) error) step {
	return func(ctx context.Context, r *kindReconciler, o *operation) error { return do(ctx, r, o, o.Object.(T)) }
}

// operation is an attempt at an operation on an object of any kind.
type operation = reconciler.Operation[extensionsv1alpha1.Object]

// kindReconciler serves the objects of one kind.
type kindReconciler struct {
	*reconciler.Reconciler[extensionsv1alpha1.Object]
	kind
	opts       Options
	behaviours *behaviours
}

func newReconciler(c client.Client, opts Options, kind kind) *kindReconciler {
	r := &kindReconciler{kind: kind, opts: opts, behaviours: newBehaviours(kind.name(), opts.Config)}
	existsFor := []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot}
	if kind.inGarden {
		existsFor = class.All()
	}
	options := reconciler.Options[extensionsv1alpha1.Object]{
		Shared:    opts.Shared,
		Client:    c,
		NewObject: kind.newObject,
		Types:     append([]string{Type}, kind.types...),
		ExistsFor: existsFor,
		Finalizer: FinalizerName,
		Actuator:  actuator{r},
		Describe: func(o *operation, err error) string {
			if err != nil {
				return err.Error()
			}
			return string(nameOf(o)) + " succeeded, without any infrastructure"
		},
		Reported: r.reported,
		Gone:     r.behaviours.forget,
		Quiet:    -1, // An operation waits only because it is configured to.
	}
	if kind.name() == extensionsv1alpha1.WorkerResource {
		options.IsAmiss, options.Wrap = r.isForgotten, r.remember
	}
	r.Reconciler = reconciler.New(options)
	return r
}

// actuator implements reconciler.Actuator.
type actuator struct{ *kindReconciler }

// Reconcile implements reconciler.Actuator.
func (a actuator) Reconcile(ctx context.Context, o *operation) error {
	return a.operate(ctx, o, a.apply)
}

// Migrate implements reconciler.Actuator.
func (a actuator) Migrate(ctx context.Context, o *operation) error {
	return a.operate(ctx, o, a.migrate)
}

// Delete implements reconciler.Actuator.
func (a actuator) Delete(ctx context.Context, o *operation) error { return a.operate(ctx, o, a.remove) }

// ForceDelete implements reconciler.Actuator.
func (a actuator) ForceDelete(ctx context.Context, o *operation) error {
	return a.operate(ctx, o, a.remove)
}

// nameOf returns the name of an operation in behaviours. Retries of a creation are part of the creation.
func nameOf(o *operation) configv1alpha1.MockOperation {
	if o.Type == gardencorev1beta1.LastOperationTypeDelete && o.Force {
		return configv1alpha1.MockOperationForceDelete
	}
	return configv1alpha1.MockOperation(o.Type)
}

// operate waits, fails, or does the work of an operation, as the behaviours decide.
func (r *kindReconciler) operate(ctx context.Context, o *operation, do step) error {
	p := r.behaviours.plan(client.ObjectKeyFromObject(o.Object), nameOf(o))
	if err := r.wait(o, p); err != nil {
		return err
	}
	err := p.failure
	if err == nil && do != nil {
		err = do(ctx, r, o)
	}
	if err == nil || reconciler.IsWaiting(err) {
		return err
	}
	return &reconcilerutils.RequeueAfterError{Cause: err, RequeueAfter: p.retryAfter}
}

// wait returns an error with the time until an attempt may go on, if it has to wait: because it takes time, or because the last
// one failed. No worker is blocked meanwhile, and the status tells the next instance of the program, too.
func (r *kindReconciler) wait(o *operation, p plan) error {
	if last := o.Object.GetExtensionStatus().GetLastOperation(); last != nil && last.Type == o.Type {
		isUnderWay, wait := last.State == gardencorev1beta1.LastOperationStateProcessing, p.retryAfter
		if isUnderWay {
			wait = p.delay
		}
		due := r.behaviours.known(client.ObjectKeyFromObject(o.Object), nameOf(o)).due
		if due.IsZero() { // The program has started since.
			due = last.LastUpdateTime.Add(wait)
		}
		switch left := due.Sub(r.Clock.Now()); {
		case left > 0 && (isUnderWay || last.State == gardencorev1beta1.LastOperationStateError && !o.Asked):
			return reconciler.Later(left)
		case isUnderWay:
			return nil
		}
	}
	if p.delay == 0 {
		return nil
	}
	return reconciler.Waiting(fmt.Errorf("%s takes %s by the configuration of the mock provider", nameOf(o), p.delay.Round(time.Millisecond)), p.delay)
}

// reported remembers the result of an attempt.
func (r *kindReconciler) reported(o *operation, err error) {
	var (
		key   = client.ObjectKeyFromObject(o.Object)
		later *reconcilerutils.RequeueAfterError
	)
	switch {
	case err == nil && o.Type == gardencorev1beta1.LastOperationTypeDelete:
		r.behaviours.forget(key)
	case err == nil:
		r.behaviours.ended(key, nameOf(o), false)
	case errors.As(err, &later):
		if !reconciler.IsWaiting(err) {
			r.behaviours.ended(key, nameOf(o), true)
		}
		known := r.behaviours.known(key, nameOf(o))
		known.due = r.Clock.Now().Add(later.RequeueAfter)
		r.behaviours.objects.Store(key, known)
	}
}
