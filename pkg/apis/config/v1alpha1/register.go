// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of the configuration.
const GroupName = "config.local.provider.extensions.gardener.cloud"

// SchemeGroupVersion is the group and version of the types of this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// AddToScheme adds the types of this package and their defaults to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	addType(scheme, SetDefaults)
	addType(scheme, SetAdmissionDefaults)
	addType(scheme, SetCloudControllerDefaults)
	return nil
}

// addType adds a type with its defaults.
func addType[T any, C interface {
	*T
	runtime.Object
}](scheme *runtime.Scheme, setDefaults func(C)) {
	scheme.AddKnownTypes(SchemeGroupVersion, C(new(T)))
	scheme.AddTypeDefaultingFunc(C(new(T)), func(obj any) {
		if config, ok := obj.(C); ok {
			setDefaults(config)
		}
	})
}
