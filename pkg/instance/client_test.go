// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// laggingCache is a client whose reads answer with what was there when it was frozen.
type laggingCache struct {
	client.WithWatch
	frozen map[client.ObjectKey]client.Object
}

func newLaggingCache(t *testing.T, objects ...client.Object) *laggingCache {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, extensionsv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return &laggingCache{WithWatch: fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(&extensionsv1alpha1.Infrastructure{}).WithObjects(objects...).Build()}
}

func (l *laggingCache) freeze(ctx context.Context, g Gomega, objects ...client.Object) {
	l.frozen = map[client.ObjectKey]client.Object{}
	for _, object := range objects {
		g.Expect(l.WithWatch.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		l.frozen[client.ObjectKeyFromObject(object)] = object.DeepCopyObject().(client.Object)
	}
}

func (l *laggingCache) fresh() *freshClient {
	cached := interceptor.NewClient(l.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			switch into := obj.(type) {
			case *extensionsv1alpha1.Infrastructure:
				if frozen, ok := l.frozen[key]; ok {
					frozen.(*extensionsv1alpha1.Infrastructure).DeepCopyInto(into)
					return nil
				}
			case *corev1.Secret:
				if frozen, ok := l.frozen[key]; ok {
					frozen.(*corev1.Secret).DeepCopyInto(into)
					return nil
				}
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	return NewFreshClient(cached, l.WithWatch).(*freshClient)
}

func newInfrastructure(annotations map[string]string, finalizers ...string) *extensionsv1alpha1.Infrastructure {
	return &extensionsv1alpha1.Infrastructure{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a--b", Name: "b", Annotations: annotations, Finalizers: finalizers}}
}

func TestReadsWhatItHasWrittenBeforeTheCacheHasIt(t *testing.T) {
	g := NewWithT(t)
	infra := newInfrastructure(map[string]string{"gardener.cloud/operation": "migrate"})
	cache := newLaggingCache(t, infra)
	cache.freeze(t.Context(), g, infra)
	c := cache.fresh()
	key := client.ObjectKeyFromObject(infra)

	g.Expect(c.Get(t.Context(), key, infra)).To(Succeed())
	g.Expect(infra.Annotations).NotTo(BeEmpty(), "nothing was written")

	before := infra.DeepCopy()
	infra.Status.ObservedGeneration = 7
	g.Expect(c.Status().Patch(t.Context(), infra, client.MergeFrom(before))).To(Succeed())
	before = infra.DeepCopy()
	infra.Annotations = nil
	g.Expect(c.Patch(t.Context(), infra, client.MergeFrom(before))).To(Succeed())

	got := &extensionsv1alpha1.Infrastructure{}
	g.Expect(c.Get(t.Context(), key, got)).To(Succeed())
	g.Expect(got).To(And(HaveField("Annotations", BeEmpty()), HaveField("Status.ObservedGeneration", int64(7))))

	got.Annotations = map[string]string{"changed": "by the caller"}
	again := &extensionsv1alpha1.Infrastructure{}
	g.Expect(c.Get(t.Context(), key, again)).To(Succeed())
	g.Expect(again.Annotations).To(BeEmpty(), "each caller has a copy of its own")
}

func TestReadsFromTheCacheOnceThatIsAsNew(t *testing.T) {
	g := NewWithT(t)
	infra := newInfrastructure(nil)
	cache := newLaggingCache(t, infra)
	cache.freeze(t.Context(), g, infra)
	c := cache.fresh()
	before := infra.DeepCopy()
	infra.Annotations = map[string]string{"own": "write"}
	g.Expect(c.Patch(t.Context(), infra, client.MergeFrom(before))).To(Succeed())

	before = infra.DeepCopy()
	infra.Annotations = map[string]string{"somebody": "else"}
	g.Expect(cache.WithWatch.Patch(t.Context(), infra, client.MergeFrom(before))).To(Succeed())
	cache.freeze(t.Context(), g, infra)

	got := &extensionsv1alpha1.Infrastructure{}
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(infra), got)).To(Succeed())
	g.Expect(got.Annotations).To(Equal(map[string]string{"somebody": "else"}))
}

func TestDoesNotFindWhatItsOwnWriteHasLetGo(t *testing.T) {
	g := NewWithT(t)
	infra := newInfrastructure(nil, "extensions.gardener.cloud/infrastructure")
	cache := newLaggingCache(t, infra)
	g.Expect(cache.Delete(t.Context(), infra)).To(Succeed())
	cache.freeze(t.Context(), g, infra)
	c := cache.fresh()
	before := infra.DeepCopy()
	infra.Finalizers = nil
	g.Expect(c.Patch(t.Context(), infra, client.MergeFrom(before))).To(Succeed())

	g.Expect(apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(infra), infra))).To(BeTrue())
}

func TestHowLongAWriteIsRemembered(t *testing.T) {
	g := NewWithT(t)
	machines := schema.GroupVersion{Group: "machine.sapcloud.io", Version: "v1alpha1"}
	g.Expect(ttlOf(machines.WithKind("MachineDeployment"))).To(BeNumerically(">", 2*DefaultWatchTimeout), "as long as a watch may hang")
	g.Expect(ttlOf(machines.WithKind("Machine"))).To(BeZero())
	g.Expect(ttlOf(extensionsv1alpha1.SchemeGroupVersion.WithKind("Worker"))).To(BeNumerically(">", 0))
	g.Expect(ttlOf(corev1.SchemeGroupVersion.WithKind("Service"))).To(BeNumerically(">", 0))
	g.Expect(ttlOf(corev1.SchemeGroupVersion.WithKind("Secret"))).To(BeZero())
}

func TestRemembersOnlyKnownKindsAndOnlyWhatSucceeded(t *testing.T) {
	g := NewWithT(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "a"}}
	infra := newInfrastructure(nil)
	cache := newLaggingCache(t, secret, infra)
	c := cache.fresh()

	secret.Data = map[string][]byte{"key": []byte("value")}
	g.Expect(c.Update(t.Context(), secret)).To(Succeed())
	infra.ResourceVersion = "1"
	infra.Annotations = map[string]string{"not": "written"}
	g.Expect(apierrors.IsConflict(c.Update(t.Context(), infra))).To(BeTrue())
	g.Expect(c.writes.Len()).To(BeZero())
}

func TestAsksTheAPIServerAfterTwoConflicts(t *testing.T) {
	g := NewWithT(t)
	infra := newInfrastructure(nil)
	cache := newLaggingCache(t, infra)
	cache.freeze(t.Context(), g, infra)
	c := cache.fresh()
	key := client.ObjectKeyFromObject(infra)
	infra.Annotations = map[string]string{"somebody": "else"}
	g.Expect(cache.WithWatch.Update(t.Context(), infra)).To(Succeed())

	write := func() error {
		got := &extensionsv1alpha1.Infrastructure{}
		g.Expect(c.Get(t.Context(), key, got)).To(Succeed())
		before := got.DeepCopy()
		got.Finalizers = []string{"own"}
		return c.Patch(t.Context(), got, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}
	for range 2 {
		g.Expect(apierrors.IsConflict(write())).To(BeTrue())
	}
	g.Expect(write()).To(Succeed())
	g.Expect(c.conflicts.Len()).To(BeZero(), "the next read is from the cache")
	got := &extensionsv1alpha1.Infrastructure{}
	g.Expect(c.Get(t.Context(), key, got)).To(Succeed())
	g.Expect(got).To(And(HaveField("Annotations", HaveKey("somebody")), HaveField("Finalizers", ConsistOf("own"))))
}
