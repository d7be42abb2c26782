// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupentry

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	"github.com/gardener/gardener/extensions/pkg/controller/backupentry/genericactuator"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

// madeMax is how many Secrets are remembered.
const madeMax = 1024

// etcdSecrets are the Secrets that tell an etcd where its backups are, in the namespace of the shoot or of the garden.
type etcdSecrets struct {
	client   client.Client
	hostPath string
	// made has the UIDs of the Secrets that were written here, by the names of their entries: to delete one of these, nobody
	// has to be asked first whose it is.
	made *lru.Cache
}

// write writes the Secret with what the provider "local" of etcd-backup-restore needs to find the bucket, and nothing else.
// The first time that is a single request. Without a namespace, or if that is on its way out, there is no etcd and no Secret.
func (s *etcdSecrets) write(ctx context.Context, entry *extensionsv1alpha1.BackupEntry) error {
	secret := etcdSecret(entry.Name)
	if secret.Namespace == "" {
		return nil
	}
	err := common.Ensure(ctx, s.client, s.client, secret, entry.Status.ObservedGeneration > 0, func(secret *corev1.Secret) error {
		secret.Labels = nil
		secret.Annotations = map[string]string{genericactuator.AnnotationKeyCreatedByBackupEntry: entry.Name}
		secret.Data = map[string][]byte{
			dataKeyHostPath:                          []byte(s.hostPath),
			v1beta1constants.DataKeyBackupBucketName: []byte(entry.Spec.BucketName),
		}
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err != nil {
		return err
	}
	s.made.Add(entry.Name, secret.UID)
	return nil
}

// remove deletes the Secret unless it is of another entry: one for the same etcd.
func (s *etcdSecrets) remove(ctx context.Context, entry *extensionsv1alpha1.BackupEntry) error {
	secret := etcdSecret(entry.Name)
	if secret.Namespace == "" {
		return nil
	}
	if uid, ok := s.made.Get(entry.Name); ok {
		err := s.client.Delete(ctx, secret, client.Preconditions{UID: new(uid.(types.UID))})
		if !apierrors.IsConflict(err) {
			return deleted(secret, err)
		}
	}

	if err := s.client.Get(ctx, client.ObjectKeyFromObject(secret), secret); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	if creator, ok := secret.Annotations[genericactuator.AnnotationKeyCreatedByBackupEntry]; ok && creator != entry.Name {
		return nil
	}
	return deleted(secret, s.client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}))
}

func deleted(secret *corev1.Secret, err error) error {
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// etcdSecret names the Secret of an entry; the namespace is empty if the name of the entry does not tell it. In a migration
// there is a second entry in the new seed, for the bucket of the old one.
func etcdSecret(entryName string) *corev1.Secret {
	name := v1beta1constants.BackupSecretName
	if strings.HasPrefix(entryName, sourcePrefix) {
		name = sourcePrefix + name
	}
	namespace, _ := backupentry.ExtractShootDetailsFromBackupEntryName(entryName)
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}
