// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupBucketStatusKind is the kind of BackupBucketStatus.
const BackupBucketStatusKind = "BackupBucketStatus"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// BackupBucketStatus is the providerStatus of a BackupBucket. Gardener hands it on in the field
// backupBucketProviderStatus of each BackupEntry in the bucket.
type BackupBucketStatus struct {
	metav1.TypeMeta `json:",inline"`

	// HostPath is the folder on the node in which the bucket is a folder of the bucket's name.
	HostPath string `json:"hostPath"`
}
