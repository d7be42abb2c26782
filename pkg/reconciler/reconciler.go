// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

const (
	// RetryConflict is when an object is looked at again that somebody has changed in the meantime. Each further conflict
	// doubles it, up to MaxRetryConflict.
	RetryConflict = 20 * time.Millisecond
	// MaxRetryConflict is the longest time until an object is looked at again after a conflict.
	MaxRetryConflict = 10 * time.Second
	// DefaultQuiet is how long an operation may wait until its object says what for: most ManagedResources are applied or
	// deleted before.
	DefaultQuiet = 10 * time.Second

	// finishedMax is how many objects are remembered that are gone.
	finishedMax = 1024
)

// Options are what a Reconciler needs.
type Options[T extensionsv1alpha1.Object] struct {
	Shared

	// Client is that of the manager. It is to read its own writes (instance.NewClient).
	Client client.Client
	// NewObject returns an empty object. Default: one of type T.
	NewObject func() T
	// Kind is the kind of the objects, for messages. Default: the name of the type of NewObject's object.
	Kind string
	// Types are those of the objects to reconcile. Default: local.
	Types []string
	// ExistsFor are the classes of which there are objects. Default: shoot.
	ExistsFor []extensionsv1alpha1.ExtensionClass
	// Finalizer is the finalizer of the objects.
	Finalizer string
	// WithoutClusters reconciles objects of class shoot without their Clusters: as a BackupEntry, which goes on when its shoot
	// has failed, and outlives it.
	WithoutClusters bool
	// Actuator does the work.
	Actuator Actuator[T]

	// Check looks at an object before anything is done for a reconcile or a restore, so that one with a mistake gets no
	// finalizer. Its error is one of the Actuator. It may be nil.
	Check func(ctx context.Context, op *Operation[T]) error
	// IsAmiss reports whether an object must be reconciled although nothing requests it and its last operation has succeeded,
	// when the program starts or a further watch of the controller has queued it. It may be nil: then only
	// Gardener determines when an object is reconciled. It is called by the predicate, too, without a deadline.
	IsAmiss func(ctx context.Context, obj T) bool
	// Describe returns what lastOperation says of an operation that has succeeded (err is nil) or failed. Default: as the
	// extension library.
	Describe func(op *Operation[T], err error) string
	// RepeatErrors has an error written anew, with its time, by each attempt that ends in it. By default it is written once,
	// as long as it is the same.
	RepeatErrors bool
	// Reported is called once the object says what has become of an attempt, with what the Actuator has returned. It may be nil.
	Reported func(op *Operation[T], err error)
	// Gone is called when an object of ours is gone. It may be nil.
	Gone func(key types.NamespacedName)
	// Wrap returns what the controller calls in place of r. It may be nil.
	Wrap func(r reconcile.Reconciler) reconcile.Reconciler
	// Clock tells the time. Default: the real one.
	Clock clock.PassiveClock
	// Quiet is how long an operation may wait until its object says what for (Waiting). Default: DefaultQuiet; with a negative
	// one it says so at once.
	Quiet time.Duration
}

// Reconciler reconciles the objects of one kind. Needed permissions: get, list, watch and patch on them, and patch on their
// status; get, list and watch on Clusters unless it is WithoutClusters.
type Reconciler[T extensionsv1alpha1.Object] struct {
	Options[T]
	// hasClasses is false if no class was given at all.
	hasClasses bool
	// finished has the UIDs of objects that are gone since the last finalizer was taken off here. A cache may have them for a
	// while, and by their names there may be objects of another instance already.
	finished *lru.Cache
	// written has what the operations that go on have written, by the UIDs of their objects.
	written *lru.Cache
	// conflicts counts how many attempts in a row have ended in a conflict, by object.
	conflicts workqueue.TypedRateLimiter[types.NamespacedName]
}

