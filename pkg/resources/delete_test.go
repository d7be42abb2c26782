// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
)

func TestDeleteIsDoneWhenTheManagedResourceIsGone(t *testing.T) {
	g := NewWithT(t)
	c, writer := applied(t)
	c.setFinalizers("grm/x")
	c.taken()

	gone, err := writer.Delete(t.Context(), key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(gone).To(BeFalse())
	g.Expect(c.taken()).To(Equal([]string{"get ManagedResource", "delete Secret", "delete ManagedResource"}))

	gone, err = writer.Delete(t.Context(), key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(gone).To(BeFalse(), "GRM still deletes the objects")
	g.Expect(c.taken()).To(Equal([]string{"get ManagedResource"}))

	c.setFinalizers()
	for range 2 {
		g.Expect(writer.Delete(t.Context(), key)).To(BeTrue())
		g.Expect(c.taken()).To(Equal([]string{"get ManagedResource"}), "what was deleted is not deleted again")
	}

	secrets := &corev1.SecretList{}
	g.Expect(c.List(t.Context(), secrets)).To(Succeed())
	g.Expect(secrets.Items).To(BeEmpty())

	g.Expect(writer.Apply(t.Context(), wanted("a"))).To(Succeed(), "it may come back")
	g.Expect(c.objects()).To(Equal([]string{"a"}))
}

func TestDeleteOfWhatNeverWasIsDone(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	g.Expect(New(c.client()).Delete(t.Context(), key)).To(BeTrue())
}

func TestDeleteReachesWhatTheCacheDoesNotShowYet(t *testing.T) {
	g := NewWithT(t)
	c, writer := applied(t)
	c.cached = func(key client.ObjectKey, _ *resourcesv1alpha1.ManagedResource) error {
		return apierrors.NewNotFound(managedResources, key.Name)
	}

	g.Expect(writer.Delete(t.Context(), key)).To(BeFalse())
	g.Expect(writer.Delete(t.Context(), key)).To(BeTrue())
	g.Expect(c.Get(t.Context(), key, &resourcesv1alpha1.ManagedResource{})).To(MatchError(ContainSubstring("not found")))
}

func TestDeleteDoesNotTakeACacheThatLagsForTheEnd(t *testing.T) {
	g := NewWithT(t)
	c, writer := applied(t)
	c.setFinalizers("grm/x")
	seen := c.cached
	c.cached = func(key client.ObjectKey, _ *resourcesv1alpha1.ManagedResource) error {
		return apierrors.NewNotFound(managedResources, key.Name)
	}
	for range 2 {
		g.Expect(writer.Delete(t.Context(), key)).To(BeFalse(), "GRM still deletes the objects")
	}

	c.cached = seen
	g.Expect(writer.Delete(t.Context(), key)).To(BeFalse())
	secrets := &corev1.SecretList{}
	g.Expect(c.List(t.Context(), secrets)).To(Succeed())
	g.Expect(secrets.Items).To(BeEmpty(), "their names are known now")
	c.setFinalizers()
	g.Expect(writer.Delete(t.Context(), key)).To(BeTrue())
}

func TestDeleteAsksOnceForWhatAnotherProcessMayHaveMade(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	writer := New(c.client())
	g.Expect(writer.Delete(t.Context(), key)).To(BeTrue())
	g.Expect(c.taken()).To(Equal([]string{"get ManagedResource", "delete ManagedResource"}))

	g.Expect(writer.Delete(t.Context(), key)).To(BeTrue())
	g.Expect(writer.Orphan(t.Context(), key)).To(BeTrue())
	g.Expect(c.taken()).To(Equal([]string{"get ManagedResource", "get ManagedResource"}))
}

func TestDeleteWaitsForACacheThatHasNotSeenTheDeletion(t *testing.T) {
	g := NewWithT(t)
	c, writer := applied(t)
	stale := c.managedResource()
	stale.UID = "first"
	c.cached = func(_ client.ObjectKey, mr *resourcesv1alpha1.ManagedResource) error {
		stale.DeepCopyInto(mr)
		return nil
	}
	g.Expect(writer.Delete(t.Context(), key)).To(BeFalse())
	c.taken()

	g.Expect(writer.Delete(t.Context(), key)).To(BeFalse())
	g.Expect(c.taken()).To(BeEmpty())

	stale.UID = "another"
	g.Expect(writer.Delete(t.Context(), key)).To(BeTrue())
	g.Expect(c.taken()).To(ContainElement("delete ManagedResource"), "it has come back meanwhile")
}

func TestDeleteAfterAnErrorFinishesTheWork(t *testing.T) {
	for _, request := range []string{"get ManagedResource", "delete Secret", "delete ManagedResource"} {
		t.Run(request+" fails", func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			writer := New(c.client())
			g.Expect(writer.Apply(t.Context(), wanted("a"))).To(Succeed())

			c.before = failOnce(request, errTimeout)
			gone, err := writer.Delete(t.Context(), key)
			g.Expect(err).To(MatchError(errTimeout))
			g.Expect(err.Error()).To(ContainSubstring(key.Namespace))
			g.Expect(gone).To(BeFalse())

			g.Expect(writer.Delete(t.Context(), key)).To(BeFalse())
			g.Expect(writer.Delete(t.Context(), key)).To(BeTrue())
			secrets := &corev1.SecretList{}
			g.Expect(c.List(t.Context(), secrets)).To(Succeed())
			g.Expect(secrets.Items).To(BeEmpty())
		})
	}
}

func TestOrphanHasTheObjectsStayAndDeletes(t *testing.T) {
	g := NewWithT(t)
	c, writer := applied(t)
	c.setFinalizers("grm/x")
	g.Expect(writer.Delete(t.Context(), key)).To(BeFalse())
	c.taken()

	g.Expect(writer.Orphan(t.Context(), key)).To(BeFalse(), "also if it is being deleted already")
	g.Expect(*c.managedResource().Spec.KeepObjects).To(BeTrue())
	c.taken()
	g.Expect(writer.Orphan(t.Context(), key)).To(BeFalse())
	g.Expect(c.taken()).To(Equal([]string{"get ManagedResource"}), "nothing is written again")

	c.setFinalizers()
	g.Expect(writer.Orphan(t.Context(), key)).To(BeTrue())
	g.Expect(New(c.client()).Orphan(t.Context(), key)).To(BeTrue(), "there is none")

	c, writer = applied(t)
	c.before = failOnce("patch ManagedResource", errConflict)
	_, err := writer.Orphan(t.Context(), key)
	g.Expect(err).To(MatchError(errConflict))
	g.Expect(c.managedResource().DeletionTimestamp).To(BeNil(), "its objects would be deleted")
}
