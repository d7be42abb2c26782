// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"
)

// cluster is a fake cluster that counts requests and lets a test fail some of them.
type cluster struct {
	t testing.TB
	client.WithWatch
	requests []string
	// before and after may return an error for a request "VERB KIND" before or after it was carried out.
	before, after func(request string) error
	// cached is what a cache that lags behind says of ManagedResources.
	cached func(key client.ObjectKey, mr *resourcesv1alpha1.ManagedResource) error
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(corev1.AddToScheme(scheme)).To(Succeed())
	NewWithT(t).Expect(resourcesv1alpha1.AddToScheme(scheme)).To(Succeed())
	c := &cluster{t: t, WithWatch: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&resourcesv1alpha1.ManagedResource{}).Build()}
	return c
}

// applied is a cluster with a ManagedResource that has one object, and the writer that wrote it.
func applied(t testing.TB) (*cluster, *Writer) {
	t.Helper()
	c := newCluster(t)
	writer := New(c.client())
	NewWithT(t).Expect(writer.Apply(t.Context(), wanted("a"))).To(Succeed())
	return c, writer
}

// client is the one for the Writer; the cluster's own methods are neither counted nor disturbed.
func (c *cluster) client() client.Client {
	return interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if mr, ok := obj.(*resourcesv1alpha1.ManagedResource); ok && c.cached != nil {
				return c.cached(key, mr)
			}
			return c.request("get", obj, func() error { return inner.Get(ctx, key, obj, opts...) })
		},
		Create: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return c.request("create", obj, func() error { return inner.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, inner client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return c.request("patch", obj, func() error { return inner.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return c.request("delete", obj, func() error { return inner.Delete(ctx, obj, opts...) })
		},
	})
}

func (c *cluster) request(verb string, obj client.Object, do func() error) error {
	request := verb + " "
	switch obj.(type) {
	case *resourcesv1alpha1.ManagedResource:
		request += "ManagedResource"
	case *corev1.Secret:
		request += "Secret"
	case *metav1.PartialObjectMetadata:
		request += "metadata"
	default:
		c.t.Errorf("unexpected %s of %T", verb, obj)
	}
	c.requests = append(c.requests, request)

	if c.before != nil {
		if err := c.before(request); err != nil {
			return err
		}
	}
	err := do()
	if err == nil && c.after != nil {
		err = c.after(request)
	}
	return err
}

// taken returns the requests since the last call.
func (c *cluster) taken() []string {
	out := c.requests
	c.requests = nil
	return out
}

func (c *cluster) managedResource() *resourcesv1alpha1.ManagedResource {
	c.t.Helper()
	mr := &resourcesv1alpha1.ManagedResource{}
	NewWithT(c.t).Expect(c.Get(c.t.Context(), key, mr)).To(Succeed())
	return mr
}

// setFinalizers has gardener-resource-manager hold the ManagedResource, or let it go.
func (c *cluster) setFinalizers(finalizers ...string) *resourcesv1alpha1.ManagedResource {
	c.t.Helper()
	mr := c.managedResource()
	mr.Finalizers = finalizers
	NewWithT(c.t).Expect(c.Update(c.t.Context(), mr)).To(Succeed())
	return mr
}

func (c *cluster) secret(name string) *corev1.Secret {
	c.t.Helper()
	secret := &corev1.Secret{}
	NewWithT(c.t).Expect(c.Get(c.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, secret)).To(Succeed())
	return secret
}

// objects are the names of the objects that GRM would apply.
func (c *cluster) objects() []string {
	c.t.Helper()
	g := NewWithT(c.t)
	mr := c.managedResource()
	g.Expect(mr.Spec.SecretRefs).To(HaveLen(1))
	objs, err := managedresources.ExtractObjectsFromSecret(yaml.NewDecodingSerializer(unstructured.UnstructuredJSONScheme), c.secret(mr.Spec.SecretRefs[0].Name))
	g.Expect(err).NotTo(HaveOccurred())
	names := make([]string, 0, len(objs))
	for _, obj := range objs {
		names = append(names, obj.GetName())
	}
	return names
}

var key = client.ObjectKey{Namespace: "shoot--local--foo", Name: "ext"}

func wanted(names ...string) ManagedResource {
	out := ManagedResource{Namespace: key.Namespace, Name: key.Name, InjectedLabels: map[string]string{"a": "b"}}
	for _, name := range names {
		out.Objects = append(out.Objects, serviceAccount(name))
	}
	return out
}

func failOnce(request string, err error) func(string) error {
	done := false
	return func(r string) error {
		if r != request || done {
			return nil
		}
		done = true
		return err
	}
}

var (
	managedResources = schema.GroupResource{Group: resourcesv1alpha1.SchemeGroupVersion.Group, Resource: "managedresources"}
	errConflict      = apierrors.NewConflict(managedResources, key.Name, errors.New("changed"))
	errTimeout       = apierrors.NewTimeoutError("no answer", 1)
)