// New returns a Reconciler.
func New[T extensionsv1alpha1.Object](opts Options[T]) *Reconciler[T] {
	if opts.NewObject == nil {
		opts.NewObject = func() T { return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) }
	}
	if len(opts.Types) == 0 {
		opts.Types = []string{localv1alpha1.Type}
	}
	if opts.Kind == "" {
		opts.Kind = reflect.TypeOf(opts.NewObject()).Elem().Name()
	}
	if len(opts.ExistsFor) == 0 {
		opts.ExistsFor = []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot}
	}
	hasClasses := opts.Classes.String() != ""
	opts.Classes, _ = opts.Classes.Only(opts.ExistsFor...)
	if _, hasShoots := opts.Classes.Only(extensionsv1alpha1.ExtensionClassShoot); !hasShoots || opts.WithoutClusters {
		// In the garden runtime cluster there need not even be the CustomResourceDefinition of Clusters.
		opts.ShootClusters = nil
	} else if opts.ShootClusters == nil {
		opts.ShootClusters = NewClusters(opts.Client)
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Quiet == 0 {
		opts.Quiet = DefaultQuiet
	}
	if opts.Describe == nil {
		opts.Describe = describe[T](opts.Kind)
	}
	if opts.Reported == nil {
		opts.Reported = func(*Operation[T], error) {}
	}
	if opts.Gone == nil {
		opts.Gone = func(types.NamespacedName) {}
	}
	return &Reconciler[T]{
		Options: opts, hasClasses: hasClasses, finished: lru.New(finishedMax), written: lru.New(writtenMax),
		conflicts: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](RetryConflict, MaxRetryConflict),
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler[T]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	isConflict := false
	defer func() {
		if !isConflict {
			r.conflicts.Forget(request.NamespacedName)
		}
	}()

	obj := r.NewObject()
	if err := r.Client.Get(ctx, request.NamespacedName, obj); apierrors.IsNotFound(err) {
		r.Gone(request.NamespacedName)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading %s %s: %w", r.Kind, request.NamespacedName, err)
	}
	// What is in the queue is only a name: by now there may be another object under it, or nothing left to do.
	if r.isFinished(obj) || !r.isServed(obj) || !r.IsDue(obj) && !r.isWoken(ctx, obj) {
		return reconcile.Result{}, nil
	}

	cluster, failure := r.clusterOf(ctx, obj)
	if extensionscontroller.IsShootFailed(cluster.Shoot()) {
		return reconcile.Result{}, nil
	}
	op, err := r.newOperation(ctx, obj, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	var out outcome
	if failure == nil {
		out, err = r.operate(ctx, op)
	} else if err = r.takeUp(ctx, op, false); err == nil {
		out, err = r.conclude(ctx, op, failure)
	}
	switch {
	case apierrors.IsConflict(err):
		isConflict = true
		return reconcile.Result{RequeueAfter: r.conflicts.When(request.NamespacedName)}, nil
	case apierrors.IsNotFound(err):
		r.Gone(request.NamespacedName)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: out.retryAfter}, out.err
}

// isFinished reports whether an object that was read is gone by now.
func (r *Reconciler[T]) isFinished(obj T) bool {
	_, ok := r.finished.Get(obj.GetUID())
	return ok
}

// clusterOf returns the Cluster of an object's shoot; nil if there is none, or if the object has no shoot.
func (r *Reconciler[T]) clusterOf(ctx context.Context, obj T) (*extensioncluster.Cluster, error) {
	if r.ShootClusters == nil || obj.GetNamespace() == "" ||
		extensionsv1alpha1helper.GetExtensionClassOrDefault(obj.GetExtensionSpec().GetExtensionClass()) != extensionsv1alpha1.ExtensionClassShoot {
		return nil, nil
	}
	return r.ShootClusters.Get(ctx, obj.GetNamespace())
}

func (r *Reconciler[T]) newOperation(ctx context.Context, obj T, cluster *extensioncluster.Cluster) (*Operation[T], error) {
	before, err := statusOf(obj)
	if err != nil {
		return nil, err
	}
	last := v1beta1helper.ComputeOperationType(
		metav1.ObjectMeta{Annotations: obj.GetAnnotations(), DeletionTimestamp: obj.GetDeletionTimestamp()}, obj.GetExtensionStatus().GetLastOperation())
	op := &Operation[T]{
		Log:     logf.FromContext(ctx).WithValues("operation", last),
		Object:  obj,
		Cluster: cluster,
		Type:    last,
		Force:   cluster.NeedsForceDeletion() || obj.GetAnnotations()[v1beta1constants.AnnotationConfirmationForceDeletion] == "true",
		Asked:   operationAnnotation(obj) == v1beta1constants.GardenerOperationReconcile,
		before:  before,
		read:    stateOf(obj),
	}
	op.written = r.writtenBy(op)
	op.SaveStatus = func(ctx context.Context) error { return r.writeStatus(ctx, op, false) }
	return op, nil
}

// operate carries out an operation. The error is one of a write to the object itself.
func (r *Reconciler[T]) operate(ctx context.Context, op *Operation[T]) (outcome, error) {
	if extensionscontroller.ShouldSkipOperation(op.Type, op.Object) {
		// It waits for gardenlet to delete it, and must not be brought to life again.
		return outcome{}, r.writeMetadata(ctx, op, change{removeOperation: true})
	}

	switch op.Type {
	case gardencorev1beta1.LastOperationTypeDelete:
		if !controllerutil.ContainsFinalizer(op.Object, r.Finalizer) {
			return outcome{}, nil
		}
	case gardencorev1beta1.LastOperationTypeMigrate:
	default:
		var mistake error
		if r.Check != nil {
			mistake = r.Check(ctx, op)
		}
		if err := r.takeUp(ctx, op, mistake == nil); err != nil {
			return outcome{}, err
		}
		if mistake != nil {
			return r.conclude(ctx, op, mistake)
		}
	}

	return r.conclude(ctx, op, r.act(ctx, op))
}

// act has the Actuator do what the operation consists of.
func (r *Reconciler[T]) act(ctx context.Context, op *Operation[T]) error {
	switch {
	case op.Type == gardencorev1beta1.LastOperationTypeMigrate:
		return r.Actuator.Migrate(ctx, op)
	case op.Type == gardencorev1beta1.LastOperationTypeRestore:
		return r.Actuator.Restore(ctx, op)
	case op.Type != gardencorev1beta1.LastOperationTypeDelete:
		return r.Actuator.Reconcile(ctx, op)
	case op.Force:
		return r.Actuator.ForceDelete(ctx, op)
	}
	return r.Actuator.Delete(ctx, op)
}
