// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package touch_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/touch"
)

func TestObject(t *testing.T) {
	role := func() *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a--b", Name: "machine-controller-manager"}}
	}

	t.Run("sends an empty merge patch", func(t *testing.T) {
		g := NewWithT(t)
		var sent []string
		c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(role()).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				data, err := patch.Data(obj)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(patch.Type()).To(Equal(types.MergePatchType))
				sent = append(sent, client.ObjectKeyFromObject(obj).String()+" "+string(data))
				return c.Patch(ctx, obj, patch, opts...)
			},
		}).Build()

		g.Expect(touch.Object(t.Context(), c, role(), func() bool { return true })).To(Succeed())
		g.Expect(sent).To(ConsistOf("shoot--a--b/machine-controller-manager {}"))

		g.Expect(touch.Object(t.Context(), c, role(), func() bool { return false })).To(MatchError(And(
			ContainSubstring("shoot--a--b/machine-controller-manager"), ContainSubstring("they did not change it"))))
	})

	t.Run("does not expect the webhooks to change what is being deleted", func(t *testing.T) {
		g := NewWithT(t)
		deleted := role()
		deleted.DeletionTimestamp, deleted.Finalizers = new(metav1.Now()), []string{"keep"}
		c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(deleted).Build()
		g.Expect(touch.Object(t.Context(), c, role(), func() bool { return false })).To(Succeed())
	})

	t.Run("has nothing to do for an object that does not exist", func(t *testing.T) {
		NewWithT(t).Expect(touch.Object(t.Context(), fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), role(), func() bool { return false })).To(Succeed())
	})

	t.Run("names the object that could not be patched", func(t *testing.T) {
		c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return errors.New("forbidden")
			},
		}).Build()
		NewWithT(t).Expect(touch.Object(t.Context(), c, role(), func() bool { return true })).To(MatchError(And(ContainSubstring("shoot--a--b/machine-controller-manager"), ContainSubstring("forbidden"))))
	})
}

func TestShootNamespaces(t *testing.T) {
	namespace := func(name, provider string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"gardener.cloud/role": "shoot", "shoot.gardener.cloud/provider": provider}}}
	}
	deleted := namespace("shoot--a--gone", "local")
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: metav1.Now().Time}, []string{"kubernetes"}

	t.Run("returns those of this provider that are not being deleted", func(t *testing.T) {
		g := NewWithT(t)
		c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(
			namespace("shoot--a--b", "local"), namespace("shoot--a--c", "aws"), namespace("shoot--a--d", "local"), deleted,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "garden"}},
		).Build()

		names, err := touch.ShootNamespaces(t.Context(), c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(names).To(ConsistOf("shoot--a--b", "shoot--a--d"))
	})

	t.Run("tells what failed", func(t *testing.T) {
		c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("timeout")
			},
		}).Build()
		_, err := touch.ShootNamespaces(t.Context(), c)
		NewWithT(t).Expect(err).To(MatchError("listing the namespaces of shoots: timeout"))
	})
}
