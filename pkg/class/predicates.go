// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package class

import (
	"reflect"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	predicateutils "github.com/gardener/gardener/pkg/controllerutils/predicate"
)

// Predicates returns Gardener's predicates for objects of the classes and of one of the types, before further ones. The
// Observer is told of events of objects of these types and of other classes, which are another instance's. Like List, it
// panics on the zero Set.
func (s Set) Predicates(further []predicate.Predicate, extensionTypes ...string) []predicate.Predicate {
	predicates := predicateutils.AddTypeAndClassPredicates(further, s.List(), extensionTypes...)
	if s.observer == nil {
		return predicates
	}
	return slices.Insert(predicates, 0, s.observing(extensionTypes))
}

// observing returns a predicate that lets everything through.
func (s Set) observing(extensionTypes []string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(obj client.Object) bool {
		extension, ok := obj.(extensionsv1alpha1.Object)
		if !ok || !slices.Contains(extensionTypes, extension.GetExtensionSpec().GetExtensionType()) || s.Has(extension) {
			return true
		}
		// Objects from a cache have no kind in them.
		kind := reflect.TypeOf(obj).Elem().Name()
		s.observer.Filtered(kind, string(extensionsv1alpha1helper.GetExtensionClassOrDefault(extension.GetExtensionSpec().GetExtensionClass())))
		return true
	})
}
