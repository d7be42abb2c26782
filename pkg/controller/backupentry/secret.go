// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupentry

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry/genericactuator"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// madeMax is how many Secrets are remembered.
const madeMax = 1024

// etcdSecrets are the Secrets that tell an etcd where its backups are, in the namespace of the shoot or of the garden.
type etcdSecrets struct {
	client   client.Client
	hostPath string
	// made identifies the Secrets as they were written here (client.Preconditions), by the names of their entries. As long as
	// nobody has written one since, it is still that of its entry.
	made *lru.Cache
}

// errOfAnother tells that the Secret belongs to another entry.
var errOfAnother = errors.New("the Secret is of another BackupEntry")

// write writes the Secret with what the provider "local" of etcd-backup-restore needs to find the bucket, and nothing else.
// The first time that is a single request. Without a namespace, or if that is on its way out, there is no etcd and no Secret.
//
// If a Shoot is deleted and created again by the same name, the entry of the old one is kept for some time, for the same
// namespace: the Secret is that of the younger entry.
func (s *etcdSecrets) write(ctx context.Context, op *attempt) error {
	entry, secret := op.Object, backup.EtcdSecret(op.Object.Name)
	if secret.Namespace == "" {
		return nil
	}
	err := op.Ensure(ctx, reconciler.Target{Client: s.client, Live: s.client}, secret, entry.Status.ObservedGeneration > 0, func() error {
		if err := s.checkOwner(ctx, entry, secret); err != nil {
			return err
		}
		secret.Labels, secret.Annotations = nil, nil
		backup.FillEtcdSecret(secret, entry, s.hostPath)
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || errors.Is(err, errOfAnother) {
		return nil
	}
	if err != nil {
		return err
	}
	s.made.Add(entry.Name, asItIs(secret))
	return nil
}

// checkOwner returns errOfAnother if a Secret that is there belongs to another entry, and that is younger.
func (s *etcdSecrets) checkOwner(ctx context.Context, entry *extensionsv1alpha1.BackupEntry, secret *corev1.Secret) error {
	creator := secret.Annotations[genericactuator.AnnotationKeyCreatedByBackupEntry]
	if creator == "" || creator == entry.Name {
		return nil
	}
	other := &extensionsv1alpha1.BackupEntry{}
	if err := s.client.Get(ctx, client.ObjectKey{Name: creator}, other); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading BackupEntry %s, of which the Secret %s/%s is: %w", creator, secret.Namespace, secret.Name, err)
	}
	if other.CreationTimestamp.Before(&entry.CreationTimestamp) {
		return nil
	}
	return errOfAnother
}

// remove deletes the Secret unless it is of another entry: one for the same etcd, which cannot start without it.
func (s *etcdSecrets) remove(ctx context.Context, entry *extensionsv1alpha1.BackupEntry) error {
	secret := backup.EtcdSecret(entry.Name)
	if secret.Namespace == "" {
		return nil
	}
	if made, ok := s.made.Get(entry.Name); ok {
		err := s.client.Delete(ctx, secret, made.(client.Preconditions))
		if !apierrors.IsConflict(err) {
			return deleted(secret, err)
		}
	}

	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return s.removeOwn(ctx, entry) })
}

// removeOwn deletes the Secret if it is of the entry. It is a conflict if somebody writes it meanwhile.
func (s *etcdSecrets) removeOwn(ctx context.Context, entry *extensionsv1alpha1.BackupEntry) error {
	secret := backup.EtcdSecret(entry.Name)
	if err := s.client.Get(ctx, client.ObjectKeyFromObject(secret), secret); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	if creator, ok := secret.Annotations[genericactuator.AnnotationKeyCreatedByBackupEntry]; ok && creator != entry.Name {
		return nil
	}
	return deleted(secret, s.client.Delete(ctx, secret, asItIs(secret)))
}

// asItIs is the precondition that nobody has written a Secret since.
func asItIs(secret *corev1.Secret) client.Preconditions {
	return client.Preconditions{UID: new(secret.UID), ResourceVersion: new(secret.ResourceVersion)}
}

func deleted(secret *corev1.Secret, err error) error {
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}
