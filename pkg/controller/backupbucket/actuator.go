// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package backupbucket serves BackupBuckets of type local: a bucket is a folder of pkg/backup, and a generated Secret
// tells those who back up where the folder is. Both programs run it.
//
// The Secret is there as long as the bucket is. It is watched for that, by an informer of its own which knows just the
// Secrets that this package makes.
package backupbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/extensions/pkg/controller/backupbucket"
	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	predicateutils "github.com/gardener/gardener/pkg/controllerutils/predicate"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Store is where the buckets are.
	Store *backup.Store
	// HostPath is the folder of all buckets as the nodes see it.
	HostPath string
}

const (
	// LabelGeneratedFor is the label of the Secrets that this package makes, and by which it watches them. The name of a
	// bucket can be too long for a label's value; it is part of the Secret's name.
	LabelGeneratedFor = "local.provider.extensions.gardener.cloud/generated-for"
	// LabelValueBackupBucket is the value of LabelGeneratedFor.
	LabelValueBackupBucket = "backupbucket"

	// secretLookup bounds how long the event of a bucket waits for the cache of generated Secrets, which reads them all at
	// the first question and answers at once from then on.
	secretLookup = 30 * time.Second
)

// AddToManager adds the controller for BackupBuckets of type local. The manager has to cache Secrets as CacheOptions says.
// The cluster-wide watch on Secrets that the library sets up where the operation annotation is ignored is missing on purpose:
// what the Secret of spec.secretRef holds does not matter to the type local.
func AddToManager(mgr manager.Manager, opts Options) error {
	a := &actuator{Options: opts, client: mgr.GetClient(), reader: mgr.GetAPIReader(), cached: mgr.GetCache()}
	return newReconciler(a).AddToManager(mgr, backupbucket.ControllerName, func(b *builder.Builder) {
		b.Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(a.bucketOfSecret), builder.WithPredicates(a.changedSecret())).
			Watches(&extensionsv1alpha1.BackupEntry{}, handler.EnqueueRequestsFromMapFunc(a.bucketOfEntry), builder.WithPredicates(predicateutils.ForEventTypes(predicateutils.Delete)))
	})
}

// CacheOptions has the manager's cache keep just the generated Secrets in the namespace garden, where Gardener wants them: these are
// watched, and healed if somebody deletes or changes them. One that Gardener asks for elsewhere is healed at the next reconcile.
// The cache has no other Secrets then. So Secret belongs in CacheOptions.DisableFor of the manager's client.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&corev1.Secret{}: {
		Namespaces: map[string]cache.Config{v1beta1constants.GardenNamespace: {}},
		Label:      labels.SelectorFromSet(labels.Set{LabelGeneratedFor: LabelValueBackupBucket}),
	}}
}

// attempt is one at an operation on a BackupBucket.
type attempt = reconciler.Operation[*extensionsv1alpha1.BackupBucket]

type actuator struct {
	Options
	client client.Client
	// reader asks the API server.
	reader client.Reader
	// cached reads what CacheOptions leaves.
	cached      client.Reader
	credentials *reconciler.Credentials
}

func newReconciler(a *actuator) *reconciler.Reconciler[*extensionsv1alpha1.BackupBucket] {
	r := reconciler.New(reconciler.Options[*extensionsv1alpha1.BackupBucket]{
		Shared:          a.Shared,
		Client:          a.client,
		ExistsFor:       class.All(),
		Finalizer:       backupbucket.FinalizerName,
		WithoutClusters: true,
		Actuator:        a,
		Check: func(_ context.Context, op *attempt) error {
			if err := backup.CheckBucketName(op.Object.Name); err != nil {
				return reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
			}
			return nil
		},
		IsAmiss: a.lostSecret,
	})
	a.credentials = r.Credentials(func(bucket *extensionsv1alpha1.BackupBucket) corev1.SecretReference { return bucket.Spec.SecretRef })
	return r
}

