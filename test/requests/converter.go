// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// TypeConverters are for a fake client to which objects are applied. Its own ones refuse NetworkPolicies, to which it adds an
// empty status that they do not have.
func TypeConverters() []managedfields.TypeConverter {
	return []managedfields.TypeConverter{
		withoutStatus{applyconfigurations.NewTypeConverter(scheme.Scheme)},
		managedfields.NewDeducedTypeConverter(),
	}
}

type withoutStatus struct {
	managedfields.TypeConverter
}

func (w withoutStatus) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok && u.Object["status"] == nil {
		u = u.DeepCopy()
		delete(u.Object, "status")
		obj = u
	}
	return w.TypeConverter.ObjectToTyped(obj, opts...)
}
