// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupentry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Store is where entries are: pkg/backup's Store. Errors wrap backup.ErrBadName if a name is the reason.
type Store interface {
	// RemoveEntry removes the entry from the bucket; nil if either is not there.
	RemoveEntry(bucket, entry string) error
}

// attempt is one at an operation on a BackupEntry.
type attempt = reconciler.Operation[*extensionsv1alpha1.BackupEntry]

type actuator struct {
	client      client.Client
	credentials *reconciler.Credentials
	secrets     *etcdSecrets
	store       Store
}

var _ reconciler.Actuator[*extensionsv1alpha1.BackupEntry] = (*actuator)(nil)

// check refuses bad names before the entry gets a finalizer.
func (*actuator) check(_ context.Context, op *attempt) error { return checkNames(op.Object) }

// Reconcile tells the etcd where the bucket is. What the Secret of spec.secretRef holds does not matter: it may be
// credentials of whichever provider the user once had, or a hostPath of another seed's nodes.
func (a *actuator) Reconcile(ctx context.Context, op *attempt) error {
	if err := a.credentials.Hold(ctx, op.Object.Name, op.Object.Spec.SecretRef); err != nil {
		return err
	}
	return a.secrets.write(ctx, op)
}

// Restore does the same as Reconcile.
func (a *actuator) Restore(ctx context.Context, op *attempt) error { return a.Reconcile(ctx, op) }

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
	if err := a.secrets.remove(ctx, op.Object); err != nil {
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
	name := folderOf(entry)

	if name != entry.Name {
		inUse, err := a.isIn(ctx, name, entry.Spec.BucketName)
		if err != nil {
			return err
		}
		if inUse {
			log.Info("Keeping the folder of the source entry as the entry itself is in the same bucket", "bucket", entry.Spec.BucketName, "entry", name)
			return nil
		}
	}

	err := a.store.RemoveEntry(entry.Spec.BucketName, name)
	if errors.Is(err, backup.ErrBadName) {
		log.Info("No entry can have this name, there is nothing to remove", "reason", err.Error())
		return nil
	}
	return err
}

// isIn reports whether there is a BackupEntry of the name in the bucket.
func (a *actuator) isIn(ctx context.Context, name, bucket string) (bool, error) {
	entry := &extensionsv1alpha1.BackupEntry{}
	if err := a.client.Get(ctx, client.ObjectKey{Name: name}, entry); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading BackupEntry %s to see whether it is in bucket %s: %w", name, bucket, err)
	}
	return entry.Spec.BucketName == bucket, nil
}

// checkNames returns a configuration problem if the entry's names cannot be those of folders.
func checkNames(entry *extensionsv1alpha1.BackupEntry) error {
	if err := errors.Join(backup.CheckBucketName(entry.Spec.BucketName), backup.CheckEntryName(folderOf(entry))); err != nil {
		return reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
	}
	return nil
}

// folderOf returns the name of the entry's folder in its bucket.
func folderOf(entry *extensionsv1alpha1.BackupEntry) string {
	return strings.TrimPrefix(entry.Name, backup.SourcePrefix)
}
