// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package reconciler has the one reconciler for extension objects, which the controllers of type local and the mock provider
// share. It takes the place of those of the extension library (extensions/pkg/controller/KIND), and keeps their contract with
// Gardener: the annotation gardener.cloud/operation, the finalizer, lastOperation, lastError with codes and
// observedGeneration, migration and restoration, forced deletion, and that it leaves objects of failed shoots, of other types
// and of other classes alone.
//
// The reason is what the library spends on an object: two writes for finalizer and annotation, two or more for the status, and
// two of a status that nobody reads when an object goes. Here a creation is two writes (finalizer and annotation; status), a
// reconcile is two (annotation; status), and a deletion is one (finalizer), besides what the actuator sends. Processing is said
// only by an operation that waits for longer than Options.Quiet, and at the start of a reconcile whose result could not be told
// from the last one: in the same second, or if it was asked for without gardener.cloud/timestamp.
//
// What is done for a kind is an Actuator. It changes the status of Operation.Object as it likes; all of that is written in the
// end, together with lastOperation. How an operation goes on is what the Actuator returns:
//   - nil: it has succeeded.
//   - Waiting(cause, retryAfter): nothing is wrong, something is just not there yet. lastOperation is Processing and tells the
//     cause. A watch is to wake the object; retryAfter is for when it does not. No worker is held meanwhile.
//   - a RequeueAfterError of Gardener (pkg/controllerutils/reconciler), with a cause that may have codes: lastOperation is
//     Error, lastError the cause, and it is tried again after that time: what only a user can put right is not retried hot.
//   - any other error: the same, and it is tried again with the back-off of the queue.
//   - Later(retryAfter): nothing was done, and the status stays as it is.
//
// What is said already is not written again. Events that come from these writes are dropped by the predicate, so an object is
// reconciled once for each request of Gardener.
//
// Objects are written by Operation.Apply (server-side apply), Create, Delete and DeleteAll. They remember what the operation has
// written, so that an attempt which a watch has woken sends nothing again, and so that an Actuator reads as a list of the objects
// that are to be there. Ensure is for objects that have to be looked at first, as they may be somebody else's.
//
// What several kinds need besides is here, too: errors that tell a user what to put right, Credentials (Secrets that are held as
// long as an object refers to them) and ManagedResources (what wakes the objects that wait for one).
//
// A kind that has more to say before it goes on, such as what it is about to write elsewhere, calls Operation.SaveStatus.
//
//	type actuator struct{ client client.Client }
//
//	func (a *actuator) Reconcile(ctx context.Context, op *reconciler.Operation[*extensionsv1alpha1.Network]) error {
//		if op.Cluster.Shoot() == nil {
//			return reconciler.Waiting(errors.New("there is no Cluster yet"), time.Minute)
//		}
//		op.Object.Status.IPFamilies = op.Object.Spec.IPFamilies // written in the end
//		return nil
//	}
//	// ... Migrate, Delete and ForceDelete
//
//	func AddToManager(mgr manager.Manager, shared reconciler.Shared) error {
//		return reconciler.New(reconciler.Options[*extensionsv1alpha1.Network]{
//			Shared: shared, Client: mgr.GetClient(), Types: []string{"local"}, Finalizer: network.FinalizerName,
//			Actuator: &actuator{client: mgr.GetClient()},
//		}).AddToManager(mgr, network.ControllerName)
//	}
package reconciler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
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

	// askTimeout bounds an attempt of an Actuator that AsksUsers.
	askTimeout = 20 * time.Second
	// finishedMax is how many objects are remembered that are gone, and as many that are late.
	finishedMax = 1024
)

