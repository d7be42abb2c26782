// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"

	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

func shoot(annotations map[string]string) *gardencorev1beta1.Shoot {
	return &gardencorev1beta1.Shoot{ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: "foo", Annotations: annotations}}
}

func TestAnExtensionDeploysAServiceAccountForTheResourceManagerOfItsNamespace(t *testing.T) {
	for name, newCluster := range map[string]func() *cluster{
		"class garden, which has no Cluster": func() *cluster { return newCluster(t) },
		"class shoot":                        func() *cluster { return newShootCluster(t, shoot(nil)) },
		"class shoot, with a Cluster that says nothing of a shoot": func() *cluster { return newShootCluster(t, &gardencorev1beta1.Shoot{}) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster()
			g.Expect(c.mustReconcile().RequeueAfter).To(BeZero(), "there is nothing to poll")

			mr := c.managedResource()
			g.Expect(mr.Spec.Class).To(BeNil())
			g.Expect(mr.Spec.InjectLabels).To(Equal(map[string]string{"shoot.gardener.cloud/no-cleanup": "true"}))
			g.Expect(*mr.Spec.KeepObjects).To(BeFalse())

			g.Expect(c.secrets()).To(HaveLen(1))
			g.Expect(c.secrets()[0].Data).To(HaveKey("data.yaml.br"))
			objects, err := managedresources.ExtractObjectsFromSecret(yaml.NewDecodingSerializer(unstructured.UnstructuredJSONScheme), &c.secrets()[0])
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(objects).To(Equal([]client.Object{&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1",
				"kind":       "ServiceAccount",
				"metadata": map[string]any{
					"name":      "local-ext-shoot",
					"namespace": "kube-system",
					"labels":    map[string]any{"app.kubernetes.io/name": "local-ext-shoot"},
				},
				"automountServiceAccountToken": false,
			}}}))

			ex := c.extension()
			g.Expect(ex.Finalizers).To(ConsistOf("extensions.gardener.cloud/local-ext-shoot"))
			g.Expect(ex.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
			g.Expect(ex.Status.ObservedGeneration).To(Equal(ex.Generation))
		})
	}
}

func TestAReconcileThatChangesNothingWritesNoManagedResource(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.mustReconcile()
	before := c.managedResource()

	c.ask("reconcile")
	c.mustReconcile()
	c.restart()
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.managedResource().ResourceVersion).To(Equal(before.ResourceVersion))
	g.Expect(c.extension().Annotations).NotTo(HaveKey("gardener.cloud/operation"))
}

func TestAReconcileHealsWhatWasDeletedByHand(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.mustReconcile()
	g.Expect(c.Delete(t.Context(), c.managedResource())).To(Succeed())
	g.Expect(c.Delete(t.Context(), &c.secrets()[0])).To(Succeed())

	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.managedResource()).NotTo(BeNil())
	g.Expect(c.secrets()).To(HaveLen(1))
}

func TestAReconcileThatFailsIsFinishedByTheNextProcess(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "managedresources"}, "local-ext-shoot", errors.New("changed"))
	for name, fails := range map[string]func(obj client.Object) bool{
		"the Secret":          func(obj client.Object) bool { _, ok := obj.(*corev1.Secret); return ok },
		"the ManagedResource": func(obj client.Object) bool { _, ok := obj.(*resourcesv1alpha1.ManagedResource); return ok },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			c.fail = func(_ string, obj client.Object) error {
				if fails(obj) {
					return conflict
				}
				return nil
			}
			_, err := c.reconcile()
			g.Expect(err).To(MatchError(conflict))
			g.Expect(c.extension().Status.LastError.Description).To(ContainSubstring("applying ManagedResource garden/local-ext-shoot"))

			c.fail = nil
			c.restart()
			c.mustReconcile()
			g.Expect(c.managedResource()).NotTo(BeNil())
			g.Expect(c.extension().Status.LastError).To(BeNil())
		})
	}
}

func TestADeletionWaitsForTheObjectsWithoutHoldingAWorker(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.mustReconcile()
	c.serve(grmFinalizer)
	c.delete()

	for range 2 {
		g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
		g.Expect(c.managedResource().DeletionTimestamp).NotTo(BeNil())
		g.Expect(*c.managedResource().Spec.KeepObjects).To(BeFalse())
		g.Expect(c.extension().Status.LastOperation.Description).To(ContainSubstring("ManagedResource garden/local-ext-shoot is still being deleted"))
		c.restart()
	}

	c.serve()
	c.mustReconcile()
	g.Expect(c.isGone()).To(BeTrue())
	g.Expect(c.managedResource()).To(BeNil())
	g.Expect(c.secrets()).To(BeEmpty())
}

