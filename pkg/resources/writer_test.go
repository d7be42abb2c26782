// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
)

func TestApplyWritesAnImmutableCompressedSecretAndAReferenceToIt(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	mr := wanted("b", "a")
	mr.Class, mr.Labels = "seed", map[string]string{"role": "x"}
	mr.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1"}}

	g.Expect(New(c.client()).Apply(t.Context(), mr)).To(Succeed())

	written := c.managedResource()
	g.Expect(written.Labels).To(Equal(map[string]string{"role": "x", "origin": "provider-local"}))
	g.Expect(*written.Spec.Class).To(Equal("seed"))
	g.Expect(written.Spec.InjectLabels).To(Equal(map[string]string{"a": "b"}))
	g.Expect(written.OwnerReferences).To(Equal(mr.OwnerReferences))

	name := written.Spec.SecretRefs[0].Name
	g.Expect(name).To(MatchRegexp("^managedresource-ext-[0-9a-f]{16}$"))
	g.Expect(written.Annotations).To(HaveLen(1))
	for key, value := range written.Annotations {
		g.Expect(key).To(HavePrefix("reference.resources.gardener.cloud/secret-"))
		g.Expect(value).To(Equal(name))
	}

	secret := c.secret(name)
	g.Expect(*secret.Immutable).To(BeTrue())
	g.Expect(secret.Labels).To(HaveKeyWithValue("resources.gardener.cloud/garbage-collectable-reference", "true"))
	g.Expect(secret.Data).To(HaveLen(1))
	g.Expect(secret.Data).To(HaveKey("data.yaml.br"))
	g.Expect(c.objects()).To(Equal([]string{"a", "b"}))
	g.Expect(c.taken()).To(Equal([]string{"get ManagedResource", "create Secret", "create ManagedResource"}))
}

func TestApplyOfTheSameWritesNothingAndReadsNoSecret(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	writer := New(c.client())
	g.Expect(writer.Apply(t.Context(), wanted("a", "b"))).To(Succeed())
	c.taken()

	for range 3 {
		g.Expect(writer.Apply(t.Context(), wanted("b", "a"))).To(Succeed())
		g.Expect(c.taken()).To(Equal([]string{"get ManagedResource"}))
	}
}

func TestTheStatusOfAManagedResourceIsNoReasonToReadItsSecret(t *testing.T) {
	for name, test := range map[string]struct {
		applied gardencorev1beta1.ConditionStatus
		behind  int64
		reads   bool
	}{
		"GRM has applied it":         {gardencorev1beta1.ConditionTrue, 0, false},
		"GRM could not apply it":     {gardencorev1beta1.ConditionFalse, 0, true},
		"GRM has applied an old one": {gardencorev1beta1.ConditionTrue, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			writer := New(c.client())
			g.Expect(writer.Apply(t.Context(), wanted("a"))).To(Succeed())
			mr := c.managedResource()
			mr.Status.ObservedGeneration = mr.Generation - test.behind
			mr.Status.Conditions = []gardencorev1beta1.Condition{{Type: resourcesv1alpha1.ResourcesApplied, Status: test.applied}}
			g.Expect(c.Status().Update(t.Context(), mr)).To(Succeed())
			c.taken()

			for _, writer := range []*Writer{writer, New(c.client())} {
				g.Expect(writer.Apply(t.Context(), wanted("a"))).To(Succeed())
				requests := []string{"get ManagedResource"}
				if test.reads {
					requests = append(requests, "get metadata")
				}
				g.Expect(c.taken()).To(Equal(requests))
			}
		})
	}
}

func TestANewWriterFindsWhatIsThereWithoutWriting(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	g.Expect(New(c.client()).Apply(t.Context(), wanted("a"))).To(Succeed())
	c.taken()

	restarted := New(c.client())
	g.Expect(restarted.Apply(t.Context(), wanted("a"))).To(Succeed())
	g.Expect(c.taken()).To(Equal([]string{"get ManagedResource", "get metadata"}))
	g.Expect(restarted.Apply(t.Context(), wanted("a"))).To(Succeed())
	g.Expect(c.taken()).To(Equal([]string{"get ManagedResource"}))
}

