// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	"github.com/gardener/gardener/extensions/pkg/controller/backupentry/genericactuator"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

const (
	// SourcePrefix begins the name of the BackupEntry that stands for the source in a control plane migration.
	SourcePrefix = v1beta1constants.BackupSourcePrefix + "-"

	// dataKeyHostPath is the key under which etcd-druid looks for the folder on the node, below which it mounts a bucket.
	dataKeyHostPath = "hostPath"
)

// EtcdSecret returns an empty Secret with the name of that by which etcd-druid finds the bucket of an entry, in the namespace of
// the shoot or of the garden. The namespace is empty if the name of the entry does not contain it.
func EtcdSecret(entryName string) *corev1.Secret {
	name := v1beta1constants.BackupSecretName
	if strings.HasPrefix(entryName, SourcePrefix) {
		name = SourcePrefix + name
	}
	namespace, _ := backupentry.ExtractShootDetailsFromBackupEntryName(entryName)
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// FillEtcdSecret puts into the Secret of an entry what the provider "local" of etcd-backup-restore needs. hostPath is the folder of
// all buckets on the nodes.
func FillEtcdSecret(secret *corev1.Secret, entry *extensionsv1alpha1.BackupEntry, hostPath string) {
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, genericactuator.AnnotationKeyCreatedByBackupEntry, entry.Name)
	secret.Data = SecretData(entry.Spec.BucketName, hostPath)
}

// SecretData returns what a store of type local has for credentials: the folder of all buckets on the nodes, and the bucket.
func SecretData(bucket, hostPath string) map[string][]byte {
	return map[string][]byte{dataKeyHostPath: []byte(hostPath), v1beta1constants.DataKeyBackupBucketName: []byte(bucket)}
}
