// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package backupentry serves BackupEntries of type local: it writes the Secret etcd-backup, from which an etcd gets to know
// its bucket, and removes an entry's folder from pkg/backup. Both programs run it.
//
// The name of an entry is part of a path on a node: its data is removed there, and etcd-druid mounts the bucket that the
// Secret names. Therefore names are checked before anything else happens.
package backupentry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	"github.com/gardener/gardener/extensions/pkg/controller/backupentry/genericactuator"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Store is where the entries are.
	Store *backup.Store
	// HostPath is the folder of all buckets as the nodes see it.
	HostPath string
}

// madeMax is how many Secrets are remembered.
const madeMax = 1024

// AddToManager adds the controller for BackupEntries of type local. The cluster-wide watches on Namespaces and Secrets
// that the library sets up where the operation annotation is ignored are missing on purpose: gardenlet makes the
// namespace before the entry, and what the Secret of spec.secretRef holds does not matter to the type local.
func AddToManager(mgr manager.Manager, opts Options) error {
	return newReconciler(mgr.GetClient(), opts).AddToManager(mgr, backupentry.ControllerName)
}

func newReconciler(c client.Client, opts Options) *reconciler.Reconciler[*extensionsv1alpha1.BackupEntry] {
	a := &actuator{Options: opts, client: c, made: lru.New(madeMax)}
	r := reconciler.New(reconciler.Options[*extensionsv1alpha1.BackupEntry]{
		Shared:          opts.Shared,
		Client:          c,
		ExistsFor:       class.All(),
		Finalizer:       backupentry.FinalizerName,
		WithoutClusters: true,
		Check:           a.check,
		Actuator:        a,
	})
	a.credentials = r.Credentials(func(entry *extensionsv1alpha1.BackupEntry) corev1.SecretReference { return entry.Spec.SecretRef })
	return r
}

// attempt is one at an operation on a BackupEntry.
type attempt = reconciler.Operation[*extensionsv1alpha1.BackupEntry]

type actuator struct {
	Options
	client      client.Client
	credentials *reconciler.Credentials
	// made identifies the Secrets as they were written here (client.Preconditions), by the names of their entries. As long as
	// nobody has written one since, it is still that of its entry.
	made *lru.Cache
}

// check refuses names that cannot be those of folders, before the entry gets a finalizer.
func (*actuator) check(_ context.Context, op *attempt) error {
	if err := errors.Join(backup.CheckBucketName(op.Object.Spec.BucketName), backup.CheckEntryName(folderOf(op.Object))); err != nil {
		return reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
	}
	return nil
}

// Reconcile tells the etcd where the bucket is. What the Secret of spec.secretRef holds does not matter: it may be
// credentials of whichever provider the user once had, or a hostPath of another seed's nodes.
func (a *actuator) Reconcile(ctx context.Context, op *attempt) error {
	if err := a.credentials.Hold(ctx, op.Object.Name, op.Object.Spec.SecretRef); err != nil {
		return err
	}
	return a.writeSecret(ctx, op)
}

// Migrate leaves the data where it is, hence no name matters.
func (a *actuator) Migrate(ctx context.Context, op *attempt) error {
	found, err := a.credentials.Release(ctx, op.Object.Name, op.Object.Spec.SecretRef)
	if err == nil && !found {
		return reconciler.MissingSecret(op.Object.Spec.SecretRef)
	}
	return err
}

// Delete removes the Secret, and then the entry's folder, also without credentials: nobody else would ever do it.
func (a *actuator) Delete(ctx context.Context, op *attempt) error {
	if err := a.removeSecret(ctx, op); err != nil {
		return err
	}
	if err := a.removeFolder(ctx, op.Log, op.Object); err != nil {
		return err
	}
	_, err := a.credentials.Release(ctx, op.Object.Name, op.Object.Spec.SecretRef)
	return err
}

// ForceDelete is a Delete: there is no infrastructure that could be out of reach.
func (a *actuator) ForceDelete(ctx context.Context, op *attempt) error { return a.Delete(ctx, op) }

