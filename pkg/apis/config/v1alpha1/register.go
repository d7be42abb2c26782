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
	scheme.AddKnownTypes(SchemeGroupVersion, &ExtensionConfiguration{}, &AdmissionConfiguration{}, &CloudControllerConfiguration{})
	scheme.AddTypeDefaultingFunc(&ExtensionConfiguration{}, func(obj any) { SetDefaults(obj.(*ExtensionConfiguration)) })
	scheme.AddTypeDefaultingFunc(&AdmissionConfiguration{}, func(obj any) { SetAdmissionDefaults(obj.(*AdmissionConfiguration)) })
	scheme.AddTypeDefaultingFunc(&CloudControllerConfiguration{}, func(obj any) { SetCloudControllerDefaults(obj.(*CloudControllerConfiguration)) })
	return nil
}