func TestApplyOfOtherObjectsRefersToANewSecretOnly(t *testing.T) {
	g := NewWithT(t)
	c, writer := applied(t)
	former := c.managedResource().Spec.SecretRefs[0].Name

	g.Expect(writer.Apply(t.Context(), wanted("a", "b"))).To(Succeed())
	g.Expect(c.objects()).To(Equal([]string{"a", "b"}))
	g.Expect(c.managedResource().Annotations).To(HaveLen(1), "a reference to the former secret would keep it")
	g.Expect(c.managedResource().Spec.SecretRefs[0].Name).NotTo(Equal(former))

	c.taken()
	g.Expect(writer.Apply(t.Context(), wanted("a"))).To(Succeed(), "the former secret is still there")
	g.Expect(c.objects()).To(Equal([]string{"a"}))
	g.Expect(c.taken()).To(Equal([]string{"get ManagedResource", "create Secret", "get metadata", "patch ManagedResource"}))

	g.Expect(writer.Apply(t.Context(), wanted())).To(Succeed(), "none at all")
	g.Expect(c.objects()).To(BeEmpty())
}

func TestApplyOfOtherFieldsWritesNoSecret(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	writer := New(c.client())
	before := wanted("a")
	before.Class, before.InjectedLabels = "seed", map[string]string{"a": "b", "c": "d"}
	g.Expect(writer.Apply(t.Context(), before)).To(Succeed())
	c.taken()

	for name, mr := range map[string]ManagedResource{"some": wanted("a"), "none": {Namespace: key.Namespace, Name: key.Name, Objects: wanted("a").Objects}} {
		g.Expect(writer.Apply(t.Context(), mr)).To(Succeed(), name)
		written := c.managedResource()
		g.Expect(written.Spec.Class).To(BeNil(), name)
		g.Expect(*written.Spec.KeepObjects).To(BeFalse(), name)
		g.Expect(written.Spec.InjectLabels).To(HaveLen(len(mr.InjectedLabels)), name)
		g.Expect(c.taken()).To(Equal([]string{"get ManagedResource", "get metadata", "patch ManagedResource"}), name)
	}
}

func TestApplyHealsWhatOthersDid(t *testing.T) {
	for name, tt := range map[string]struct {
		harm     func(ctx context.Context, c *cluster, mr *resourcesv1alpha1.ManagedResource, secret *corev1.Secret) error
		requests []string
	}{
		"the ManagedResource was deleted": {
			func(ctx context.Context, c *cluster, mr *resourcesv1alpha1.ManagedResource, _ *corev1.Secret) error {
				return c.Delete(ctx, mr)
			},
			[]string{"get ManagedResource", "create Secret", "get metadata", "create ManagedResource"},
		},
		"both were deleted": {
			func(ctx context.Context, c *cluster, mr *resourcesv1alpha1.ManagedResource, secret *corev1.Secret) error {
				return errors.Join(c.Delete(ctx, mr), c.Delete(ctx, secret))
			},
			[]string{"get ManagedResource", "create Secret", "create ManagedResource"},
		},
		"the Secret was deleted, which GRM reports": {
			func(ctx context.Context, c *cluster, mr *resourcesv1alpha1.ManagedResource, secret *corev1.Secret) error {
				mr.Status.ObservedGeneration = 7
				return errors.Join(c.Delete(ctx, secret), c.Status().Update(ctx, mr))
			},
			[]string{"get ManagedResource", "get metadata", "create Secret"},
		},
		"the spec was edited": {
			func(ctx context.Context, c *cluster, mr *resourcesv1alpha1.ManagedResource, _ *corev1.Secret) error {
				mr.Spec.SecretRefs, mr.Spec.InjectLabels = nil, map[string]string{"x": "y"}
				return c.Update(ctx, mr)
			},
			[]string{"get ManagedResource", "create Secret", "get metadata", "patch ManagedResource"},
		},
		"the reference annotation was removed": {
			func(ctx context.Context, c *cluster, mr *resourcesv1alpha1.ManagedResource, _ *corev1.Secret) error {
				mr.Annotations = nil
				return c.Update(ctx, mr)
			},
			[]string{"get ManagedResource", "get metadata", "patch ManagedResource"},
		},
		"the garbage label was removed": {
			func(ctx context.Context, c *cluster, mr *resourcesv1alpha1.ManagedResource, secret *corev1.Secret) error {
				secret.Labels, mr.Status.ObservedGeneration = nil, 7
				return errors.Join(c.Update(ctx, secret), c.Status().Update(ctx, mr))
			},
			[]string{"get ManagedResource", "get metadata", "patch metadata"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			writer := New(c.client())
			g.Expect(writer.Apply(t.Context(), wanted("a"))).To(Succeed())
			before := c.managedResource()
			g.Expect(tt.harm(t.Context(), c, c.managedResource(), c.secret(before.Spec.SecretRefs[0].Name))).To(Succeed())
			c.taken()

			g.Expect(writer.Apply(t.Context(), wanted("a"))).To(Succeed())
			g.Expect(c.taken()).To(Equal(tt.requests))
			healed := c.managedResource()
			g.Expect(healed.Spec).To(Equal(before.Spec))
			g.Expect(healed.Annotations).To(Equal(before.Annotations))
			g.Expect(c.secret(before.Spec.SecretRefs[0].Name).Labels).To(HaveKey("resources.gardener.cloud/garbage-collectable-reference"))
			g.Expect(c.objects()).To(Equal([]string{"a"}))

			g.Expect(writer.Apply(t.Context(), wanted("a"))).To(Succeed())
			g.Expect(c.taken()).To(Equal([]string{"get ManagedResource"}))
		})
	}
}

