// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupentry

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	namespace  = "shoot--foo--bar"
	entryName  = namespace + "--0a1b2c3d"
	sourceName = "source-" + entryName
	bucket     = "seed-4e5f6a7b"
	hostPath   = "/etc/gardener/local-backupbuckets"
)

// env is the reconciler, a fake client without Namespaces in its cache, and a store on disk.
type env struct {
	t          *testing.T
	client     client.WithWatch
	store      *backup.Store
	reconciler reconcile.Reconciler
	dir        string
	// fail, if set, is asked before each Secret and each status is written, anything is deleted, and each BackupEntry is read.
	fail func(verb string, key client.ObjectKey) error
}

func newEnv(t *testing.T, objects ...client.Object) *env {
	t.Helper()
	g := NewWithT(t)

	scheme := runtime.NewScheme()
	g.Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())

	e := &env{t: t, dir: t.TempDir()}
	e.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&extensionsv1alpha1.BackupEntry{}).WithInterceptorFuncs(e.interceptor()).Build()
	e.restart()
	return e
}

// restart makes a new reconciler and opens the store anew, as a new process would.
func (e *env) restart() {
	e.t.Helper()
	g := NewWithT(e.t)
	var err error
	e.store, err = backup.Open(e.dir)
	g.Expect(err).NotTo(HaveOccurred())
	store := e.store
	e.t.Cleanup(func() { g.Expect(store.Close()).To(Succeed()) })

	// Namespaces are to be read past the cache: a client that reads through it has none.
	cached := interceptor.NewClient(e.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*corev1.Namespace); ok {
				return errors.New("reading a Namespace through the cache")
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot}, extensionsv1alpha1.ExtensionClassShoot)
	g.Expect(err).NotTo(HaveOccurred())
	e.reconciler = newReconciler(cached, Options{Shared: reconciler.Shared{Classes: classes}, Store: e.store, HostPath: hostPath})
}

func (e *env) interceptor() interceptor.Funcs {
	ask := func(verb string, key client.ObjectKey) error {
		if e.fail == nil {
			return nil
		}
		return e.fail(verb, key)
	}

	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := ask("get", key); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := ask("create", client.ObjectKeyFromObject(obj)); err != nil {
				return err
			}
			if _, ok := obj.(*corev1.Secret); ok && obj.GetNamespace() != "garden" {
				// As an API server does it.
				if err := c.Get(ctx, client.ObjectKey{Name: obj.GetNamespace()}, &corev1.Namespace{}); err != nil {
					return err
				}
			}
			return c.Create(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := ask("delete", client.ObjectKeyFromObject(obj)); err != nil {
				return err
			}
			return checkedDelete(ctx, c, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subResource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := ask("patch "+subResource, client.ObjectKeyFromObject(obj)); err != nil {
				return err
			}
			return c.SubResource(subResource).Patch(ctx, obj, patch, opts...)
		},
	}
}

// checkedDelete deletes an object as an API server does it: the fake client does not look at preconditions.
func checkedDelete(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if expected := options.Preconditions; expected != nil {
		current := obj.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), current); err != nil {
			return err
		}
		if ptr.Deref(expected.UID, current.GetUID()) != current.GetUID() ||
			ptr.Deref(expected.ResourceVersion, current.GetResourceVersion()) != current.GetResourceVersion() {
			return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, obj.GetName(), errors.New("the precondition does not hold"))
		}
	}
	return c.Delete(ctx, obj, opts...)
}

// newEntry returns a BackupEntry for which gardenlet asks for the given operation.
func newEntry(name, bucket, operation string, change ...func(*extensionsv1alpha1.BackupEntry)) *extensionsv1alpha1.BackupEntry {
	entry := &extensionsv1alpha1.BackupEntry{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec: extensionsv1alpha1.BackupEntrySpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: localv1alpha1.Type},
			BucketName:  bucket,
			Region:      "local",
			SecretRef:   corev1.SecretReference{Namespace: "garden", Name: "entry-" + name},
		},
	}
	if operation != "" {
		entry.Annotations = map[string]string{v1beta1constants.GardenerOperation: operation}
	}
	for _, change := range change {
		change(entry)
	}
	return entry
}

func withFinalizer(entry *extensionsv1alpha1.BackupEntry) {
	entry.Finalizers = []string{backupentry.FinalizerName}
}

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func newSecret(entryName string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "entry-" + entryName},
		Data:       map[string][]byte{"hostPath": []byte("/somewhere/else"), "accessKeyID": []byte("of another provider"), "bucketName": []byte("other")},
	}
}

func newEtcdSecret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func (e *env) reconcile(name string) (reconcile.Result, error) {
	return e.reconciler.Reconcile(e.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
}

func (e *env) mustReconcile(name string) {
	e.t.Helper()
	result, err := e.reconcile(name)
	NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
	NewWithT(e.t).Expect(result).To(BeZero())
}

// exists reads obj.
func (e *env) exists(obj client.Object) bool {
	e.t.Helper()
	err := e.client.Get(e.t.Context(), client.ObjectKeyFromObject(obj), obj)
	NewWithT(e.t).Expect(client.IgnoreNotFound(err)).To(Succeed())
	return err == nil
}

func (e *env) entry(name string) *extensionsv1alpha1.BackupEntry {
	e.t.Helper()
	entry := &extensionsv1alpha1.BackupEntry{ObjectMeta: metav1.ObjectMeta{Name: name}}
	NewWithT(e.t).Expect(e.exists(entry)).To(BeTrue())
	return entry
}

func (e *env) entryExists(name string) bool {
	return e.exists(&extensionsv1alpha1.BackupEntry{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func (e *env) delete(obj client.Object) {
	e.t.Helper()
	NewWithT(e.t).Expect(e.client.Delete(e.t.Context(), obj)).To(Succeed())
}

// writeSnapshots makes folders with something in them, each bucket/entry.
func (e *env) writeSnapshots(folders ...string) {
	e.t.Helper()
	for _, folder := range folders {
		NewWithT(e.t).Expect(os.MkdirAll(filepath.Join(e.dir, folder, "etcd-main", "v2"), 0o700)).To(Succeed())
	}
}

// folders returns the entries' folders, each bucket/entry, and what has been put aside.
func (e *env) folders() []string {
	e.t.Helper()
	folders, err := fs.Glob(os.DirFS(e.dir), "*/*")
	NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
	return folders
}
