// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupbucket

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

// secretLookup bounds how long the event of a bucket waits for the cache of generated Secrets, which reads them all at
// the first question and answers at once from then on.
const secretLookup = 30 * time.Second

// events tells which events beyond those that the library knows concern which bucket. A reconcile writes the bucket's
// status, hence events that change nothing, such as that of a Secret just written, are not to cause one.
type events struct {
	client  client.Client
	secrets *generatedSecrets
	classes class.Set
}

// lostSecret tells of a bucket that has succeeded whether its Secret is not in order: it may have been deleted, or the
// configured host path changed, also while no instance ran.
func (e *events) lostSecret(ctx context.Context, bucket *extensionsv1alpha1.BackupBucket) bool {
	if bucket.Status.GeneratedSecretRef == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, secretLookup)
	defer cancel()
	inOrder, err := e.secrets.inOrder(ctx, bucket)
	return err != nil || !inOrder // the reconcile will meet the error again, and report it
}

// changedSecret lets a generated Secret through that has gone, or lost its label, or holds something else than it should.
func (e *events) changedSecret() predicate.Predicate {
	changed := func(obj client.Object) bool {
		secret, ok := obj.(*corev1.Secret)
		return ok && !e.secrets.isAsWritten(secret)
	}
	return predicate.Funcs{
		CreateFunc: func(event event.CreateEvent) bool { return changed(event.Object) },
		UpdateFunc: func(event event.UpdateEvent) bool { return changed(event.ObjectNew) },
	}
}

// bucketOfSecret returns the bucket to which a generated Secret belongs, if it is ours and is to stay.
func (e *events) bucketOfSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	name, ok := bucketOf(secret)
	if !ok {
		return nil
	}
	return e.request(ctx, name, func(bucket *extensionsv1alpha1.BackupBucket) bool {
		return bucket.DeletionTimestamp == nil && e.secrets.keyFor(bucket) == client.ObjectKeyFromObject(secret)
	})
}

// bucketOfEntry returns the bucket in which a BackupEntry was, if it is ours and is to go.
func (e *events) bucketOfEntry(ctx context.Context, obj client.Object) []reconcile.Request {
	entry, ok := obj.(*extensionsv1alpha1.BackupEntry)
	if !ok {
		return nil
	}
	return e.request(ctx, entry.Spec.BucketName, func(bucket *extensionsv1alpha1.BackupBucket) bool {
		return bucket.DeletionTimestamp != nil
	})
}

func (e *events) request(ctx context.Context, name string, wanted func(*extensionsv1alpha1.BackupBucket) bool) []reconcile.Request {
	bucket := &extensionsv1alpha1.BackupBucket{}
	if err := e.client.Get(ctx, client.ObjectKey{Name: name}, bucket); err != nil {
		return nil // buckets are cached: there is none
	}
	if bucket.Spec.Type != localv1alpha1.Type || !e.classes.Has(bucket) || !wanted(bucket) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(bucket)}}
}

func onlyDeletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
}
