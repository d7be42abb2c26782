// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

// waker wakes Extensions when their ManagedResource is gone, or when that changes for which they wait.
type waker struct {
	client  client.Client
	kind    kind
	classes class.Set
	// healing also wakes those which did not wait for it when the ManagedResource is gone. By default only Gardener
	// determines when an Extension is reconciled.
	healing bool
}

func (w *waker) predicate() predicate.Predicate {
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(e event.DeleteEvent) bool { return e.Object.GetName() == w.kind.extensionType },
		// GRM may have been faster than the watch.
		CreateFunc: func(e event.CreateEvent) bool { return w.kind.waits && e.Object.GetName() == w.kind.extensionType },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return w.kind.waits && e.ObjectNew.GetName() == w.kind.extensionType && verdict(e.ObjectOld) != verdict(e.ObjectNew)
		},
	}
}

// verdict is what an Extension is told about its ManagedResource while it waits.
func verdict(obj client.Object) string {
	mr, ok := obj.(*resourcesv1alpha1.ManagedResource)
	if !ok {
		return ""
	}
	if err := health.CheckManagedResource(mr); err != nil {
		return err.Error()
	}
	return ""
}

func (w *waker) requests(ctx context.Context, mr client.Object) []reconcile.Request {
	list := &extensionsv1alpha1.ExtensionList{}
	if err := w.client.List(ctx, list, client.InNamespace(mr.GetNamespace())); err != nil {
		// From a cache this does not fail but at the end of the program.
		return nil
	}

	var out []reconcile.Request
	for i := range list.Items {
		ex := &list.Items[i]
		if ex.Spec.Type == w.kind.extensionType && w.classes.Has(ex) && (w.healing || isUnderWay(ex)) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(ex)})
		}
	}
	return out
}

// isUnderWay tells whether an operation is asked for or has begun, but has not succeeded yet. The status alone would not
// do: the cache from which ex comes may not have seen the last write of it.
func isUnderWay(ex *extensionsv1alpha1.Extension) bool {
	last := ex.Status.LastOperation
	return ex.DeletionTimestamp != nil ||
		last == nil ||
		last.State != gardencorev1beta1.LastOperationStateSucceeded ||
		ex.Annotations[v1beta1constants.GardenerOperation] != ""
}
