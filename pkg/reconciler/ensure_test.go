// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

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

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// counted is a fake API server with some Secrets that notes requests. As a real one, and unlike the fake client alone, it
// decodes what is read on top of what an object has.
func counted(t *testing.T, objects ...client.Object) (client.WithWatch, *[]string) {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(corev1.AddToScheme(scheme)).To(Succeed())
	NewWithT(t).Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
	var requests []string
	return interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			requests = append(requests, "get")
			if obj.GetName() != "" || len(obj.GetLabels()) > 0 {
				return errors.New("the object is not empty")
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			requests = append(requests, "create")
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			requests = append(requests, "patch")
			return c.Patch(ctx, obj, patch, opts...)
		},
	}), &requests
}

func TestEnsureSendsWhatIsNeeded(t *testing.T) {
	secret := func(value string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1"}, Data: map[string][]byte{"key": []byte(value)}}
	}
	for name, tt := range map[string]struct {
		before   []client.Object
		isThere  bool
		requests []string
	}{
		"a new object":                      {nil, false, []string{"create"}},
		"an object that is there and right": {[]client.Object{secret("right")}, true, []string{"get"}},
		"one that is there unexpectedly":    {[]client.Object{secret("right")}, false, []string{"create", "get"}},
		"one that is wrong":                 {[]client.Object{secret("wrong")}, true, []string{"get", "patch"}},
		"one that is unexpected and wrong":  {[]client.Object{secret("wrong")}, false, []string{"create", "get", "patch"}},
		"one that is gone":                  {nil, true, []string{"get", "create"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c, requests := counted(t, tt.before...)
			obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
			g.Expect((&Operation[infrastructureType]{written: &written{}}).Ensure(t.Context(), Target{Client: c, Live: c}, obj, tt.isThere, func() error {
				obj.Data = map[string][]byte{"key": []byte("right")}
				return nil
			})).To(Succeed())
			g.Expect(*requests).To(Equal(tt.requests))
			stored := &corev1.Secret{}
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(obj), stored)).To(Succeed())
			g.Expect(stored.Data).To(HaveKeyWithValue("key", []byte("right")))
		})
	}
}

func TestEnsureLeavesAloneWhatIsRefused(t *testing.T) {
	g := NewWithT(t)
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1"}}
	c, requests := counted(t, theirs)
	refusal := errors.New("it is somebody else's")
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	err := (&Operation[infrastructureType]{written: &written{}}).Ensure(t.Context(), Target{Client: c, Live: c}, s, false, func() error {
		if s.ResourceVersion != "" && s.Labels["ours"] == "" {
			return refusal
		}
		s.Labels = map[string]string{"ours": "yes"}
		return nil
	})
	g.Expect(err).To(BeIdenticalTo(refusal))
	g.Expect(*requests).To(Equal([]string{"create", "get"}))
}

func TestEnsureDoesNotOverwriteWhatChangedSinceItWasLookedAt(t *testing.T) {
	g := NewWithT(t)
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1"}}
	c, _ := counted(t, theirs)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	err := (&Operation[infrastructureType]{written: &written{}}).Ensure(t.Context(), Target{Client: c, Live: c}, s, true, func() error {
		younger := s.DeepCopy()
		younger.Data = map[string][]byte{"owner": []byte("younger")}
		g.Expect(c.Update(t.Context(), younger)).To(Succeed())
		s.Data = map[string][]byte{"owner": []byte("older")}
		return nil
	})
	g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	stored := &corev1.Secret{}
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(s), stored)).To(Succeed())
	g.Expect(stored.Data).To(HaveKeyWithValue("owner", []byte("younger")))
}
