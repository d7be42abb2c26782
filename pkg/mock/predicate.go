// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

// selection says which objects are served, and when. It looks at nothing but the object, as it sees every event of all
// objects of a kind.
type selection struct {
	types   []string
	classes class.Set
	// ignoreOperation has every change of a spec reconciled.
	ignoreOperation bool
	// gone is called for objects that are gone.
	gone func(types.NamespacedName)
}

// isServed tells whether an object is one of ours.
func (s *selection) isServed(obj extensionsv1alpha1.Object) bool {
	return slices.Contains(s.types, obj.GetExtensionSpec().GetExtensionType()) && s.classes.Has(obj)
}

// isDue tells whether something is to be done for an object of ours: an operation is asked for, or one has not succeeded
// yet. It is false after one's own last write.
func (s *selection) isDue(obj extensionsv1alpha1.Object) bool {
	last := obj.GetExtensionStatus().GetLastOperation()
	switch {
	case isAskedFor(obj):
		return true
	case obj.GetDeletionTimestamp() != nil:
		return controllerutil.ContainsFinalizer(obj, FinalizerName) && !extensionscontroller.IsMigrated(obj)
	case operationAnnotation(obj) == v1beta1constants.GardenerOperationWaitForState, extensionscontroller.IsMigrated(obj):
		return false
	case last == nil || last.State != gardencorev1beta1.LastOperationStateSucceeded:
		return true
	}
	return s.ignoreOperation && obj.GetGeneration() != obj.GetExtensionStatus().GetObservedGeneration()
}

// predicate is for the watch on the objects.
func (s *selection) predicate() predicate.Predicate {
	served := func(object client.Object) (extensionsv1alpha1.Object, bool) {
		obj, ok := object.(extensionsv1alpha1.Object)
		return obj, ok && s.isServed(obj)
	}
	return predicate.Funcs{
		// All objects when the program starts. One of a shoot that has failed is dropped by the reconciler.
		CreateFunc: func(e event.CreateEvent) bool {
			obj, ok := served(e.Object)
			return ok && s.isDue(obj)
		},
		// An attempt that has failed is followed by another one in due time, not because of what is written about it.
		UpdateFunc: func(e event.UpdateEvent) bool {
			obj, ok := served(e.ObjectNew)
			if !ok {
				return false
			}
			asks := isAskedFor(obj) || obj.GetDeletionTimestamp() != nil || (s.ignoreOperation && e.ObjectOld.GetGeneration() != obj.GetGeneration())
			return asks && s.isDue(obj)
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			if _, ok := served(e.Object); ok {
				s.gone(client.ObjectKeyFromObject(e.Object))
			}
			return false
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func operationAnnotation(obj client.Object) string {
	return obj.GetAnnotations()[v1beta1constants.GardenerOperation]
}

// isAskedFor tells whether Gardener asks for an operation.
func isAskedFor(obj client.Object) bool {
	switch operationAnnotation(obj) {
	case v1beta1constants.GardenerOperationReconcile, v1beta1constants.GardenerOperationMigrate, v1beta1constants.GardenerOperationRestore:
		return true
	}
	return false
}
