// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

func TestOnlyOwnObjectsAreHandedOver(t *testing.T) {
	garden, seed, shoot := extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot
	all := []extensionsv1alpha1.ExtensionClass{garden, seed, shoot}

	for name, tt := range map[string]struct {
		serves        []extensionsv1alpha1.ExtensionClass
		class         *extensionsv1alpha1.ExtensionClass
		extensionType string
		handedOver    bool
	}{
		"one of the class":                          {[]extensionsv1alpha1.ExtensionClass{garden}, &garden, "local", true},
		"one of another class":                      {[]extensionsv1alpha1.ExtensionClass{garden}, &shoot, "local", false},
		"one of one of two classes":                 {[]extensionsv1alpha1.ExtensionClass{seed, shoot}, &seed, "local", true},
		"one without class, which stands for shoot": {[]extensionsv1alpha1.ExtensionClass{seed, shoot}, nil, "local", true},
		"one whose class garden was taken away":     {[]extensionsv1alpha1.ExtensionClass{garden}, nil, "local", false},
		"one of another type":                       {[]extensionsv1alpha1.ExtensionClass{garden}, &garden, "other", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			serves, err := class.New(tt.serves, all...)
			g.Expect(err).NotTo(HaveOccurred())

			handedOver := runOnlyOwn(g, serves, interceptor.Funcs{}, &extensionsv1alpha1.BackupEntry{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       extensionsv1alpha1.BackupEntrySpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: tt.extensionType, Class: tt.class}},
			}, name, nil)
			g.Expect(handedOver).To(Equal(tt.handedOver))
		})
	}
}

func TestWhatIsGoneIsNotHandedOver(t *testing.T) {
	g := NewWithT(t)
	serves, err := class.New([]extensionsv1alpha1.ExtensionClass{"garden"}, "garden")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(runOnlyOwn(g, serves, interceptor.Funcs{}, &extensionsv1alpha1.BackupEntry{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, "gone", nil)).To(BeFalse())
}

func TestWhoseAnObjectIsMustBeKnown(t *testing.T) {
	g := NewWithT(t)
	serves, err := class.New([]extensionsv1alpha1.ExtensionClass{"garden"}, "garden")
	g.Expect(err).NotTo(HaveOccurred())
	noAnswer := errors.New("no answer")
	broken := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return noAnswer
	}}
	g.Expect(runOnlyOwn(g, serves, broken, &extensionsv1alpha1.BackupEntry{ObjectMeta: metav1.ObjectMeta{Name: name}}, name, noAnswer)).To(BeFalse())
}

// runOnlyOwn tells whether the object of that name is handed over.
func runOnlyOwn(g *WithT, serves class.Set, funcs interceptor.Funcs, obj client.Object, requested string, wantErr error) bool {
	scheme := runtime.NewScheme()
	g.Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(obj).WithInterceptorFuncs(funcs).Build()

	var handedOver bool
	reconciler := common.OnlyOwn(c, func() *extensionsv1alpha1.BackupEntry { return &extensionsv1alpha1.BackupEntry{} }, "local", serves,
		reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			handedOver = true
			return reconcile.Result{}, nil
		}))
	_, err := reconciler.Reconcile(context.Background(), reconcile.Request{NamespacedName: client.ObjectKey{Name: requested}})
	if wantErr == nil {
		g.Expect(err).NotTo(HaveOccurred())
	} else {
		g.Expect(err).To(MatchError(wantErr))
	}
	return handedOver
}
