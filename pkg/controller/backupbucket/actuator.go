// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Store is where buckets are: pkg/backup's Store. Errors wrap backup.ErrBadName if a name is the reason.
type Store interface {
	// EnsureBucket makes the bucket unless it is there. Errors wrap backup.ErrFull if the disk is full.
	EnsureBucket(name string) error
	// RemoveBucket removes the bucket with all that is in it; nil if there is none.
	RemoveBucket(name string) error
}

// attempt is one at an operation on a BackupBucket.
type attempt = reconciler.Operation[*extensionsv1alpha1.BackupBucket]

type actuator struct {
	client      client.Client
	credentials *reconciler.Credentials
	store       Store
	secrets     *generatedSecrets
	hostPath    string
}

var _ reconciler.Actuator[*extensionsv1alpha1.BackupBucket] = (*actuator)(nil)

// Reconcile makes the bucket, its Secret and its provider status unless they are in order.
func (a *actuator) Reconcile(ctx context.Context, op *attempt) error {
	bucket := op.Object
	if err := a.credentials.Hold(ctx, bucket.Name, bucket.Spec.SecretRef); err != nil {
		return err
	}
	switch err := a.store.EnsureBucket(bucket.Name); {
	case errors.Is(err, backup.ErrBadName):
		return reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
	case errors.Is(err, backup.ErrFull):
		return reconciler.WithCode(err, gardencorev1beta1.ErrorInfraResourcesDepleted, reconciler.RetryFull)
	case err != nil:
		return err
	}

	if err := a.secrets.ensure(ctx, op); err != nil {
		return err
	}

	// If the annotation that determines the namespace has changed, the Secret in the old one goes. The status says where
	// that is until it has gone.
	key := a.secrets.keyFor(bucket)
	if ref := bucket.Status.GeneratedSecretRef; ref != nil && *ref != *reference(key) {
		if err := a.secrets.remove(ctx, bucket, *ref); err != nil {
			return err
		}
	}
	bucket.Status.GeneratedSecretRef = reference(key)
	var err error
	bucket.Status.ProviderStatus, err = reconciler.ProviderStatus(localv1alpha1.BackupBucketStatus{
		TypeMeta: metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.BackupBucketStatusKind},
		HostPath: a.hostPath,
	})
	return err
}

// Restore is not asked for: no bucket moves to another seed.
func (a *actuator) Restore(ctx context.Context, op *attempt) error { return a.Reconcile(ctx, op) }

// Migrate is not asked for.
func (*actuator) Migrate(context.Context, *attempt) error { return nil }

// Delete removes the data and then the Secret. Each step is fine with what an earlier attempt has done, and with a bucket
// that never came to be.
func (a *actuator) Delete(ctx context.Context, op *attempt) error {
	bucket := op.Object
	if err := a.checkUnused(ctx, bucket); err != nil {
		return err
	}

	if err := a.store.RemoveBucket(bucket.Name); errors.Is(err, backup.ErrBadName) {
		op.Log.Info("No bucket can have this name, there is nothing to remove", "reason", err.Error())
	} else if err != nil {
		return err
	}

	refs := []corev1.SecretReference{*reference(a.secrets.keyFor(bucket))}
	if ref := bucket.Status.GeneratedSecretRef; ref != nil && *ref != refs[0] {
		refs = append(refs, *ref)
	}
	for _, ref := range refs {
		if err := a.secrets.remove(ctx, bucket, ref); err != nil {
			return err
		}
	}
	_, err := a.credentials.Release(ctx, bucket.Name, bucket.Spec.SecretRef)
	return err
}

// ForceDelete is a Delete: a bucket has no shoot that could be out of reach.
func (a *actuator) ForceDelete(ctx context.Context, op *attempt) error { return a.Delete(ctx, op) }

// checkUnused returns an error as long as BackupEntries are in the bucket. gardenlet and gardener-operator delete them
// first, hence this is about a BackupBucket that somebody deletes by hand: the backups of running etcds would go, and
// their pods would hold on to a folder that no longer exists. The controller looks again when an entry has gone.
func (a *actuator) checkUnused(ctx context.Context, bucket *extensionsv1alpha1.BackupBucket) error {
	list := &extensionsv1alpha1.BackupEntryList{}
	if err := a.client.List(ctx, list); err != nil {
		return fmt.Errorf("listing the BackupEntries in BackupBucket %s: %w", bucket.Name, err)
	}

	var names []string
	for _, entry := range list.Items {
		if entry.Spec.BucketName == bucket.Name && entry.Spec.Type == localv1alpha1.Type {
			names = append(names, entry.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}

	const shown = 3
	slices.Sort(names)
	return reconciler.WithCode(
		fmt.Errorf("BackupBucket %s is in use by %d BackupEntries, delete them first: %s", bucket.Name, len(names), strings.Join(names[:min(shown, len(names))], ", ")),
		gardencorev1beta1.ErrorInfraDependencies, reconciler.RetryMistake,
	)
}

func reference(key client.ObjectKey) *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: key.Namespace, Name: key.Name}
}