// removeFolder removes the entry's folder from its bucket.
//
// A control plane migration has a second BackupEntry, source-X beside X, on the destination seed. While X is in the
// destination's bucket already, source-X is in the source's, under the folder X: there the backups are copied from, and
// there gardenlet has them removed, by deleting source-X, after the copied ones have been restored. It must not be the
// data of X that goes. Two entries in one bucket mean the same folder, so source-X leaves the folder alone if X is in the
// same bucket: nothing has been copied then, be it that the migration was given up or that gardenlet found both buckets
// to be the same. The folder goes with X.
func (a *actuator) removeFolder(ctx context.Context, log logr.Logger, entry *extensionsv1alpha1.BackupEntry) error {
	name, bucket := folderOf(entry), entry.Spec.BucketName
	if name != entry.Name {
		other, err := reconciler.Find[extensionsv1alpha1.BackupEntry](ctx, a.client, client.ObjectKey{Name: name})
		if err != nil {
			return fmt.Errorf("reading BackupEntry %s to see whether it is in bucket %s: %w", name, bucket, err)
		}
		if other != nil && other.Spec.BucketName == bucket {
			log.Info("Keeping the folder of the source entry as the entry itself is in the same bucket", "bucket", bucket, "entry", name)
			return nil
		}
	}
	err := a.Store.RemoveEntry(bucket, name)
	if errors.Is(err, backup.ErrBadName) {
		log.Info("No entry can have this name, there is nothing to remove", "reason", err.Error())
		return nil
	}
	return err
}

// folderOf returns the name of the entry's folder in its bucket.
func folderOf(entry *extensionsv1alpha1.BackupEntry) string {
	return strings.TrimPrefix(entry.Name, backup.SourcePrefix)
}

// errOfAnother tells that the Secret belongs to another entry.
var errOfAnother = errors.New("the Secret is of another BackupEntry")

// writeSecret writes the Secret by which the provider "local" of etcd-backup-restore finds the bucket.
// The first time that is a single request. Without a namespace, or if that is on its way out, there is no etcd and no Secret.
//
// If a Shoot is deleted and created again by the same name, the entry of the old one is kept for some time, for the same
// namespace: the Secret is that of the younger entry.
func (a *actuator) writeSecret(ctx context.Context, op *attempt) error {
	entry, secret := op.Object, backup.EtcdSecret(op.Object.Name)
	if secret.Namespace == "" {
		return nil
	}
	err := op.Ensure(ctx, reconciler.Target{Client: a.client, Live: a.client}, secret, entry.Status.ObservedGeneration > 0, func() error {
		if err := a.checkOwner(ctx, entry, secret); err != nil {
			return err
		}
		secret.Labels, secret.Annotations = nil, nil
		backup.FillEtcdSecret(secret, entry, a.HostPath)
		return nil
	})
	if hasNoNamespace(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || errors.Is(err, errOfAnother) {
		return nil
	}
	if err != nil {
		return err
	}
	a.made.Add(entry.Name, asItIs(secret))
	return nil
}

// hasNoNamespace tells that there is no namespace from a Secret that is gone just then.
func hasNoNamespace(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// checkOwner returns errOfAnother if a Secret that is there belongs to another entry, and that is younger.
func (a *actuator) checkOwner(ctx context.Context, entry *extensionsv1alpha1.BackupEntry, secret *corev1.Secret) error {
	creator := secret.Annotations[genericactuator.AnnotationKeyCreatedByBackupEntry]
	if creator == "" || creator == entry.Name {
		return nil
	}
	other, err := reconciler.Find[extensionsv1alpha1.BackupEntry](ctx, a.client, client.ObjectKey{Name: creator})
	if err != nil {
		return fmt.Errorf("reading BackupEntry %s, of which the Secret %s/%s is: %w", creator, secret.Namespace, secret.Name, err)
	}
	if other == nil || other.CreationTimestamp.Before(&entry.CreationTimestamp) {
		return nil
	}
	return errOfAnother
}

// removeSecret deletes the Secret unless it is of another entry: one for the same etcd, which cannot start without it.
func (a *actuator) removeSecret(ctx context.Context, op *attempt) error {
	secret := backup.EtcdSecret(op.Object.Name)
	if secret.Namespace == "" {
		return nil
	}
	if made, ok := a.made.Get(op.Object.Name); ok {
		if err := a.deleteSecret(ctx, op, secret, made.(client.Preconditions)); !apierrors.IsConflict(err) {
			return err
		}
	}
	// It is a conflict if somebody writes the Secret meanwhile.
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current := &corev1.Secret{}
		if err := a.client.Get(ctx, client.ObjectKeyFromObject(secret), current); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
		if creator, ok := current.Annotations[genericactuator.AnnotationKeyCreatedByBackupEntry]; ok && creator != op.Object.Name {
			return nil
		}
		return a.deleteSecret(ctx, op, secret, asItIs(current))
	})
}

func (a *actuator) deleteSecret(ctx context.Context, op *attempt, secret *corev1.Secret, asItIs client.Preconditions) error {
	_, err := op.Delete(ctx, reconciler.Target{Client: a.client}.WithoutState(), []client.Object{secret}, asItIs)
	return err
}

// asItIs is the precondition that nobody has written a Secret since.
func asItIs(secret *corev1.Secret) client.Preconditions {
	return client.Preconditions{UID: new(secret.UID), ResourceVersion: new(secret.ResourceVersion)}
}