// Reconcile makes the bucket, its Secret and its provider status unless they are in order.
func (a *actuator) Reconcile(ctx context.Context, op *attempt) error {
	bucket := op.Object
	if err := a.credentials.Hold(ctx, bucket.Name, bucket.Spec.SecretRef); err != nil {
		return err
	}
	switch err := a.Store.EnsureBucket(bucket.Name); {
	case errors.Is(err, backup.ErrBadName):
		return reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
	case errors.Is(err, backup.ErrFull):
		return reconciler.WithCode(err, gardencorev1beta1.ErrorInfraResourcesDepleted, reconciler.RetryFull)
	case err != nil:
		return err
	}
	if err := a.ensureSecret(ctx, op); err != nil {
		return err
	}

	// If the annotation that determines the namespace has changed, the Secret in the old one goes. The status says where
	// that is until it has gone.
	ref := referenceOf(bucket)
	if last := bucket.Status.GeneratedSecretRef; last != nil && *last != ref {
		if err := a.removeSecret(ctx, bucket, *last); err != nil {
			return err
		}
	}
	bucket.Status.GeneratedSecretRef = &ref
	bucket.Status.ProviderStatus = &runtime.RawExtension{Object: &localv1alpha1.BackupBucketStatus{
		TypeMeta: metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.BackupBucketStatusKind},
		HostPath: a.HostPath,
	}}
	return nil
}

// Migrate is not asked for.
func (*actuator) Migrate(context.Context, *attempt) error { return nil }

// Delete removes the data and then the Secret. Each step is fine with what an earlier attempt has done, and with a bucket
// that never came to be.
func (a *actuator) Delete(ctx context.Context, op *attempt) error {
	bucket := op.Object
	if err := a.checkUnused(ctx, a.client, bucket); err != nil {
		return err
	}
	if err := a.checkData(ctx, bucket); err != nil {
		return err
	}

	if err := a.Store.RemoveBucket(bucket.Name); errors.Is(err, backup.ErrBadName) {
		op.Log.Info("No bucket can have this name, there is nothing to remove", "reason", err.Error())
	} else if err != nil {
		return err
	}

	refs := []corev1.SecretReference{referenceOf(bucket)}
	if last := bucket.Status.GeneratedSecretRef; last != nil && *last != refs[0] {
		refs = append(refs, *last)
	}
	for _, ref := range refs {
		if err := a.removeSecret(ctx, bucket, ref); err != nil {
			return err
		}
	}
	_, err := a.credentials.Release(ctx, bucket.Name, bucket.Spec.SecretRef)
	return err
}

// ForceDelete is a Delete: a bucket has no shoot that could be out of reach.
func (a *actuator) ForceDelete(ctx context.Context, op *attempt) error { return a.Delete(ctx, op) }

// checkData asks the API server, as the cache may be behind, whether a bucket that has data still is to go, and is in use by nobody.
// Usually there are none any more.
func (a *actuator) checkData(ctx context.Context, bucket *extensionsv1alpha1.BackupBucket) error {
	if hasEntries, err := a.Store.HasEntries(bucket.Name); err != nil || !hasEntries {
		return err
	}
	live := &extensionsv1alpha1.BackupBucket{}
	if err := a.reader.Get(ctx, client.ObjectKeyFromObject(bucket), live); err != nil {
		return fmt.Errorf("reading BackupBucket %s before its data are removed: %w", bucket.Name, err)
	}
	if live.UID != bucket.UID || live.DeletionTimestamp == nil {
		return fmt.Errorf("BackupBucket %s is another one by now: its data stay", bucket.Name)
	}
	return a.checkUnused(ctx, a.reader, bucket)
}