func TestApplyLeavesFieldsOfOthersAlone(t *testing.T) {
	g := NewWithT(t)
	c, writer := applied(t)
	mr := c.managedResource()
	mr.Finalizers, mr.Labels["care"] = []string{"resources.gardener.cloud/gardener-resource-manager"}, "x"
	mr.Annotations["note"] = "mine"
	g.Expect(c.Update(t.Context(), mr)).To(Succeed())

	g.Expect(writer.Apply(t.Context(), wanted("a", "b"))).To(Succeed())
	g.Expect(c.managedResource().Finalizers).To(HaveLen(1))
	g.Expect(c.managedResource().Labels).To(HaveKeyWithValue("care", "x"))
	g.Expect(c.managedResource().Annotations).To(HaveKeyWithValue("note", "mine"))
}

func TestApplyAfterAnErrorFinishesTheWork(t *testing.T) {
	for request, err := range map[string]error{
		"get ManagedResource":    errTimeout,
		"create Secret":          errTimeout,
		"create ManagedResource": errTimeout,
		"get metadata":           errTimeout,
		"patch ManagedResource":  errConflict,
	} {
		for _, when := range []string{"before", "after"} {
			t.Run(request+" fails "+when+" it is carried out", func(t *testing.T) {
				g := NewWithT(t)
				c := newCluster(t)
				writer := New(c.client())
				apply := func(names ...string) error { return writer.Apply(t.Context(), wanted(names...)) }

				// The second one patches, the third one reads the metadata of the Secret that is there again.
				steps := [][]string{{"a"}, {"b"}, {"a"}}
				if when == "before" {
					c.before = failOnce(request, err)
				} else {
					c.after = failOnce(request, err)
				}

				failures := 0
				for _, names := range steps {
					if failed := apply(names...); failed != nil {
						failures++
						g.Expect(failed).To(MatchError(ContainSubstring("applying ManagedResource " + key.String())))
						g.Expect(errors.Is(failed, err)).To(BeTrue())
						g.Expect(apply(names...)).To(Succeed())
					}
					g.Expect(c.objects()).To(Equal(names))
				}
				g.Expect(failures).To(Equal(1))
			})
		}
	}
}

