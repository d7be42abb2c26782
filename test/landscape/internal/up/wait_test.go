// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// object is one of a kind that Gardener has a status in.
func object(kind schema.GroupVersionKind, name, state string, conditions ...any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"lastOperation": map[string]any{"type": "Reconcile", "state": state}}}}
	if len(conditions) > 0 {
		_ = unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions")
	}
	o.SetGroupVersionKind(kind)
	o.SetName(name)
	return o
}

func condition(kind, status string) any {
	return map[string]any{"type": kind, "status": status, "message": "because"}
}

// watched tells when somebody has begun to watch, after which nothing that happens is missed.
func fakeCluster(objects ...client.Object) (c client.WithWatch, watched chan struct{}) {
	scheme := runtime.NewScheme()
	for _, kind := range []schema.GroupVersionKind{gardens, seeds, shoots} {
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	watched = make(chan struct{}, 10)
	return fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			w, err := c.Watch(ctx, list, opts...)
			watched <- struct{}{}
			return w, err
		},
	}).Build(), watched
}

func TestWaitFollowsMilestonesInBothClusters(t *testing.T) {
	g := NewWithT(t)
	garden := object(gardens, "garden", "Processing")
	runtimeGarden, watchedRuntime := fakeCluster(garden)
	virtual, watchedVirtual := fakeCluster()
	c := newClock()
	l := Landscape{Now: c.Now, times: c.times(milestonesFile(t))}
	g.Expect(l.times.begin()).To(Succeed())
	var mu sync.Mutex
	var lines []string
	progress := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprintf(format, args...))
	}
	go func() {
		<-watchedRuntime
		_ = unstructured.SetNestedField(garden.Object, "Succeeded", "status", "lastOperation", "state")
		_ = runtimeGarden.Update(t.Context(), garden)
		<-watchedVirtual
		_ = virtual.Create(t.Context(), object(seeds, "local", "Succeeded", condition("GardenletReady", "True")))
	}()
	result, err := l.wait(t.Context(), progress, []milestone{
		{title: "Garden Succeeded", client: runtimeGarden, kind: gardens, reached: reconciled},
		{title: "Seed healthy", client: virtual, kind: seeds, reached: healthy},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal("2 milestones"))
	g.Expect(lines).To(ConsistOf("Garden Succeeded (1 objects)", "Seed healthy (1 conditions are True)"))
	g.Expect(l.times.content.Milestones).To(ConsistOf(HaveField("Title", "Garden Succeeded"), HaveField("Title", "Seed healthy")))
}

func TestWaitSaysWhatItWaitedFor(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	c, watched := fakeCluster(object(seeds, "local", "Processing"))
	go func() { <-watched; cancel() }()
	l := Landscape{Now: newClock().Now}
	_, err := l.wait(ctx, func(string, ...any) {}, []milestone{
		{title: "Seed Succeeded", client: c, kind: seeds, reached: reconciled},
	})
	g.Expect(err).To(MatchError(And(ContainSubstring("Seed Succeeded: Seed local Processing"), ContainSubstring("context canceled"))))
}

func TestWaitOutlastsAKindThatIsNotThereYet(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	scheme := runtime.NewScheme()
	c := fakeclient.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			cancel()
			return &meta.NoKindMatchError{GroupKind: seeds.GroupKind()}
		},
	}).Build()
	last, err := milestone{title: "Seed", kind: seeds, reached: reconciled}.wait(ctx, c, func(string) {})
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(last).To(Equal("the API server doesn't know the kind yet"))
}

func TestReconciled(t *testing.T) {
	outdated := object(shoots, "local", "Succeeded")
	outdated.SetGeneration(2)
	for _, test := range []struct {
		name    string
		objects []*unstructured.Unstructured
		want    bool
	}{
		{name: "is not reached without objects"},
		{name: "is reached when the last operation succeeded", objects: []*unstructured.Unstructured{object(shoots, "local", "Succeeded")}, want: true},
		{name: "is not reached while one is at work", objects: []*unstructured.Unstructured{object(shoots, "local", "Succeeded"), object(shoots, "other", "Processing")}},
		{name: "is not reached before the newest generation is seen", objects: []*unstructured.Unstructured{outdated}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, why := reconciled(deref(test.objects))
			NewWithT(t).Expect(got).To(Equal(test.want), why)
		})
	}
}

func TestHealthy(t *testing.T) {
	for _, test := range []struct {
		name    string
		objects []*unstructured.Unstructured
		want    bool
	}{
		{name: "is not reached without objects"},
		{name: "is not reached without conditions", objects: []*unstructured.Unstructured{object(seeds, "local", "Succeeded")}},
		{name: "is reached with all conditions True", objects: []*unstructured.Unstructured{object(seeds, "local", "Succeeded", condition("A", "True"), condition("B", "True"))}, want: true},
		{name: "is not reached with one that is unknown", objects: []*unstructured.Unstructured{object(seeds, "local", "Succeeded", condition("A", "True"), condition("B", "Unknown"))}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, why := healthy(deref(test.objects))
			NewWithT(t).Expect(got).To(Equal(test.want), why)
		})
	}
}

func deref(objects []*unstructured.Unstructured) []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for _, o := range objects {
		all = append(all, *o)
	}
	return all
}
