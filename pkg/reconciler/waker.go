// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
)

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
	if !r.IgnoreOperationAnnotation {
		return r.UnderWay(ctx, mr)
	}
	return r.inNamespace(ctx, mr.GetNamespace(), func(T) bool { return true })
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

// verdict is what an object is told about the ManagedResource for which it waits; empty if it need not wait any more.
func (m ManagedResources) verdict(obj client.Object) string {
	mr, ok := obj.(*resourcesv1alpha1.ManagedResource)
	if !ok {
		return ""
	}
	if err := m.Health(mr); err != nil {
		return err.Error()
	}
	return ""
}
