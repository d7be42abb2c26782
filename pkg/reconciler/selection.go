// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
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
	return r.IgnoreOperationAnnotation || r.IsAmiss != nil && r.IsAmiss(ctx, obj)
}

// isAtRest reports whether an object is part of a control plane migration and has no request.
func isAtRest(obj extensionsv1alpha1.Object) bool {
	return operationAnnotation(obj) == v1beta1constants.GardenerOperationWaitForState || extensionscontroller.IsMigrated(obj)
}

// Predicates are for the watch on the objects. They look at nothing but the object, but for IsAmiss, as they see every event
// of all objects of the kind. The Observer of the classes is told of those of other classes.
func (r *Reconciler[T]) Predicates() []predicate.Predicate {
	return r.Classes.Predicates([]predicate.Predicate{r.predicate()}, r.Types...)
}

func (r *Reconciler[T]) predicate() predicate.Predicate {
	served := func(object client.Object) (T, bool) {
		obj, ok := object.(T)
		return obj, ok && r.isServed(obj)
	}
	return predicate.Funcs{
		// All objects when the program starts. One of a shoot that has failed is dropped by Reconcile.
		CreateFunc: func(e event.CreateEvent) bool {
			obj, ok := served(e.Object)
			if !ok {
				return false
			}
			isRunning := obj.GetDeletionTimestamp() == nil && !isAtRest(obj)
			return r.IsDue(obj) || isRunning && r.IsAmiss != nil && r.IsAmiss(context.Background(), obj)
		},
		// An attempt that has failed is followed by another one in due time, not because of what is written about it.
		UpdateFunc: func(e event.UpdateEvent) bool {
			obj, ok := served(e.ObjectNew)
			if !ok {
				return false
			}
			asks := isAskedFor(obj) || obj.GetDeletionTimestamp() != nil || r.IgnoreOperationAnnotation && e.ObjectOld.GetGeneration() != obj.GetGeneration()
			return asks && r.IsDue(obj) && !isOwnWrite(e.ObjectOld, obj)
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			if _, ok := served(e.Object); ok {
				r.Gone(client.ObjectKeyFromObject(e.Object))
			}
			return false
		},
	}
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

func (r *Reconciler[T]) inNamespace(ctx context.Context, namespace string, wanted func(T) bool) []reconcile.Request {
	list, err := r.newList()
	if err != nil {
		return nil
	}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		// From a cache this does not fail but at the end of the program.
		return nil
	}
	var out []reconcile.Request
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		// A cache lists all objects of a kind that has no namespaces.
		if obj, ok := item.(T); ok && r.isServed(obj) && obj.GetNamespace() == namespace && wanted(obj) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
		}
		return nil
	})
	return out
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
	old, ok := before.(extensionsv1alpha1.Object)
	return ok && old.GetGeneration() == after.GetGeneration() &&
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
