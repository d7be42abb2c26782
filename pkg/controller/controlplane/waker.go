// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

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

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

// waker wakes ControlPlanes when one of their ManagedResources is gone, or when the one for which they wait changes.
type waker struct {
	client  client.Client
	classes class.Set
	// healing also wakes those which did not wait for it. By default only Gardener determines when a ControlPlane is
	// reconciled.
	healing bool
}

func (w *waker) predicate() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc: func(e event.DeleteEvent) bool {
			switch e.Object.GetName() {
			case WebhooksName, SeedName, ShootName, StorageClassesName:
				return true
			}
			return false
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectNew.GetName() == WebhooksName && verdict(e.ObjectOld) != verdict(e.ObjectNew)
		},
	}
}

// verdict is what a ControlPlane is told about its ManagedResource while it waits; empty if it need not wait.
func verdict(obj client.Object) string {
	mr, ok := obj.(*resourcesv1alpha1.ManagedResource)
	if !ok {
		return ""
	}
	if err := isHealthy(mr); err != nil {
		return err.Error()
	}
	return ""
}

func (w *waker) requests(ctx context.Context, mr client.Object) []reconcile.Request {
	list := &extensionsv1alpha1.ControlPlaneList{}
	if err := w.client.List(ctx, list, client.InNamespace(mr.GetNamespace())); err != nil {
		// From a cache this does not fail but at the end of the program.
		return nil
	}

	var out []reconcile.Request
	for i := range list.Items {
		cp := &list.Items[i]
		if cp.Spec.Type == localv1alpha1.Type && w.classes.Has(cp) && (w.healing || isUnderWay(cp)) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(cp)})
		}
	}
	return out
}

// isUnderWay tells whether an operation is asked for or has begun, but has not succeeded yet. The status alone would not
// do: the cache from which cp comes may not have seen the last write of it.
func isUnderWay(cp *extensionsv1alpha1.ControlPlane) bool {
	last := cp.Status.LastOperation
	return cp.DeletionTimestamp != nil ||
		last == nil ||
		last.State != gardencorev1beta1.LastOperationStateSucceeded ||
		cp.Annotations[v1beta1constants.GardenerOperation] != ""
}
