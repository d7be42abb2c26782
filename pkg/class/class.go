// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package class holds which classes of extension objects an instance serves. Every controller takes a Set from here, so
// that none ever runs with an empty list: to the predicates of Gardener's extension library that means class shoot, and
// an instance in the garden runtime cluster would grab the objects of shoots.
package class

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// Set is a set of extension classes that is never empty. Make it with New.
type Set struct {
	classes  sets.Set[extensionsv1alpha1.ExtensionClass]
	observer Observer
}

// Observer is told what Predicates leave out. metrics.Classes is one.
type Observer interface {
	// Filtered tells of an event of an object of a kind that is of a class which the instance does not serve.
	Filtered(kind, class string)
}

// New returns the set of the given classes. It is an error if there are none, or if one is not among allowed.
func New(classes []extensionsv1alpha1.ExtensionClass, allowed ...extensionsv1alpha1.ExtensionClass) (Set, error) {
	if len(classes) == 0 {
		return Set{}, fmt.Errorf("no extension class given: this instance serves %s, name at least one of them in extensionClasses", join(allowed))
	}

	for _, class := range classes {
		if !slices.Contains(allowed, class) {
			return Set{}, fmt.Errorf("extension class %q is not served by this instance: it serves %s", class, join(allowed))
		}
	}
	return Set{classes: sets.New(classes...)}, nil
}

// WithObserver returns the same set, whose Predicates tell the observer.
func (s Set) WithObserver(observer Observer) Set {
	return Set{classes: s.classes, observer: observer}
}

// All returns every class, for kinds of which there are objects of each.
func All() []extensionsv1alpha1.ExtensionClass {
	return []extensionsv1alpha1.ExtensionClass{
		extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot,
	}
}

// Has reports whether an object is of one of the classes. An object without a class counts as shoot.
func (s Set) Has(obj extensionsv1alpha1.Object) bool {
	return s.classes.Has(extensionsv1alpha1helper.GetExtensionClassOrDefault(obj.GetExtensionSpec().GetExtensionClass()))
}

// Only returns those classes of the set that a controller supports, and false if there are none: the controller is not
// to be added then.
func (s Set) Only(supported ...extensionsv1alpha1.ExtensionClass) (Set, bool) {
	both := s.classes.Intersection(sets.New(supported...))
	return Set{classes: both, observer: s.observer}, len(both) > 0
}

// List returns the classes, sorted, for the AddArgs of the extension library. It panics on the zero Set, since the
// library would take an empty list for class shoot.
func (s Set) List() []extensionsv1alpha1.ExtensionClass {
	if len(s.classes) == 0 {
		panic("class: the empty set stands for class shoot in the extension library")
	}
	return sets.List(s.classes)
}

// String returns the classes, sorted, with commas between them.
func (s Set) String() string {
	return join(sets.List(s.classes))
}

func join(classes []extensionsv1alpha1.ExtensionClass) string {
	names := make([]string, len(classes))
	for i, class := range classes {
		names[i] = string(class)
	}
	return strings.Join(names, ", ")
}
