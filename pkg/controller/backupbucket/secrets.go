// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupbucket

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/extensions/pkg/controller/backupbucket"
	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// LabelGeneratedFor is the label of the Secrets that this package makes, and by which it watches them. The name of a
	// bucket can be too long for a label's value; it is part of the Secret's name.
	LabelGeneratedFor = "local.provider.extensions.gardener.cloud/generated-for"
	// LabelValueBackupBucket is the value of LabelGeneratedFor.
	LabelValueBackupBucket = "backupbucket"

	// dataKeyHostPath is the key under which etcd-druid looks for the folder on the node, below which it mounts a bucket.
	dataKeyHostPath = "hostPath"
)

// generatedSecrets are the Secrets of buckets. They are what a store of type local has for credentials: gardenlet copies
// one into the Secrets of the bucket's BackupEntries, and gardener-operator hands it to the garden's etcd if there is no
// BackupEntry for the garden.
type generatedSecrets struct {
	client client.Client
	// cached reads what CacheOptions leaves.
	cached   client.Reader
	hostPath string
}

func (s *generatedSecrets) keyFor(bucket *extensionsv1alpha1.BackupBucket) client.ObjectKey {
	meta := backupbucket.GeneratedSecretObjectMeta(bucket)
	return client.ObjectKey{Namespace: meta.Namespace, Name: meta.Name}
}

// ensure makes or corrects the bucket's Secret, if need be. A Secret that has the name already becomes the bucket's: the
// name is reserved for it.
func (s *generatedSecrets) ensure(ctx context.Context, op *attempt) error {
	bucket := op.Object
	if inOrder, err := s.inOrder(ctx, bucket); err != nil || inOrder {
		return err
	}

	key := s.keyFor(bucket)
	op.Log.Info("Writing the generated Secret", "secret", key)
	err := s.write(ctx, op, key)
	if errors.Is(err, errLingers) {
		if err := s.release(ctx, key); err != nil {
			return err
		}
		if err = s.write(ctx, op, key); errors.Is(err, errLingers) {
			// Others hold it. Once it is gone, its event brings the bucket here again.
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("writing the generated Secret of BackupBucket %s: %w", bucket.Name, err)
	}
	return nil
}

// errLingers is the error for a Secret that is on its way out.
var errLingers = errors.New("the Secret is being deleted")

// write needs a single request if there is no such Secret.
func (s *generatedSecrets) write(ctx context.Context, op *attempt, key client.ObjectKey) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	return op.Ensure(ctx, reconciler.Target{Client: s.client, Live: s.client}, secret, false, func() error {
		if secret.DeletionTimestamp != nil {
			return errLingers
		}
		metav1.SetMetaDataLabel(&secret.ObjectMeta, LabelGeneratedFor, LabelValueBackupBucket)
		secret.Data = s.dataFor(op.Object.Name)
		return nil
	})
}

// inOrder reports whether the bucket's Secret is as it should be. As the cache only has Secrets with the label, one without
// is not.
func (s *generatedSecrets) inOrder(ctx context.Context, bucket *extensionsv1alpha1.BackupBucket) (bool, error) {
	var (
		key    = s.keyFor(bucket)
		secret = &corev1.Secret{}
		reader = s.cached
	)
	if key.Namespace != v1beta1constants.GardenNamespace {
		reader = s.client
	}

	if err := reader.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading the generated Secret %s of BackupBucket %s: %w", key, bucket.Name, err)
	}
	return secret.Labels[LabelGeneratedFor] == LabelValueBackupBucket && s.isAsWritten(secret), nil
}

// isAsWritten reports whether a Secret has what its bucket, which its name tells, needs, and is to stay.
func (s *generatedSecrets) isAsWritten(secret *corev1.Secret) bool {
	name, ok := bucketOf(secret)
	return ok && secret.DeletionTimestamp == nil && apiequality.Semantic.DeepEqual(secret.Data, s.dataFor(name))
}

func (s *generatedSecrets) dataFor(bucketName string) map[string][]byte {
	return map[string][]byte{
		dataKeyHostPath:                          []byte(s.hostPath),
		v1beta1constants.DataKeyBackupBucketName: []byte(bucketName),
	}
}

// remove removes the Secret that ref names, provided that it is one of the bucket by its name: ref may stem from a status.
func (s *generatedSecrets) remove(ctx context.Context, bucket *extensionsv1alpha1.BackupBucket, ref corev1.SecretReference) error {
	if ref.Name != s.keyFor(bucket).Name {
		return nil
	}

	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = ref.Namespace, ref.Name
	if err := kubernetesutils.DeleteObject(ctx, s.client, secret); err != nil {
		return fmt.Errorf("deleting the generated Secret %s/%s of BackupBucket %s: %w", ref.Namespace, ref.Name, bucket.Name, err)
	}
	if !s.mayLinger(ctx, client.ObjectKeyFromObject(secret)) {
		return nil
	}
	return s.release(ctx, client.ObjectKeyFromObject(secret))
}

// mayLinger reports whether a Secret has finalizers. If the cache says that it has none, nothing holds it.
func (s *generatedSecrets) mayLinger(ctx context.Context, key client.ObjectKey) bool {
	if key.Namespace != v1beta1constants.GardenNamespace {
		return true
	}
	secret := &corev1.Secret{}
	err := s.cached.Get(ctx, key, secret)
	return err == nil && len(secret.Finalizers) > 0 || err != nil && !apierrors.IsNotFound(err)
}

// release takes the library's finalizers off the Secret if that is being deleted. The garden's BackupEntry refers to the
// generated Secret itself, and the library puts a finalizer on what is referred to: deleted by hand, the Secret would
// linger until the entry goes. It can go, as either another one takes its place at once or no entry is left.
func (s *generatedSecrets) release(ctx context.Context, key client.ObjectKey) error {
	secret := &corev1.Secret{}
	if err := s.client.Get(ctx, key, secret); err != nil {
		return client.IgnoreNotFound(err)
	}
	if secret.DeletionTimestamp == nil {
		return nil
	}
	if err := controllerutils.RemoveFinalizers(ctx, s.client, secret, backupentry.FinalizerName, backupbucket.FinalizerName); err != nil {
		return fmt.Errorf("taking finalizers off the generated Secret %s: %w", key, err)
	}
	return nil
}

// bucketOf returns the name of the bucket whose generated Secret has the object's name.
func bucketOf(secret client.Object) (string, bool) {
	name, ok := strings.CutPrefix(secret.GetName(), v1beta1constants.SecretPrefixGeneratedBackupBucket)
	return name, ok && name != ""
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