func TestADeletionBeforeTheManagedResourceWasCreatedIsDone(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*resourcesv1alpha1.ManagedResource); ok && verb == "create" {
			return errors.New("no answer")
		}
		return nil
	}
	_, err := c.reconcile()
	g.Expect(err).To(HaveOccurred())

	c.delete()
	c.mustReconcile()
	g.Expect(c.isGone()).To(BeTrue())
}

func TestADeletionThatFailsIsTriedAgain(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.mustReconcile()
	c.delete()
	c.fail = func(verb string, _ client.Object) error {
		if verb == "delete" {
			return errors.New("no answer")
		}
		return nil
	}
	_, err := c.reconcile()
	g.Expect(err).To(MatchError(ContainSubstring("no answer")))
	g.Expect(c.isGone()).To(BeFalse())

	c.fail = nil
	g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
	c.mustReconcile()
	g.Expect(c.isGone()).To(BeTrue())
}

func TestAReconcileWaitsForADeletionThatIsStillUnderWay(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.mustReconcile()
	c.serve(grmFinalizer)
	g.Expect(c.Delete(t.Context(), c.managedResource())).To(Succeed())

	c.ask("reconcile")
	g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
	g.Expect(c.extension().Status.LastOperation.State).To(Equal(processing))
	g.Expect(c.extension().Status.LastOperation.Description).To(ContainSubstring(resources.ErrDeleting.Error()))

	c.serve()
	c.mustReconcile()
	g.Expect(c.managedResource()).NotTo(BeNil())
	g.Expect(c.extension().Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
}

func TestAForcedDeletionKeepsTheObjectsAndWaitsForNothing(t *testing.T) {
	g := NewWithT(t)
	c := newShootCluster(t, shoot(map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}))
	c.mustReconcile()
	c.serve(grmFinalizer)
	c.delete()

	g.Expect(c.mustReconcile().RequeueAfter).To(BeZero())
	g.Expect(c.isGone()).To(BeTrue())
	g.Expect(c.managedResource().DeletionTimestamp).NotTo(BeNil())
	g.Expect(*c.managedResource().Spec.KeepObjects).To(BeTrue(), "else the finalizer stays until the shoot answers")
	g.Expect(c.secrets()).To(BeEmpty())
}

func TestAForcedDeletionOfWhatNeverWasIsDone(t *testing.T) {
	g := NewWithT(t)
	c := newShootCluster(t, shoot(map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}))
	c.mustReconcile()
	g.Expect(c.Delete(t.Context(), c.managedResource())).To(Succeed())
	c.delete()
	c.mustReconcile()
	g.Expect(c.isGone()).To(BeTrue())
}

func TestAMigrationKeepsTheObjectsAndWritesTheStatusOnceWhileItWaits(t *testing.T) {
	for name, newCluster := range map[string]func() *cluster{
		"class garden": func() *cluster { return newCluster(t) },
		"class shoot":  func() *cluster { return newShootCluster(t, shoot(nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster()
			c.mustReconcile()
			c.serve(grmFinalizer)
			c.ask("migrate")
			c.statusWrites = 0

			for range 5 {
				g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
				g.Expect(*c.managedResource().Spec.KeepObjects).To(BeTrue())
				g.Expect(c.managedResource().DeletionTimestamp).NotTo(BeNil())
			}
			g.Expect(c.statusWrites).To(Equal(1), "each write wakes the controller as long as the annotation is there")
			g.Expect(c.extension().Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeMigrate))
			g.Expect(c.extension().Status.LastOperation.Description).To(ContainSubstring("is still being deleted for the migration"))

			c.serve()
			c.mustReconcile()
			ex := c.extension()
			g.Expect(ex.Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeMigrate))
			g.Expect(ex.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
			g.Expect(ex.Finalizers).To(BeEmpty())
			g.Expect(ex.Annotations).NotTo(HaveKey("gardener.cloud/operation"))
			g.Expect(c.managedResource()).To(BeNil())

			c.mustReconcile()
			g.Expect(c.managedResource()).To(BeNil(), "what was migrated is left alone")
		})
	}
}

func TestARestoreDeploysAgainAndDeletesTheObjectsLater(t *testing.T) {
	g := NewWithT(t)
	c := newShootCluster(t, shoot(nil))
	c.mustReconcile()
	c.ask("migrate")
	for range 2 {
		c.mustReconcile()
	}
	g.Expect(c.managedResource()).To(BeNil())

	c.ask("restore")
	c.mustReconcile()
	g.Expect(*c.managedResource().Spec.KeepObjects).To(BeFalse())
	ex := c.extension()
	g.Expect(ex.Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeRestore))
	g.Expect(ex.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	g.Expect(ex.Finalizers).To(HaveLen(1))
	g.Expect(ex.Annotations).NotTo(HaveKey("gardener.cloud/operation"))
}
