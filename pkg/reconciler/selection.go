// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
)

// isServed reports whether an object is one of ours.
func (r *Reconciler[T]) isServed(obj T) bool {
	return slices.Contains(r.Types, obj.GetExtensionSpec().GetExtensionType()) && r.Classes.Has(obj)
}

// IsDue reports whether something is to be done for an object of ours: an operation is asked for, or one has not succeeded
// yet. It is false after the Reconciler's own last write.
func (r *Reconciler[T]) IsDue(obj T) bool {
	switch {
	case isAskedFor(obj):
		return true
	case obj.GetDeletionTimestamp() != nil:
		return controllerutil.ContainsFinalizer(obj, r.Finalizer) && !extensionscontroller.IsMigrated(obj)
	case isAtRest(obj):
		return false
	case IsUnanswered(obj):
		return true
	}
	return r.IgnoreOperationAnnotation && obj.GetGeneration() != obj.GetExtensionStatus().GetObservedGeneration()
}

// IsUnanswered reports whether the last operation of an object without an operation annotation has not succeeded yet, or is older
// than Gardener's last request.
func IsUnanswered(obj extensionsv1alpha1.Object) bool {
	last := obj.GetExtensionStatus().GetLastOperation()
	return last == nil || last.State != gardencorev1beta1.LastOperationStateSucceeded || last.LastUpdateTime.Time.Before(Requested(obj))
}

// isWoken tells of an object that is not due whether it is to be reconciled nevertheless, as it is in the queue.
func (r *Reconciler[T]) isWoken(ctx context.Context, obj T) bool {
	if obj.GetDeletionTimestamp() != nil || isAtRest(obj) {
		return false
	}
	if _, isLate := r.late.Get(obj.GetUID()); isLate && obj.GetGeneration() != obj.GetExtensionStatus().GetObservedGeneration() {
		return true
	}
	return r.IgnoreOperationAnnotation || r.IsAmiss != nil && r.IsAmiss(ctx, obj)
}

// IsLeaving reports whether an object leaves this seed or has left it. The annotation is there before the status.
func IsLeaving(obj extensionsv1alpha1.Object) bool {
	last := obj.GetExtensionStatus().GetLastOperation()
	return operationAnnotation(obj) == v1beta1constants.GardenerOperationMigrate ||
		last != nil && last.Type == gardencorev1beta1.LastOperationTypeMigrate
}

// isAtRest reports whether an object is part of a control plane migration and has no request.
func isAtRest(obj extensionsv1alpha1.Object) bool {
	return operationAnnotation(obj) == v1beta1constants.GardenerOperationWaitForState || extensionscontroller.IsMigrated(obj)
}

// Predicates are for the watch on the objects. They look at nothing but the object, but for IsAmiss, as they see every event
// of all objects of the kind. The Observer of the classes is told of those of other classes.
func (r *Reconciler[T]) Predicates() []predicate.Predicate {
	return r.Classes.Predicates([]predicate.Predicate{predicate.Funcs{
		// All objects when the program starts. One of a shoot that has failed is dropped by Reconcile.
		CreateFunc: func(e event.CreateEvent) bool {
			obj := e.Object.(T)
			isRunning := obj.GetDeletionTimestamp() == nil && !isAtRest(obj)
			return r.IsDue(obj) || isRunning && r.IsAmiss != nil && r.IsAmiss(context.Background(), obj)
		},
		// An attempt that has failed is followed by another one in due time, not because of what is written about it.
		UpdateFunc: func(e event.UpdateEvent) bool {
			obj := e.ObjectNew.(T)
			if r.isLate(e.ObjectOld, obj) {
				r.late.Add(obj.GetUID(), nil)
				return true
			}
			asks := isAskedFor(obj) || obj.GetDeletionTimestamp() != nil || r.IgnoreOperationAnnotation && e.ObjectOld.GetGeneration() != obj.GetGeneration()
			return asks && r.IsDue(obj) && !isOwnWrite(e.ObjectOld, obj)
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			r.Gone(client.ObjectKeyFromObject(e.Object))
			return r.credentials != nil
		},
	}}, r.Types...)
}

// isLate tells of a request without the annotation: gardenadm creates an OperatingSystemConfig, and patches it at once. The patch has a
// new spec and timestamp, but no annotation if what was created had it, which has been answered by then.
func (r *Reconciler[T]) isLate(old, obj client.Object) bool {
	timestamp := func(obj client.Object) string { return obj.GetAnnotations()[v1beta1constants.GardenerTimestamp] }
	return operationAnnotation(obj) == "" && old.GetGeneration() != obj.GetGeneration() && timestamp(old) != timestamp(obj)
}

// clusterPredicate is for the watch on Clusters. Objects of a Shoot in state Failed are left alone, so they are queued once it is
// repaired, or gone.
func (r *Reconciler[T]) clusterPredicate() predicate.Predicate {
	if r.IgnoreOperationAnnotation {
		return predicate.Funcs{}
	}
	return predicate.Funcs{
		// Objects have events of their own when the program starts.
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool { return isOfFailedShoot(e.ObjectOld) && !isOfFailedShoot(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return isOfFailedShoot(e.Object) },
	}
}

// OfCluster is for a watch on Clusters: it returns the objects of ours in the namespace of a Cluster.
func (r *Reconciler[T]) OfCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	return r.inNamespace(ctx, cluster.GetName(), func(T) bool { return true })
}

// UnderWay is for a watch on what objects of ours wait for: it returns those in the namespace of obj of which an operation is under
// way.
func (r *Reconciler[T]) UnderWay(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.inNamespace(ctx, obj.GetNamespace(), func(obj T) bool { return isUnderWay(obj) })
}

