// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Waker wakes the extension objects of one kind in the namespace of a ManagedResource when that is gone, or when what is
// said of it changes for which they wait.
type Waker struct {
	// Reader reads the extension objects, from the manager's cache.
	Reader client.Reader
	// NewList returns an empty list of them.
	NewList func() client.ObjectList
	// Type and Classes are those of the objects to wake.
	Type    string
	Classes class.Set
	// Healing also wakes those which did not wait for it. By default only Gardener determines when an object is reconciled.
	Healing bool
	// Owns tells by their names which ManagedResources are theirs.
	Owns func(name string) bool
	// Awaits tells for which of these they wait until Health has no error any more. It may be nil.
	Awaits func(name string) bool
	// Health says why a ManagedResource is not healthy.
	Health func(mr *resourcesv1alpha1.ManagedResource) error
}

// Predicate is for the watch on ManagedResources.
func (w *Waker) Predicate() predicate.Predicate {
	awaits := func(obj client.Object) bool { return w.Awaits != nil && w.Awaits(obj.GetName()) }
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(e event.DeleteEvent) bool { return w.Owns(e.Object.GetName()) },
		// gardener-resource-manager may have been faster than the watch.
		CreateFunc: func(e event.CreateEvent) bool { return awaits(e.Object) && w.verdict(e.Object) == "" },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return awaits(e.ObjectNew) && w.verdict(e.ObjectOld) != w.verdict(e.ObjectNew)
		},
	}
}

// verdict is what an object is told about the ManagedResource for which it waits; empty if it need not wait any more.
func (w *Waker) verdict(obj client.Object) string {
	mr, ok := obj.(*resourcesv1alpha1.ManagedResource)
	if !ok {
		return ""
	}
	if err := w.Health(mr); err != nil {
		return err.Error()
	}
	return ""
}

// Requests is for the watch on ManagedResources.
func (w *Waker) Requests(ctx context.Context, mr client.Object) []reconcile.Request {
	list := w.NewList()
	if err := w.Reader.List(ctx, list, client.InNamespace(mr.GetNamespace())); err != nil {
		// From a cache this does not fail but at the end of the program.
		return nil
	}

	var out []reconcile.Request
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(extensionsv1alpha1.Object)
		if ok && obj.GetExtensionSpec().GetExtensionType() == w.Type && w.Classes.Has(obj) && (w.Healing || isUnderWay(obj)) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
		}
		return nil
	})
	return out
}

// isUnderWay reports whether an operation is asked for or has begun, but has not succeeded yet. The status alone would not
// do: the cache from which obj comes may not have seen the last write of it.
func isUnderWay(obj extensionsv1alpha1.Object) bool {
	return obj.GetDeletionTimestamp() != nil ||
		reconciler.IsUnanswered(obj) ||
		obj.GetAnnotations()[v1beta1constants.GardenerOperation] != ""
}
