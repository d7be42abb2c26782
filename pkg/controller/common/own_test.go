// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

const garden, seed, shoot = extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot

type ownManager struct {
	manager.Manager
	client client.Client
}

func (m *ownManager) GetClient() client.Client { return m.client }

// ownClient is what a reconciler gets which serves these classes.
func ownClient(t *testing.T, serves []extensionsv1alpha1.ExtensionClass, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()
	g := NewWithT(t)
	classes, err := class.New(serves, garden, seed, shoot)
	g.Expect(err).NotTo(HaveOccurred())
	scheme := runtime.NewScheme()
	g.Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
	return common.OnlyOwn[*extensionsv1alpha1.BackupEntry](&ownManager{client: c}, "local", classes).GetClient()
}

func TestOnlyOwnObjectsAreFound(t *testing.T) {
	for name, tt := range map[string]struct {
		serves        []extensionsv1alpha1.ExtensionClass
		class         *extensionsv1alpha1.ExtensionClass
		extensionType string
		found         bool
	}{
		"one of the class":                          {[]extensionsv1alpha1.ExtensionClass{garden}, new(garden), "local", true},
		"one of another class":                      {[]extensionsv1alpha1.ExtensionClass{garden}, new(shoot), "local", false},
		"one of one of two classes":                 {[]extensionsv1alpha1.ExtensionClass{seed, shoot}, new(seed), "local", true},
		"one without class, which stands for shoot": {[]extensionsv1alpha1.ExtensionClass{seed, shoot}, nil, "local", true},
		"one whose class garden was taken away":     {[]extensionsv1alpha1.ExtensionClass{garden}, nil, "local", false},
		"one of another type":                       {[]extensionsv1alpha1.ExtensionClass{garden}, new(garden), "other", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := ownClient(t, tt.serves, interceptor.Funcs{}, &extensionsv1alpha1.BackupEntry{
				ObjectMeta: metav1.ObjectMeta{Name: "entry", Annotations: map[string]string{"gardener.cloud/operation": "reconcile"}},
				Spec:       extensionsv1alpha1.BackupEntrySpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: tt.extensionType, Class: tt.class}},
			})

			entry := &extensionsv1alpha1.BackupEntry{}
			err := c.Get(t.Context(), client.ObjectKey{Name: "entry"}, entry)
			if tt.found {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(entry.Name).To(Equal("entry"))
				return
			}
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "got %v", err)
			g.Expect(*entry).To(BeZero(), "the library looks at the annotations even then, and would take them off")
		})
	}
}

func TestObjectsOfOtherKindsAreFoundWhateverTheyAre(t *testing.T) {
	g := NewWithT(t)
	c := ownClient(t, []extensionsv1alpha1.ExtensionClass{garden}, interceptor.Funcs{},
		&extensionsv1alpha1.BackupBucket{ObjectMeta: metav1.ObjectMeta{Name: "bucket"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace"}})
	g.Expect(c.Get(t.Context(), client.ObjectKey{Name: "bucket"}, &extensionsv1alpha1.BackupBucket{})).To(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKey{Name: "namespace"}, &corev1.Namespace{})).To(Succeed())
}

func TestWhatIsGoneIsNotFoundInACacheThatLagsBehind(t *testing.T) {
	g := NewWithT(t)
	var stale *extensionsv1alpha1.BackupEntry
	cached := interceptor.Funcs{Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if stale != nil {
			stale.DeepCopyInto(obj.(*extensionsv1alpha1.BackupEntry))
			return nil
		}
		return inner.Get(ctx, key, obj, opts...)
	}}
	entry := &extensionsv1alpha1.BackupEntry{
		ObjectMeta: metav1.ObjectMeta{Name: "entry", UID: "first", Finalizers: []string{"f/a", "f/b"}},
		Spec:       extensionsv1alpha1.BackupEntrySpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local", Class: new(garden)}},
	}
	c := ownClient(t, []extensionsv1alpha1.ExtensionClass{garden}, cached, entry)
	g.Expect(c.Delete(t.Context(), entry)).To(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(entry), entry)).To(Succeed())
	stale = entry.DeepCopy()

	take := func(left ...string) {
		patch := client.MergeFrom(entry.DeepCopy())
		entry.Finalizers = left
		g.Expect(c.Patch(t.Context(), entry, patch)).To(Succeed())
	}
	take("f/b")
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(entry), &extensionsv1alpha1.BackupEntry{})).To(Succeed(), "somebody still holds it")
	take()
	g.Expect(apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(entry), &extensionsv1alpha1.BackupEntry{}))).To(BeTrue())

	stale.UID = "second"
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(entry), &extensionsv1alpha1.BackupEntry{})).To(Succeed(), "the next one of that name is another")
}

func TestAReadOrWriteThatFailsSaysSo(t *testing.T) {
	g := NewWithT(t)
	noAnswer := errors.New("no answer")
	c := ownClient(t, []extensionsv1alpha1.ExtensionClass{garden}, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return noAnswer
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return noAnswer
		},
	})
	entry := &extensionsv1alpha1.BackupEntry{ObjectMeta: metav1.ObjectMeta{Name: "entry"}}
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(entry), entry)).To(MatchError(noAnswer))
	g.Expect(c.Patch(t.Context(), entry, client.MergeFrom(entry.DeepCopy()))).To(MatchError(noAnswer))
}