func TestApplyByAnotherInstanceFinishesWhatACrashLeft(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.before = failOnce("create ManagedResource", errTimeout)
	g.Expect(New(c.client()).Apply(t.Context(), wanted("a"))).NotTo(Succeed())

	g.Expect(New(c.client()).Apply(t.Context(), wanted("a"))).To(Succeed())
	g.Expect(c.objects()).To(Equal([]string{"a"}))
}

func TestApplyAdoptsWhatTheCacheDoesNotShow(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	g.Expect(c.Create(t.Context(), &resourcesv1alpha1.ManagedResource{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: resourcesv1alpha1.ManagedResourceSpec{
			Class:        new("seed"),
			SecretRefs:   []corev1.LocalObjectReference{{Name: "other"}},
			InjectLabels: map[string]string{"other": "label"},
		},
	})).To(Succeed())
	c.cached = func(key client.ObjectKey, _ *resourcesv1alpha1.ManagedResource) error {
		return apierrors.NewNotFound(managedResources, key.Name)
	}

	g.Expect(New(c.client()).Apply(t.Context(), wanted("a"))).To(Succeed())
	g.Expect(c.objects()).To(Equal([]string{"a"}))
	g.Expect(c.managedResource().Labels).To(HaveKeyWithValue(LabelOrigin, Origin))
	g.Expect(c.managedResource().Spec.Class).To(BeNil())
	g.Expect(c.managedResource().Spec.InjectLabels).To(Equal(map[string]string{"a": "b"}))
	g.Expect(c.taken()).To(Equal([]string{"create Secret", "create ManagedResource", "patch ManagedResource", "patch ManagedResource"}))
}

func TestApplyWaitsForASecretThatIsBeingDeleted(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	g.Expect(New(c.client()).Apply(t.Context(), wanted("a"))).To(Succeed())
	secret := c.secret(c.managedResource().Spec.SecretRefs[0].Name)
	secret.Finalizers = []string{"someone/else"}
	g.Expect(c.Update(t.Context(), secret)).To(Succeed())
	g.Expect(c.Delete(t.Context(), secret)).To(Succeed())

	writer := New(c.client())
	g.Expect(writer.Apply(t.Context(), wanted("a"))).To(MatchError(ErrDeleting))

	secret = c.secret(secret.Name)
	secret.Finalizers = nil
	g.Expect(c.Update(t.Context(), secret)).To(Succeed())
	g.Expect(writer.Apply(t.Context(), wanted("a"))).To(Succeed())
	g.Expect(c.objects()).To(Equal([]string{"a"}))
}

