// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

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
			b.DeletionTimestamp, b.Finalizers = &now, []string{finalizer}
		}, true, true, true},
		"deleted, held by others": {func(b *extensionsv1alpha1.BackupBucket) { b.DeletionTimestamp, b.Finalizers = &now, []string{"x"} }, false, false, false},
		"of another type":         {func(b *extensionsv1alpha1.BackupBucket) { b.Spec.Type, b.Annotations = "local", asks("reconcile") }, false, false, false},
		"of another class": {func(b *extensionsv1alpha1.BackupBucket) {
			b.Spec.Class, b.Annotations = new(extensionsv1alpha1.ExtensionClassSeed), asks("reconcile")
		}, false, false, false},
		"deleted while waiting for a state": {func(b *extensionsv1alpha1.BackupBucket) {
			b.Annotations, b.DeletionTimestamp, b.Finalizers = asks("wait-for-state"), &now, []string{finalizer}
		}, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			bucket := newBucket()
			bucket.Annotations = nil
			tc.change(bucket)
			old := bucket.DeepCopy()
			old.Generation = 0

			p := selection(classes, false, nil)
			g.Expect(p.Create(event.CreateEvent{Object: bucket})).To(Equal(tc.create))
			g.Expect(p.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: bucket})).To(Equal(tc.update))
			p = selection(classes, true, nil)
			g.Expect(p.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: bucket})).To(Equal(tc.ignores))
		})
	}
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	g := NewWithT(t)
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"shoot"}, "shoot")
	g.Expect(err).NotTo(HaveOccurred())
	var gone []types.NamespacedName
	p := selection(classes, false, func(key types.NamespacedName) { gone = append(gone, key) })
	bucket, other := newBucket(), newBucket()
	other.Spec.Type = "local"
	g.Expect(p.Delete(event.DeleteEvent{Object: bucket})).To(BeFalse())
	g.Expect(p.Delete(event.DeleteEvent{Object: other})).To(BeFalse())
	g.Expect(gone).To(HaveExactElements(client.ObjectKeyFromObject(bucket)))
}

// selection returns the predicate of a Reconciler for BackupBuckets.
func selection(classes class.Set, ignoreOperation bool, gone func(types.NamespacedName)) predicate.Predicate {
	return predicate.And(New(Options[*extensionsv1alpha1.BackupBucket]{
		Shared: Shared{Classes: classes, IgnoreOperationAnnotation: ignoreOperation}, Types: []string{extensionType}, ExistsFor: classes.List(),
		Finalizer: finalizer, Gone: gone,
	}).Predicates()...)
}

func TestWhatIsWrittenAboutAnOperationIsNoReasonForAnotherAttempt(t *testing.T) {
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"shoot"}, "shoot")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	now := metav1.Now()
	for name, tc := range map[string]struct {
		change func(*extensionsv1alpha1.BackupBucket)
		passes bool
	}{
		"the status":                     {func(b *extensionsv1alpha1.BackupBucket) { b.Status.ObservedGeneration = 7 }, false},
		"the finalizer":                  {func(b *extensionsv1alpha1.BackupBucket) { b.Finalizers = append(b.Finalizers, "more") }, false},
		"a later request":                {func(b *extensionsv1alpha1.BackupBucket) { b.Annotations["gardener.cloud/timestamp"] = "later" }, true},
		"a later request and the status": {func(b *extensionsv1alpha1.BackupBucket) { b.Annotations["more"] = ""; b.Status.ObservedGeneration = 7 }, true},
		"the spec and the status":        {func(b *extensionsv1alpha1.BackupBucket) { b.Generation = 7; b.Status.ObservedGeneration = 7 }, true},
		"a deletion and the status":      {func(b *extensionsv1alpha1.BackupBucket) { b.DeletionTimestamp = &now; b.Status.ObservedGeneration = 7 }, true},
	} {
		for _, operation := range []string{"restore", "migrate"} {
			bucket := newBucket()
			bucket.Annotations["gardener.cloud/operation"] = operation
			bucket.Finalizers = []string{finalizer}
			changed := bucket.DeepCopy()
			tc.change(changed)
			update := event.UpdateEvent{ObjectOld: bucket, ObjectNew: changed}
			NewWithT(t).Expect(selection(classes, false, nil).Update(update)).To(Equal(tc.passes), name+" while asked to "+operation)
		}
		deleted := newBucket()
		deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{}, []string{finalizer}
		changed := deleted.DeepCopy()
		tc.change(changed)
		update := event.UpdateEvent{ObjectOld: deleted, ObjectNew: changed}
		NewWithT(t).Expect(selection(classes, false, nil).Update(update)).To(Equal(tc.passes), name+" while being deleted")
	}
}