// checkUnused returns an error as long as BackupEntries are in the bucket. gardenlet and gardener-operator delete them
// first, hence this is about a BackupBucket that somebody deletes by hand: the backups of running etcds would go, and
// their pods would hold on to a folder that no longer exists. The controller looks again when an entry has gone.
func (a *actuator) checkUnused(ctx context.Context, reader client.Reader, bucket *extensionsv1alpha1.BackupBucket) error {
	list := &extensionsv1alpha1.BackupEntryList{}
	if err := reader.List(ctx, list); err != nil {
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

	slices.Sort(names)
	return reconciler.WithCode(
		fmt.Errorf("BackupBucket %s is in use by %d BackupEntries, delete them first: %s", bucket.Name, len(names), reconciler.JoinSome(names, ", ")),
		gardencorev1beta1.ErrorInfraDependencies, reconciler.RetryMistake,
	)
}

// The generated Secrets are what a store of type local has for credentials: gardenlet copies one into the Secrets of the
// bucket's BackupEntries, and gardener-operator hands it to the garden's etcd if there is no BackupEntry for the garden.

// referenceOf returns where the Secret of a bucket belongs.
func referenceOf(bucket *extensionsv1alpha1.BackupBucket) corev1.SecretReference {
	meta := backupbucket.GeneratedSecretObjectMeta(bucket)
	return corev1.SecretReference{Namespace: meta.Namespace, Name: meta.Name}
}

// secretOf returns the Secret of a bucket, without its data.
func secretOf(bucket *extensionsv1alpha1.BackupBucket) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: backupbucket.GeneratedSecretObjectMeta(bucket)}
}

// ensureSecret makes or corrects the bucket's Secret, if need be. A Secret that has the name already becomes the bucket's: the
// name is reserved for it.
func (a *actuator) ensureSecret(ctx context.Context, op *attempt) error {
	bucket, secret := op.Object, secretOf(op.Object)
	if inOrder, err := a.inOrder(ctx, bucket); err != nil || inOrder {
		return err
	}

	op.Log.Info("Writing the generated Secret", "secret", client.ObjectKeyFromObject(secret))
	err := a.writeSecret(ctx, op)
	if errors.Is(err, errLingers) {
		if err = a.release(ctx, secret); err == nil {
			err = a.writeSecret(ctx, op)
		}
	}
	if err == nil || errors.Is(err, errLingers) {
		// If others hold it still, the event when it is gone brings the bucket here again.
		return nil
	}
	return fmt.Errorf("writing the generated Secret of BackupBucket %s: %w", bucket.Name, err)
}

// errLingers is the error for a Secret that is on its way out.
var errLingers = errors.New("the Secret is being deleted")

// writeSecret needs a single request if there is no such Secret.
func (a *actuator) writeSecret(ctx context.Context, op *attempt) error {
	secret := secretOf(op.Object)
	return op.Ensure(ctx, reconciler.Target{Client: a.client, Live: a.client}, secret, false, func() error {
		if secret.DeletionTimestamp != nil {
			return errLingers
		}
		metav1.SetMetaDataLabel(&secret.ObjectMeta, LabelGeneratedFor, LabelValueBackupBucket)
		secret.Data = backup.SecretData(op.Object.Name, a.HostPath)
		return nil
	})
}

// inOrder reports whether the bucket's Secret is as it should be. As the cache only has Secrets with the label, one without
// is not.
func (a *actuator) inOrder(ctx context.Context, bucket *extensionsv1alpha1.BackupBucket) (bool, error) {
	key, reader := client.ObjectKeyFromObject(secretOf(bucket)), a.cached
	if key.Namespace != v1beta1constants.GardenNamespace {
		reader = a.client
	}
	secret, err := reconciler.Find[corev1.Secret](ctx, reader, key)
	if err != nil {
		return false, fmt.Errorf("reading the generated Secret %s of BackupBucket %s: %w", key, bucket.Name, err)
	}
	return secret != nil && secret.Labels[LabelGeneratedFor] == LabelValueBackupBucket && a.isAsWritten(secret), nil
}

// isAsWritten reports whether a Secret has what its bucket, which its name tells, needs, and is to stay.
func (a *actuator) isAsWritten(secret *corev1.Secret) bool {
	name, ok := bucketOf(secret)
	return ok && secret.DeletionTimestamp == nil && apiequality.Semantic.DeepEqual(secret.Data, backup.SecretData(name, a.HostPath))
}