func (r *Reconciler[T]) inNamespace(ctx context.Context, namespace string, wanted func(T) bool) (out []reconcile.Request) {
	// From a cache this does not fail but at the end of the program.
	objs, _ := r.list(ctx, client.InNamespace(namespace))
	for _, obj := range objs {
		// A cache lists all objects of a kind that has no namespaces.
		if obj.GetNamespace() == namespace && wanted(obj) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
		}
	}
	return out
}

// list returns the objects of ours.
func (r *Reconciler[T]) list(ctx context.Context, opts ...client.ListOption) (out []T, err error) {
	list, err := r.Client.Scheme().New(extensionsv1alpha1.SchemeGroupVersion.WithKind(r.kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("listing %ss: %w", r.kind, err)
	}
	if err := r.Client.List(ctx, list.(client.ObjectList), opts...); err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if obj, ok := item.(T); ok && r.isServed(obj) {
			out = append(out, obj)
		}
		return nil
	})
	return out, err
}

// isUnderWay reports whether an operation is asked for or has begun, but has not succeeded yet. The status alone would not
// do: the cache from which obj comes may not have seen the last write of it.
func isUnderWay(obj extensionsv1alpha1.Object) bool {
	return obj.GetDeletionTimestamp() != nil || IsUnanswered(obj) || operationAnnotation(obj) != ""
}

// isOwnWrite reports whether an update is one that a Reconciler makes while an operation goes on: it changes nothing but the
// status or the finalizers. While Gardener's annotation is there, or an object is being deleted, each of these would be
// followed by another attempt.
func isOwnWrite(before client.Object, after extensionsv1alpha1.Object) bool {
	old := before.(extensionsv1alpha1.Object)
	return old.GetGeneration() == after.GetGeneration() &&
		old.GetDeletionTimestamp().Equal(after.GetDeletionTimestamp()) &&
		maps.Equal(old.GetAnnotations(), after.GetAnnotations()) &&
		(!slices.Equal(old.GetFinalizers(), after.GetFinalizers()) ||
			!apiequality.Semantic.DeepEqual(old.GetExtensionStatus(), after.GetExtensionStatus()))
}

func operationAnnotation(obj client.Object) string {
	return obj.GetAnnotations()[v1beta1constants.GardenerOperation]
}

// isAskedFor reports whether Gardener asks for an operation.
func isAskedFor(obj client.Object) bool {
	switch operationAnnotation(obj) {
	case v1beta1constants.GardenerOperationReconcile, v1beta1constants.GardenerOperationMigrate, v1beta1constants.GardenerOperationRestore:
		return true
	}
	return false
}

// ManagedResources are those that the objects of a kind own, in their namespaces.
type ManagedResources struct {
	// Owns tells them by their names.
	Owns func(name string) bool
	// Awaits tells for which of these the objects wait until Health has no error any more. It may be nil.
	Awaits func(name string) bool
	// Health says why a ManagedResource is not healthy.
	Health func(mr *resourcesv1alpha1.ManagedResource) error
}

// WatchManagedResources wakes the objects in the namespace of a ManagedResource when that is gone, or when what is said of it
// changes for which they wait.
func (r *Reconciler[T]) WatchManagedResources(owned ManagedResources) Watch {
	return func(b *builder.Builder) {
		b.Watches(&resourcesv1alpha1.ManagedResource{}, handler.EnqueueRequestsFromMapFunc(r.OfManagedResource), builder.WithPredicates(owned.Predicate()))
	}
}

// OfManagedResource returns the objects of ours in the namespace of a ManagedResource of which an operation is under way, or all of
// them if it is not Gardener alone that determines when an object is reconciled.
func (r *Reconciler[T]) OfManagedResource(ctx context.Context, mr client.Object) []reconcile.Request {
	return r.inNamespace(ctx, mr.GetNamespace(), func(obj T) bool { return r.IgnoreOperationAnnotation || isUnderWay(obj) })
}

// Predicate is for the watch on ManagedResources.
func (m ManagedResources) Predicate() predicate.Predicate {
	awaits := func(obj client.Object) bool { return m.Awaits != nil && m.Awaits(obj.GetName()) }
	return predicate.Funcs{
		DeleteFunc: func(e event.DeleteEvent) bool { return m.Owns(e.Object.GetName()) },
		// gardener-resource-manager may have been faster than the watch.
		CreateFunc: func(e event.CreateEvent) bool { return awaits(e.Object) && m.verdict(e.Object) == "" },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return awaits(e.ObjectNew) && m.verdict(e.ObjectOld) != m.verdict(e.ObjectNew)
		},
	}
}

// Changed lets pass all events but updates that leave an aspect of the object as it was.
func Changed(aspect func(client.Object) any) predicate.Funcs {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return !reflect.DeepEqual(aspect(e.ObjectOld), aspect(e.ObjectNew)) },
	}
}

// WakeAfter queues the requests to which a function maps the object of an event, after a delay. All events that come until then queue
// them once, and none prolongs the delay.
func WakeAfter(delay time.Duration, requests handler.MapFunc) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, obj client.Object, q queue) {
		for _, request := range requests(ctx, obj) {
			q.AddAfter(request, delay)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, q) },
	}
}

// verdict is what an object is told about the ManagedResource for which it waits; empty if it need not wait any more.
func (m ManagedResources) verdict(obj client.Object) string {
	if err := m.Health(obj.(*resourcesv1alpha1.ManagedResource)); err != nil {
		return err.Error()
	}
	return ""
}
