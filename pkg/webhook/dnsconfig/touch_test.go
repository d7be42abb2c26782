// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsconfig

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// asking is a Deployment as the webhooks leave it behind.
func asking(namespace string, servers ...string) *appsv1.Deployment {
	deployment := exporter(namespace)
	deployment.Spec.Template.Spec.DNSPolicy, deployment.Spec.Template.Spec.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: servers}
	return deployment
}

func TestTouchDeployment(t *testing.T) {
	touch := func(t *testing.T, c client.Client) error {
		t.Helper()
		return touchDeployment(t.Context(), c, "shoot--a--b", "blackbox-exporter", []string{addressIPv4})
	}

	t.Run("sends an empty merge patch", func(t *testing.T) {
		g := NewWithT(t)
		var sent []string
		c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(asking("shoot--a--b", addressIPv4)).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				data, err := patch.Data(obj)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(patch.Type()).To(Equal(types.MergePatchType))
				sent = append(sent, client.ObjectKeyFromObject(obj).String()+" "+string(data))
				return c.Patch(ctx, obj, patch, opts...)
			},
		}).Build()

		g.Expect(touch(t, c)).To(Succeed())
		g.Expect(sent).To(ConsistOf("shoot--a--b/blackbox-exporter {}"))

		g.Expect(touch(t, fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(exporter("shoot--a--b")).Build())).To(MatchError(And(
			ContainSubstring("shoot--a--b/blackbox-exporter"), ContainSubstring("they did not change it"))))
	})

	t.Run("does not expect the webhooks to change what is being deleted", func(t *testing.T) {
		g := NewWithT(t)
		deleted := exporter("shoot--a--b")
		deleted.DeletionTimestamp, deleted.Finalizers = new(metav1.Now()), []string{"keep"}
		g.Expect(touch(t, fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(deleted).Build())).To(Succeed())
	})

	t.Run("has nothing to do for a Deployment that does not exist", func(t *testing.T) {
		NewWithT(t).Expect(touch(t, fake.NewClientBuilder().WithScheme(scheme.Scheme).Build())).To(Succeed())
	})

	t.Run("names the Deployment that could not be patched", func(t *testing.T) {
		c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return errors.New("forbidden")
			},
		}).Build()
		NewWithT(t).Expect(touch(t, c)).To(MatchError(And(ContainSubstring("shoot--a--b/blackbox-exporter"), ContainSubstring("forbidden"))))
	})
}

func TestTouchLooksAtTheNamespacesOfShoots(t *testing.T) {
	namespace := func(name, provider string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"gardener.cloud/role": "shoot", "shoot.gardener.cloud/provider": provider}}}
	}
	deleted := namespace("shoot--a--gone", "local")
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: metav1.Now().Time}, []string{"kubernetes"}

	t.Run("of this provider that are not being deleted", func(t *testing.T) {
		g := NewWithT(t)
		var touched []string
		c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(
			service(addressIPv4), namespace("shoot--a--b", "local"), namespace("shoot--a--c", "aws"), namespace("shoot--a--d", "local"), deleted,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "garden"}},
		).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				touched = append(touched, obj.GetNamespace())
				return c.Patch(ctx, obj, patch, opts...)
			},
		}).Build()
		g.Expect(Touch(t.Context(), c, c, dnsNamespace)).To(Succeed())
		g.Expect(touched).To(ConsistOf("garden", "garden", "shoot--a--b", "shoot--a--d"))
	})

	t.Run("and tells what failed", func(t *testing.T) {
		c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(service(addressIPv4)).WithInterceptorFuncs(interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("timeout")
			},
		}).Build()
		NewWithT(t).Expect(Touch(t.Context(), c, c, dnsNamespace)).To(MatchError("listing the namespaces of shoots: timeout"))
	})
}