// removeSecret removes the Secret that ref names, provided that it is one of the bucket by its name: ref may stem from a status.
// If the cache says that it has no finalizers, nothing holds it.
func (a *actuator) removeSecret(ctx context.Context, bucket *extensionsv1alpha1.BackupBucket, ref corev1.SecretReference) error {
	secret := secretOf(bucket)
	if ref.Name != secret.Name {
		return nil
	}
	secret.Namespace = ref.Namespace
	if err := client.IgnoreNotFound(a.client.Delete(ctx, secret)); err != nil {
		return fmt.Errorf("deleting the generated Secret %s/%s of BackupBucket %s: %w", ref.Namespace, ref.Name, bucket.Name, err)
	}
	if ref.Namespace == v1beta1constants.GardenNamespace {
		cached, err := reconciler.Find[corev1.Secret](ctx, a.cached, client.ObjectKeyFromObject(secret))
		if err == nil && (cached == nil || len(cached.Finalizers) == 0) {
			return nil
		}
	}
	return a.release(ctx, secret)
}

// release takes the library's finalizers off the Secret if that is being deleted. The garden's BackupEntry refers to the
// generated Secret itself, and the library puts a finalizer on what is referred to: deleted by hand, the Secret would
// linger until the entry goes. It can go, as either another one takes its place at once or no entry is left.
func (a *actuator) release(ctx context.Context, secret *corev1.Secret) error {
	key := client.ObjectKeyFromObject(secret)
	current, err := reconciler.Find[corev1.Secret](ctx, a.client, key)
	if err != nil || current == nil || current.DeletionTimestamp == nil {
		return err
	}
	if err := controllerutils.RemoveFinalizers(ctx, a.client, current, backupentry.FinalizerName, backupbucket.FinalizerName); err != nil {
		return fmt.Errorf("taking finalizers off the generated Secret %s: %w", key, err)
	}
	return nil
}

// bucketOf returns the name of the bucket whose generated Secret has the object's name.
func bucketOf(secret client.Object) (string, bool) {
	name, ok := strings.CutPrefix(secret.GetName(), v1beta1constants.SecretPrefixGeneratedBackupBucket)
	return name, ok && name != ""
}

// A reconcile writes the bucket's status, hence events that change nothing, such as that of a Secret just written, are not to
// cause one.

// lostSecret tells of a bucket that has succeeded whether its Secret is not in order: it may have been deleted, or the
// configured host path changed, also while no instance ran.
func (a *actuator) lostSecret(ctx context.Context, bucket *extensionsv1alpha1.BackupBucket) bool {
	if bucket.Status.GeneratedSecretRef == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, secretLookup)
	defer cancel()
	inOrder, err := a.inOrder(ctx, bucket)
	return err != nil || !inOrder // the reconcile will meet the error again, and report it
}

// changedSecret lets a generated Secret through that has gone, or lost its label, or holds something else than it should.
func (a *actuator) changedSecret() predicate.Predicate {
	changed := func(obj client.Object) bool { return !a.isAsWritten(obj.(*corev1.Secret)) }
	return predicate.Funcs{
		CreateFunc: func(event event.CreateEvent) bool { return changed(event.Object) },
		UpdateFunc: func(event event.UpdateEvent) bool { return changed(event.ObjectNew) },
	}
}

// bucketOfSecret returns the bucket to which a generated Secret belongs, if it is ours and is to stay.
func (a *actuator) bucketOfSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	name, _ := bucketOf(secret)
	return a.request(ctx, name, func(bucket *extensionsv1alpha1.BackupBucket) bool {
		return bucket.DeletionTimestamp == nil && client.ObjectKeyFromObject(secretOf(bucket)) == client.ObjectKeyFromObject(secret)
	})
}

// bucketOfEntry returns the bucket in which a BackupEntry was, if it is ours and is to go.
func (a *actuator) bucketOfEntry(ctx context.Context, obj client.Object) []reconcile.Request {
	return a.request(ctx, obj.(*extensionsv1alpha1.BackupEntry).Spec.BucketName, func(bucket *extensionsv1alpha1.BackupBucket) bool {
		return bucket.DeletionTimestamp != nil
	})
}

func (a *actuator) request(ctx context.Context, name string, wanted func(*extensionsv1alpha1.BackupBucket) bool) []reconcile.Request {
	bucket := &extensionsv1alpha1.BackupBucket{}
	if err := a.client.Get(ctx, client.ObjectKey{Name: name}, bucket); err != nil {
		return nil // buckets are cached: there is none
	}
	if bucket.Spec.Type != localv1alpha1.Type || !a.Classes.Has(bucket) || !wanted(bucket) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(bucket)}}
}
