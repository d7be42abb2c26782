// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupbucket

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/extensions/pkg/controller/backupbucket"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/test/requests"
)

const (
	bucketName = "garden-0a1b2c3d"
	secretName = "generated-bucket-" + bucketName
	hostPath   = "/etc/gardener/local-backupbuckets"
)

// env is the reconciler with this package's actuator, a fake client and a store on disk.
type env struct {
	t          *testing.T
	client     client.WithWatch
	reconciler reconcile.Reconciler
	actuator   *actuator
	dir        string
	// fail, if set, is asked before each write.
	fail func(verb string, obj client.Object) error

	lock   sync.Mutex
	writes []string
}

func newEnv(t *testing.T, objects ...client.Object) *env {
	t.Helper()

	e := &env{t: t, dir: t.TempDir()}
	scheme := newScheme(t)
	e.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&extensionsv1alpha1.BackupBucket{}).WithInterceptorFuncs(e.interceptor()).Build()
	e.restart()
	return e
}

// restart makes a new reconciler and opens the store anew, as a new process would.
func (e *env) restart() {
	e.t.Helper()
	g := NewWithT(e.t)
	store, err := backup.Open(e.dir)
	g.Expect(err).NotTo(HaveOccurred())
	e.t.Cleanup(func() { g.Expect(store.Close()).To(Succeed()) })

	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassGarden}, extensionsv1alpha1.ExtensionClassGarden)
	g.Expect(err).NotTo(HaveOccurred())
	e.actuator = &actuator{
		Options: Options{Shared: reconciler.Shared{Classes: classes}, Store: store, HostPath: hostPath},
		client:  e.client, reader: e.client, cached: labelled{e.client},
	}
	e.reconciler = newReconciler(e.actuator)
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
	NewWithT(t).Expect(corev1.AddToScheme(scheme)).To(Succeed())
	return scheme
}

// interceptor notes writes and has them fail if a test says so.
func (e *env) interceptor() interceptor.Funcs {
	note := func(verb string, obj client.Object) error {
		e.lock.Lock()
		defer e.lock.Unlock()
		e.writes = append(e.writes, verb)
		if e.fail != nil {
			return e.fail(verb, obj)
		}
		return nil
	}

	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := note("create "+kindOf(obj), obj); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := note("patch "+kindOf(obj), obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := note("delete "+kindOf(obj), obj); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subResource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := note("patch "+kindOf(obj)+" "+subResource, obj); err != nil {
				return err
			}
			return c.SubResource(subResource).Patch(ctx, obj, patch, opts...)
		},
	}
}

func kindOf(obj client.Object) string {
	switch obj := obj.(type) {
	case *corev1.Secret:
		return "Secret"
	case *metav1.PartialObjectMetadata:
		return obj.Kind + " metadata"
	default:
		return "BackupBucket"
	}
}

// labelled reads Secrets as the cache of generated Secrets does: only those with the label.
type labelled struct{ client.Reader }

func (l labelled) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := l.Reader.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	if _, isSecret := obj.(*corev1.Secret); isSecret && obj.GetLabels()[LabelGeneratedFor] != LabelValueBackupBucket {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	return nil
}

func newBucket(change ...func(*extensionsv1alpha1.BackupBucket)) *extensionsv1alpha1.BackupBucket {
	bucket := &extensionsv1alpha1.BackupBucket{
		ObjectMeta: metav1.ObjectMeta{Name: bucketName, Generation: 1, Annotations: map[string]string{v1beta1constants.GardenerOperation: v1beta1constants.GardenerOperationReconcile}},
		Spec: extensionsv1alpha1.BackupBucketSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: localv1alpha1.Type, Class: new(extensionsv1alpha1.ExtensionClassGarden)},
			Region:      "local",
			SecretRef:   corev1.SecretReference{Namespace: "garden", Name: "backup-local"},
		},
	}
	for _, change := range change {
		change(bucket)
	}
	return bucket
}

func withFinalizer(bucket *extensionsv1alpha1.BackupBucket) {
	bucket.Finalizers = []string{backupbucket.FinalizerName}
}

func newReferencedSecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "backup-local"}}
}

func newEntry(name, bucket string) *extensionsv1alpha1.BackupEntry {
	return &extensionsv1alpha1.BackupEntry{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       extensionsv1alpha1.BackupEntrySpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: localv1alpha1.Type}, BucketName: bucket},
	}
}

func (e *env) reconcile(name string) (reconcile.Result, error) {
	return e.reconciler.Reconcile(e.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
}

// apply has the actuator reconcile a bucket.
func (e *env) apply(bucket *extensionsv1alpha1.BackupBucket) error {
	return e.actuator.Reconcile(e.t.Context(), &attempt{Object: bucket})
}

// ask is what gardener-operator does at every reconcile of the Garden.
func (e *env) ask() {
	bucket := e.bucket()
	patch := client.MergeFrom(bucket.DeepCopy())
	bucket.Annotations = requests.Asking("reconcile", time.Now().Add(time.Minute))
	NewWithT(e.t).Expect(e.client.Patch(e.t.Context(), bucket, patch)).To(Succeed())
}

func (e *env) mustReconcile() {
	e.t.Helper()
	result, err := e.reconcile(bucketName)
	NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
	NewWithT(e.t).Expect(result).To(BeZero())
}

func (e *env) bucket() *extensionsv1alpha1.BackupBucket {
	e.t.Helper()
	bucket := &extensionsv1alpha1.BackupBucket{}
	NewWithT(e.t).Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: bucketName}, bucket)).To(Succeed())
	return bucket
}

func (e *env) deleteBucket() {
	e.t.Helper()
	NewWithT(e.t).Expect(e.client.Delete(e.t.Context(), e.bucket())).To(Succeed())
}

func (e *env) secret(namespace string) *corev1.Secret {
	e.t.Helper()
	secret := &corev1.Secret{}
	NewWithT(e.t).Expect(e.client.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: secretName}, secret)).To(Succeed())
	return secret
}

func (e *env) addFinalizers(finalizers ...string) {
	e.t.Helper()
	secret := e.secret("garden")
	secret.Finalizers = append(secret.Finalizers, finalizers...)
	NewWithT(e.t).Expect(e.client.Update(e.t.Context(), secret)).To(Succeed())
}

func (e *env) exists(obj client.Object) bool {
	e.t.Helper()
	err := e.client.Get(e.t.Context(), client.ObjectKeyFromObject(obj), obj)
	NewWithT(e.t).Expect(client.IgnoreNotFound(err)).To(Succeed())
	return err == nil
}

func (e *env) secretExists(namespace string) bool {
	return e.exists(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName}})
}

func (e *env) bucketExists() bool {
	return e.exists(&extensionsv1alpha1.BackupBucket{ObjectMeta: metav1.ObjectMeta{Name: bucketName}})
}

func (e *env) folders() []string {
	e.t.Helper()
	entries, err := os.ReadDir(e.dir)
	NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func (e *env) writeSnapshot() {
	e.t.Helper()
	NewWithT(e.t).Expect(os.MkdirAll(filepath.Join(e.dir, bucketName, "garden--1", "v2"), 0o700)).To(Succeed())
}

// takeWrites returns the writes since the last call, sorted.
func (e *env) takeWrites() []string {
	e.lock.Lock()
	defer e.lock.Unlock()
	writes := e.writes
	e.writes = nil
	slices.Sort(writes)
	return writes
}
