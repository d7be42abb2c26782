// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

func TestOnlyWhatAsksForSomethingIsQueued(t *testing.T) {
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"shoot"}, "shoot")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	now := metav1.Now()
	last := func(kind, state string) *gardencorev1beta1.LastOperation {
		return &gardencorev1beta1.LastOperation{Type: gardencorev1beta1.LastOperationType(kind), State: gardencorev1beta1.LastOperationState(state)}
	}
	asks := func(operation string) map[string]string {
		return map[string]string{"gardener.cloud/operation": operation}
	}

	for name, tc := range map[string]struct {
		change                  func(*extensionsv1alpha1.BackupBucket)
		create, update, ignores bool
	}{
		"a new object":          {func(*extensionsv1alpha1.BackupBucket) {}, true, false, true},
		"asked to reconcile":    {func(b *extensionsv1alpha1.BackupBucket) { b.Annotations = asks("reconcile") }, true, true, true},
		"asked to migrate":      {func(b *extensionsv1alpha1.BackupBucket) { b.Annotations = asks("migrate") }, true, true, true},
		"asked to restore":      {func(b *extensionsv1alpha1.BackupBucket) { b.Annotations = asks("restore") }, true, true, true},
		"waiting for its state": {func(b *extensionsv1alpha1.BackupBucket) { b.Annotations = asks("wait-for-state") }, false, false, false},
		"asked for something else": {func(b *extensionsv1alpha1.BackupBucket) {
			b.Annotations = asks("dance")
			b.Status.LastOperation = last("Create", "Succeeded")
		}, false, false, true},
		"done":      {func(b *extensionsv1alpha1.BackupBucket) { b.Status.LastOperation = last("Create", "Succeeded") }, false, false, true},
		"failed":    {func(b *extensionsv1alpha1.BackupBucket) { b.Status.LastOperation = last("Create", "Error") }, true, false, true},
		"under way": {func(b *extensionsv1alpha1.BackupBucket) { b.Status.LastOperation = last("Create", "Processing") }, true, false, true},
		"migrated":  {func(b *extensionsv1alpha1.BackupBucket) { b.Status.LastOperation = last("Migrate", "Succeeded") }, false, false, false},
		"deleted": {func(b *extensionsv1alpha1.BackupBucket) {
			b.DeletionTimestamp, b.Finalizers = &now, []string{FinalizerName}
		}, true, true, true},
		"deleted, held by others": {func(b *extensionsv1alpha1.BackupBucket) { b.DeletionTimestamp, b.Finalizers = &now, []string{"x"} }, false, false, false},
		"of another type":         {func(b *extensionsv1alpha1.BackupBucket) { b.Spec.Type, b.Annotations = "local", asks("reconcile") }, false, false, false},
		"of another class": {func(b *extensionsv1alpha1.BackupBucket) {
			b.Spec.Class, b.Annotations = new(extensionsv1alpha1.ExtensionClassSeed), asks("reconcile")
		}, false, false, false},
		"deleted while waiting for a state": {func(b *extensionsv1alpha1.BackupBucket) {
			b.Annotations, b.DeletionTimestamp, b.Finalizers = asks("wait-for-state"), &now, []string{FinalizerName}
		}, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			bucket := newBucket()
			bucket.Annotations = nil
			tc.change(bucket)
			old := bucket.DeepCopy()
			old.Generation = 0

			p := (&selection{types: []string{Type}, classes: classes}).predicate()
			g.Expect(p.Create(event.CreateEvent{Object: bucket})).To(Equal(tc.create))
			g.Expect(p.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: bucket})).To(Equal(tc.update))
			g.Expect(p.Generic(event.GenericEvent{Object: bucket})).To(BeFalse())
			p = (&selection{types: []string{Type}, classes: classes, ignoreOperation: true}).predicate()
			g.Expect(p.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: bucket})).To(Equal(tc.ignores))
		})
	}
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	g := NewWithT(t)
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"shoot"}, "shoot")
	g.Expect(err).NotTo(HaveOccurred())
	var gone []types.NamespacedName
	p := (&selection{types: []string{Type}, classes: classes, gone: func(key types.NamespacedName) { gone = append(gone, key) }}).predicate()
	bucket, other := newBucket(), newBucket()
	other.Spec.Type = "local"
	g.Expect(p.Delete(event.DeleteEvent{Object: bucket})).To(BeFalse())
	g.Expect(p.Delete(event.DeleteEvent{Object: other})).To(BeFalse())
	g.Expect(gone).To(HaveExactElements(client.ObjectKeyFromObject(bucket)))
}

func TestAClusterIsDecodedOnceUntilItChanges(t *testing.T) {
	e := newEnv(t, nil, newCluster(nil))
	clusters := newClusters(e.client)
	first, err := clusters.get(e.ctx, namespace)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(first.Shoot().Name).To(Equal("a"))
	again, err := clusters.get(e.ctx, namespace)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(again).To(BeIdenticalTo(first))

	changed := newCluster(func(shoot *gardencorev1beta1.Shoot) { shoot.Name = "b" })
	e.Expect(e.client.Update(e.ctx, changed)).To(Succeed())
	third, err := clusters.get(e.ctx, namespace)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(third.Shoot().Name).To(Equal("b"))

	none, err := clusters.get(e.ctx, "none")
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(none.Shoot()).To(BeNil())
}
