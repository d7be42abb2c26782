// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Type is what spec.type of an extension object says if this extension is to serve it.
const Type = "local"

// GroupName is the API group of the types of this package.
const GroupName = "local.provider.extensions.gardener.cloud"

// SchemeGroupVersion is the group and version of the types of this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &BackupBucketStatus{}, &CloudProfileConfig{}, &DNSRecordConfig{}, &DNSRecordStatus{},
		&InfrastructureStatus{}, &MachineProviderSpec{}, &WorkerConfig{}, &WorkerStatus{})

	return nil
}