// Options are what a Reconciler needs.
type Options[T extensionsv1alpha1.Object] struct {
	Shared

	// Client is that of the manager. It is to read its own writes (instance.NewClient).
	Client client.Client
	// NewObject returns an empty object. Default: one of type T.
	NewObject func() T
	// Types are those of the objects to reconcile. Default: local.
	Types []string
	// ExistsFor are the classes of which there are objects. Default: shoot.
	ExistsFor []extensionsv1alpha1.ExtensionClass
	// Finalizer is the finalizer of the objects.
	Finalizer string
	// WithoutClusters reconciles objects of class shoot without their Clusters: as a BackupEntry, which goes on when its shoot
	// has failed, and outlives it.
	WithoutClusters bool
	// AsksUsers says that the Actuator asks API servers that users have named. So that slow ones leave room for the objects of others, an
	// attempt ends after 20 seconds, and the pauses between attempts grow with the time since this process began the operation.
	AsksUsers bool
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
	// kind is the kind of the objects, for messages.
	kind string
	// hasClasses is false if no class was given at all.
	hasClasses bool
	// finished has the UIDs of objects that are gone since the last finalizer was taken off here. A cache may have them for a
	// while, and by their names there may be objects of another instance already.
	finished *lru.Cache
	// late has the UIDs of objects that were changed for a reconcile which no annotation asks for (isLate).
	late *lru.Cache
	// written has what the operations that go on have written, by the UIDs of their objects.
	written *lru.Cache
	// credentials are nil if the kind refers to none.
	credentials *Credentials
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
	kind := reflect.TypeOf(opts.NewObject()).Elem().Name()
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
	opts.Working = cmp.Or(opts.Working, new(sync.RWMutex))
	opts.Clock = cmp.Or[clock.PassiveClock](opts.Clock, clock.RealClock{})
	opts.Quiet = cmp.Or(opts.Quiet, DefaultQuiet)
	if opts.Describe == nil {
		opts.Describe = describe[T](kind)
	}
	if opts.Reported == nil {
		opts.Reported = func(*Operation[T], error) {}
	}
	if opts.Gone == nil {
		opts.Gone = func(types.NamespacedName) {}
	}
	return &Reconciler[T]{
		Options: opts, kind: kind, hasClasses: hasClasses, finished: lru.New(finishedMax), late: lru.New(finishedMax), written: lru.New(writtenMax),
		conflicts: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](RetryConflict, MaxRetryConflict),
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler[T]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if !r.Working.TryRLock() {
		return reconcile.Result{}, nil // The program ends. What is queued is left to the next leader.
	}
	defer r.Working.RUnlock()
	isConflict := false
	defer func() {
		if !isConflict {
			r.conflicts.Forget(request.NamespacedName)
		}
	}()

	obj := r.NewObject()
	if err := r.Client.Get(ctx, request.NamespacedName, obj); apierrors.IsNotFound(err) {
		r.Gone(request.NamespacedName)
		if r.credentials == nil {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, r.credentials.forget(ctx, request.Name)
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading %s %s: %w", r.kind, request.NamespacedName, err)
	}
	// What is in the queue is only a name: by now there may be another object under it, or nothing left to do.
	if _, isGone := r.finished.Get(obj.GetUID()); isGone || !r.isServed(obj) || !r.IsDue(obj) && !r.isWoken(ctx, obj) {
		return reconcile.Result{}, nil
	}

	cluster, failure := r.clusterOf(ctx, obj)
	// As in the extension library, these two are reconciled all the same: gardenlet goes on with them, too.
	goesOn := r.kind == extensionsv1alpha1.BastionResource || r.kind == extensionsv1alpha1.SelfHostedShootExposureResource
	if !goesOn && extensionscontroller.IsShootFailed(cluster.Shoot()) {
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

// clusterOf returns the Cluster of an object's shoot; nil if there is none, or if the object has no shoot.
func (r *Reconciler[T]) clusterOf(ctx context.Context, obj T) (*extensioncluster.Cluster, error) {
	if r.ShootClusters == nil || obj.GetNamespace() == "" || !IsOfShoot(obj) {
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
	if r.AsksUsers {
		bounded, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		ctx = bounded
	}
	switch {
	case op.Type == gardencorev1beta1.LastOperationTypeMigrate:
		return r.Actuator.Migrate(ctx, op)
	case op.Type != gardencorev1beta1.LastOperationTypeDelete:
		return r.Actuator.Reconcile(ctx, op)
	case op.Force:
		return r.Actuator.ForceDelete(ctx, op)
	}
	return r.Actuator.Delete(ctx, op)
}

// Actuator does what there is to do for the objects of one kind. The package comment says what its errors mean. All methods
// have to go on where an earlier attempt was stopped, and to be fine with what that has done.
type Actuator[T extensionsv1alpha1.Object] interface {
	// Reconcile is called for a creation, for every reconciliation, and in the destination seed of a control plane migration for the
	// restoration, which op.Type tells. The object has its finalizer.
	Reconcile(ctx context.Context, op *Operation[T]) error
	// Migrate is called in the source seed. The object is deleted after it, without Delete being called.
	Migrate(ctx context.Context, op *Operation[T]) error
	// Delete is called for an object that has the finalizer.
	Delete(ctx context.Context, op *Operation[T]) error
	// ForceDelete is called in place of Delete if a user does not care for what is left behind.
	ForceDelete(ctx context.Context, op *Operation[T]) error
}

// Operation is one attempt at an operation on an object.
type Operation[T extensionsv1alpha1.Object] struct {
	// Log has the name of the operation.
	Log logr.Logger
	// Object is as it was read. Changes of its status are written in the end.
	Object T
	// Cluster is that of the object's shoot; nil if there is none, if the object is not of class shoot, or if the kind is
	// reconciled without (Options.WithoutClusters).
	Cluster *extensioncluster.Cluster
	// Type is the type for lastOperation.
	Type gardencorev1beta1.LastOperationType
	// Force tells that a user has forced the deletion, of the shoot or of this object.
	Force bool
	// Asked tells that Gardener asks for a reconcile by annotation, so this is its first attempt. While an object is migrated
	// or restored the annotation stays until that has succeeded, so there it says nothing.
	Asked bool

	// SaveStatus writes the changes of the status so far, if there are any, before the operation has ended. lastOperation is
	// left as it is.
	SaveStatus func(ctx context.Context) error

	// before is the status as it is in the API server.
	before []byte
	// written is what this operation has written so far.
	written *written
	// read is what determines whether something else is asked for meanwhile.
	read state
}

// state is what an object asks for.
type state struct {
	operation, timestamp string
	generation           int64
}

func stateOf(obj extensionsv1alpha1.Object) state {
	annotations := obj.GetAnnotations()
	return state{
		operation:  annotations[v1beta1constants.GardenerOperation],
		timestamp:  annotations[v1beta1constants.GardenerTimestamp],
		generation: obj.GetGeneration(),
	}
}

// isOfMigration tells an operation of a control plane migration, whose annotation stays until it has succeeded.
func (o *Operation[T]) isOfMigration() bool {
	return o.Type == gardencorev1beta1.LastOperationTypeMigrate || o.Type == gardencorev1beta1.LastOperationTypeRestore
}

// Shared has the options that all controllers for extension objects have in common.
type Shared struct {
	// Controller are the options of the controller, such as its concurrency.
	Controller controller.Options
	// Classes are the classes that the instance serves.
	Classes class.Set
	// ShootClusters decodes the Clusters of objects of class shoot. The controllers of an instance share one. Default: one of
	// its own.
	ShootClusters *Clusters
	// IgnoreOperationAnnotation reconciles every change of a spec and every event of another watch, without a request by
	// annotation.
	IgnoreOperationAnnotation bool
	// Working is locked for reading during each reconcile. Whoever ends the program locks it for writing first: that waits for those
	// that have begun, and no other begins. Default: one that nobody locks.
	Working *sync.RWMutex
}

// Watch adds a watch to a controller.
type Watch func(*builder.Builder)

// AddToManager adds a controller of that name to the manager, unless the kind exists for none of the served classes. It is an
// error to serve no class at all. The watches queue objects for other reasons than their own events.
func (r *Reconciler[T]) AddToManager(mgr manager.Manager, name string, watches ...Watch) error {
	switch {
	case !r.hasClasses:
		return errors.New("no extension class given, name at least one")
	case r.Classes.String() == "":
		return nil
	}
	if r.credentials != nil {
		if err := mgr.Add(r.credentials); err != nil {
			return err
		}
	}
	r.Controller.ReconciliationTimeout = cmp.Or(r.Controller.ReconciliationTimeout, controllerutils.DefaultReconciliationTimeout)
	b := builder.ControllerManagedBy(mgr).
		Named(name).
		WithOptions(r.Controller).
		Watches(r.NewObject(), &handler.EnqueueRequestForObject{}, builder.WithPredicates(r.Predicates()...))
	if r.ShootClusters != nil {
		b.Watches(&extensionsv1alpha1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.OfCluster), builder.WithPredicates(r.clusterPredicate()))
	}
	for _, watch := range watches {
		watch(b)
	}
	run := reconcile.Reconciler(r)
	if r.Wrap != nil {
		run = r.Wrap(r)
	}
	return b.Complete(run)
}
