// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// seed has Nodes, and answers lists and patches as a test wants it.
type seed struct {
	*toucher
	list  func() error
	patch func(name string) (served bool, err error)
	// patches are what has been asked for.
	patches []string
}

func newSeed(t *testing.T, nodes ...string) *seed {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100"), corev1.ResourceMemory: resource.MustParse("100Gi")}
	s := &seed{
		list:  func() error { return nil },
		patch: func(string) (bool, error) { return true, nil },
	}

	builder := fakeclient.NewClientBuilder().WithScheme(scheme)
	for _, name := range nodes {
		builder.WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	c := builder.WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			g.Expect(list).To(BeAssignableToTypeOf(&metav1.PartialObjectMetadataList{}), "the rest of a Node is not needed")
			if err := s.list(); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, subResource string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			g.Expect(subResource).To(Equal("status"))
			g.Expect(patch.Data(obj)).To(MatchJSON(`{}`))
			g.Expect(patch.Type()).To(Equal(types.MergePatchType))

			s.patches = append(s.patches, obj.GetName())
			served, err := s.patch(obj.GetName())
			if served {
				obj.(*corev1.Node).Status.Capacity = capacity.DeepCopy()
			}
			return err
		},
	}).Build()
	s.toucher = &toucher{reader: c, client: c, capacity: capacity}
	return s
}

func TestTouch(t *testing.T) {
	t.Run("sends an empty patch for each Node", func(t *testing.T) {
		g := NewWithT(t)
		s := newSeed(t, "one", "two")
		g.Expect(s.touch(t.Context())).To(Succeed())
		g.Expect(s.patches).To(ConsistOf("one", "two"))
	})

	t.Run("has nothing to do in a seed without Nodes", func(t *testing.T) {
		g := NewWithT(t)
		s := newSeed(t)
		g.Expect(s.touch(t.Context())).To(Succeed())
		g.Expect(s.patches).To(BeEmpty())
	})

	t.Run("fails for a Node that cannot be patched, after all others, and leaves one alone that is gone", func(t *testing.T) {
		g := NewWithT(t)
		s := newSeed(t, "fails", "gone", "good")
		s.patch = func(name string) (bool, error) {
			switch name {
			case "fails":
				return false, apierrors.NewConflict(corev1.Resource("nodes"), name, errors.New("somebody else wrote"))
			case "gone":
				return false, apierrors.NewNotFound(corev1.Resource("nodes"), name)
			}
			return true, nil
		}
		g.Expect(s.touch(t.Context())).To(MatchError(And(HavePrefix("patching the status of Node fails: "), ContainSubstring("somebody else wrote"))))
		g.Expect(s.patches).To(ConsistOf("fails", "gone", "good"))
	})

	t.Run("tries again if the API server did not ask the webhook yet", func(t *testing.T) {
		g := NewWithT(t)
		s := newSeed(t, "one")
		s.patch = func(string) (bool, error) { return len(s.patches) > 1, nil }
		g.Expect(s.touch(t.Context())).To(MatchError(ContainSubstring("Node one: it says 0 of ")))
		g.Expect(s.touch(t.Context())).To(Succeed())
	})

	t.Run("tries again if Nodes cannot be listed", func(t *testing.T) {
		g := NewWithT(t)
		s := newSeed(t, "one")
		s.list = func() error { return errors.New("connection refused") }
		g.Expect(s.touch(t.Context())).To(MatchError("listing Nodes: connection refused"))
		s.list = func() error { return nil }
		g.Expect(s.touch(t.Context())).To(Succeed())
		g.Expect(s.patches).To(ConsistOf("one"))
	})
}