func TestACacheThatLagsBehindHidesNoChange(t *testing.T) {
	for name, last := range map[string]func(ctx context.Context, w *Writer, c *cluster) error{
		"after another Apply": func(ctx context.Context, w *Writer, _ *cluster) error {
			return w.Apply(ctx, wanted("b"))
		},
		"after an Apply of unknown outcome": func(ctx context.Context, w *Writer, c *cluster) error {
			c.after = failOnce("patch ManagedResource", errTimeout)
			if err := w.Apply(ctx, wanted("b")); !errors.Is(err, errTimeout) {
				return fmt.Errorf("expected a timeout: %w", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			writer := New(c.client())
			g.Expect(writer.Apply(t.Context(), wanted("a"))).To(Succeed())

			stale := c.managedResource()
			c.cached = func(_ client.ObjectKey, mr *resourcesv1alpha1.ManagedResource) error {
				stale.DeepCopyInto(mr)
				return nil
			}
			g.Expect(last(t.Context(), writer, c)).To(Succeed())
			g.Expect(writer.Apply(t.Context(), wanted("a"))).To(Succeed())

			g.Expect(c.objects()).To(Equal([]string{"a"}))
			g.Expect(*c.managedResource().Spec.KeepObjects).To(BeFalse())
		})
	}
}

func TestHasSeenTellsWhatTheCacheHasFromWhatWasWritten(t *testing.T) {
	g := NewWithT(t)
	c, writer := applied(t)
	before := c.managedResource()
	g.Expect(writer.hasSeen(before)).To(BeTrue())
	g.Expect(New(c.client()).hasSeen(before)).To(BeFalse(), "another process does not know")

	g.Expect(writer.Apply(t.Context(), wanted("b"))).To(Succeed())
	g.Expect(writer.hasSeen(before)).To(BeFalse())
	after := c.managedResource()
	g.Expect(writer.hasSeen(after)).To(BeTrue())
	after.Status.ObservedGeneration = 7
	g.Expect(c.Status().Update(t.Context(), after)).To(Succeed())
	g.Expect(writer.hasSeen(c.managedResource())).To(BeTrue(), "a newer one")

	after.UID = "another"
	g.Expect(writer.hasSeen(after)).To(BeFalse())
	after.UID, after.ResourceVersion = "", "x"
	g.Expect(writer.hasSeen(after)).To(BeFalse())

	g.Expect(writer.Delete(t.Context(), key)).To(BeFalse())
	g.Expect(writer.hasSeen(after)).To(BeFalse())
}

func TestApplyDoesNotWriteToWhatIsBeingDeleted(t *testing.T) {
	g := NewWithT(t)
	c, writer := applied(t)
	mr := c.setFinalizers("grm/x")
	g.Expect(c.Delete(t.Context(), mr)).To(Succeed())
	c.taken()

	g.Expect(writer.Apply(t.Context(), wanted("b"))).To(MatchError(ErrDeleting))
	g.Expect(c.taken()).To(Equal([]string{"get ManagedResource"}))
}

func TestApplySeesInTheAnswerThatItIsBeingDeleted(t *testing.T) {
	for name, cached := range map[string]func(*resourcesv1alpha1.ManagedResource) error{
		"the cache has it as it was": func(*resourcesv1alpha1.ManagedResource) error { return nil },
		"the cache does not have it": func(*resourcesv1alpha1.ManagedResource) error {
			return apierrors.NewNotFound(managedResources, key.Name)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c, writer := applied(t)
			mr := c.setFinalizers("grm/x")
			before := mr.DeepCopy()
			g.Expect(c.Delete(t.Context(), mr)).To(Succeed())
			c.cached = func(_ client.ObjectKey, mr *resourcesv1alpha1.ManagedResource) error {
				before.DeepCopyInto(mr)
				return cached(mr)
			}
			for range 2 {
				g.Expect(writer.Apply(t.Context(), wanted("b"))).To(MatchError(ErrDeleting))
			}

			c.setFinalizers()
			c.cached = nil
			g.Expect(writer.Apply(t.Context(), wanted("b"))).To(Succeed())
			g.Expect(c.objects()).To(Equal([]string{"b"}))
		})
	}
}

func TestApplyRefusesWhatItCannotWrite(t *testing.T) {
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise)

	large := ManagedResource{Namespace: "ns", Name: "large", Objects: []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "noise"}, Data: map[string]string{"x": base64.StdEncoding.EncodeToString(noise)}},
	}}
	nameless := wanted("a")
	nameless.Name = ""

	for name, tt := range map[string]struct {
		mr      ManagedResource
		message string
	}{
		"more than a Secret holds":          {large, "applying ManagedResource ns/large: 1 objects take 10"},
		"a ManagedResource without a name":  {nameless, "no name or no namespace"},
		"an object that cannot be written ": {wanted("a", "a"), "given twice"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			err := New(c.client()).Apply(t.Context(), tt.mr)
			g.Expect(err).To(MatchError(ContainSubstring(tt.message)))
			g.Expect(errors.Is(err, ErrTooLarge)).To(Equal(tt.mr.Name == "large"))
			g.Expect(c.taken()).NotTo(ContainElement(HavePrefix("create")))
		})
	}
}

func BenchmarkApplyUnchanged(b *testing.B) {
	c := newCluster(b)
	writer := New(c.WithWatch)
	mr := wanted()
	for i := range 100 {
		mr.Objects = append(mr.Objects, serviceAccount(fmt.Sprintf("account-%d", i)))
	}
	if err := writer.Apply(b.Context(), mr); err != nil {
		b.Fatal(err)
	}

	b.ReportAllocs()
	for b.Loop() {
		if err := writer.Apply(b.Context(), mr); err != nil {
			b.Fatal(err)
		}
	}
}
