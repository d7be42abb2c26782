// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	yes     = gardencorev1beta1.ConditionTrue
	no      = gardencorev1beta1.ConditionFalse
	unknown = gardencorev1beta1.ConditionUnknown

	succeeded  = gardencorev1beta1.LastOperationStateSucceeded
	processing = gardencorev1beta1.LastOperationStateProcessing
	failed     = gardencorev1beta1.LastOperationStateError
)

// waiting are the types that wait, each where it is used.
var waiting = map[string]func(t testing.TB) *cluster{
	"local-ext-seed of class shoot": func(t testing.TB) *cluster { return newShootClusterOf(t, TypeSeed, shoot(nil)) },
	"local-ext-seed of class seed": func(t testing.TB) *cluster {
		return newGardenCluster(t, TypeSeed, extensionsv1alpha1.ExtensionClassSeed)
	},
	"local-ext-shoot-after-worker": func(t testing.TB) *cluster { return newShootClusterOf(t, TypeShootAfterWorker, shoot(nil)) },
}

func eachWaiting(t *testing.T, test func(g *WithT, c *cluster)) {
	t.Helper()
	for name, newCluster := range waiting {
		t.Run(name, func(t *testing.T) { test(NewWithT(t), newCluster(t)) })
	}
}

// deployed are the objects that GRM would apply, typed.
func (c *cluster) deployed() []client.Object {
	c.t.Helper()
	g := NewWithT(c.t)
	g.Expect(c.secrets()).To(HaveLen(1))
	g.Expect(c.secrets()[0].Data).To(HaveKey("data.yaml.br"))
	objects, err := managedresources.ExtractObjectsFromSecret(yaml.NewDecodingSerializer(unstructured.UnstructuredJSONScheme), &c.secrets()[0])
	g.Expect(err).NotTo(HaveOccurred())
	for i, obj := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		g.Expect(err).NotTo(HaveOccurred())
		typed, err := testScheme(c.t).New(obj.GetObjectKind().GroupVersionKind())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, typed, true)).To(Succeed())
		objects[i] = typed.(client.Object)
	}
	return objects
}

func TestTypeSeedDeploysAServiceAccountIntoItsOwnNamespaceInTheSeed(t *testing.T) {
	for _, name := range []string{"local-ext-seed of class shoot", "local-ext-seed of class seed"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := waiting[name](t)
			c.mustReconcile()

			g.Expect(c.managedResource().Spec.Class).To(HaveValue(Equal("seed")))
			g.Expect(c.managedResource().Spec.InjectLabels).To(BeEmpty())
			g.Expect(c.deployed()).To(HaveLen(1))
			account := c.deployed()[0].(*corev1.ServiceAccount)
			g.Expect(client.ObjectKeyFromObject(account)).To(Equal(client.ObjectKey{Namespace: c.key.Namespace, Name: "local-ext-seed"}))
			g.Expect(account.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
			g.Expect(c.extension().Finalizers).To(ConsistOf("extensions.gardener.cloud/local-ext-seed"))
		})
	}
}

func TestTypeShootAfterWorkerDeploysADeploymentThatRunsOnAnyNode(t *testing.T) {
	g := NewWithT(t)
	c := newShootClusterOf(t, TypeShootAfterWorker, shoot(nil))
	c.mustReconcile()

	g.Expect(c.managedResource().Spec.Class).To(BeNil())
	g.Expect(c.managedResource().Spec.InjectLabels).To(Equal(map[string]string{"shoot.gardener.cloud/no-cleanup": "true"}))
	g.Expect(c.deployed()).To(HaveLen(1))
	deployment := c.deployed()[0].(*appsv1.Deployment)
	g.Expect(client.ObjectKeyFromObject(deployment)).To(Equal(client.ObjectKey{Namespace: "kube-system", Name: "local-ext-shoot-after-worker"}))
	g.Expect(deployment.Spec.Selector.MatchLabels).To(Equal(deployment.Spec.Template.Labels))
	pod := deployment.Spec.Template.Spec
	g.Expect(pod.NodeSelector).To(BeEmpty())
	g.Expect(pod.Containers).To(HaveExactElements(HaveField("Image", pauseImage)))
	g.Expect(pod.SecurityContext.RunAsNonRoot).To(HaveValue(BeTrue()))
	g.Expect(c.extension().Finalizers).To(ConsistOf("extensions.gardener.cloud/local-ext-shoot-after-worker"))
}

func TestAnExtensionHasNotSucceededBeforeItsObjectsAreHealthy(t *testing.T) {
	eachWaiting(t, func(g *WithT, c *cluster) {
		for _, tt := range []struct {
			report func()
			state  gardencorev1beta1.LastOperationState
		}{
			{func() {}, processing},
			{func() { c.report(unknown, unknown) }, processing},
			{func() { c.report(no, yes) }, failed},
			{func() { c.report(yes, no) }, failed},
			{func() { c.report(yes, unknown) }, processing},
		} {
			if c.managedResource() != nil {
				tt.report()
			}
			g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait), "the worker is given back")
			status := c.extension().Status
			g.Expect(status.LastOperation.State).To(Equal(tt.state))
			if tt.state == failed {
				g.Expect(status.LastError.Codes).To(BeEmpty(), "there is no mistake to correct")
				g.Expect(status.LastError.Description).To(ContainSubstring("Resources"))
			} else {
				g.Expect(status.LastError).To(BeNil(), "nothing is wrong")
			}
		}
		g.Expect(c.extension().Status.LastOperation.Description).To(ContainSubstring("ResourcesHealthy"))

		c.report(yes, yes)
		g.Expect(c.mustReconcile().RequeueAfter).To(BeZero())
		g.Expect(c.extension().Status.LastOperation.State).To(Equal(succeeded))
		g.Expect(c.extension().Status.LastError).To(BeNil())
	})
}

func TestWaitingWritesTheStatusOnce(t *testing.T) {
	for _, operation := range []string{"reconcile", "restore"} {
		t.Run(operation, func(t *testing.T) {
			eachWaiting(t, func(g *WithT, c *cluster) {
				c.ask(operation)
				for range 5 {
					c.mustReconcile()
					c.restart()
				}
				// The first time, GRM is asked about a ManagedResource of which it knows nothing yet, as ever after.
				g.Expect(c.statusWrites).To(Equal(1), "each write wakes the controller while the annotation for restore is there")

				c.report(yes, yes)
				c.mustReconcile()
				g.Expect(c.extension().Status.LastOperation.State).To(Equal(succeeded))
				g.Expect(c.extension().Annotations).NotTo(HaveKey("gardener.cloud/operation"))
			})
		})
	}
}

func TestHealthFromBeforeTheLastWriteDoesNotCount(t *testing.T) {
	eachWaiting(t, func(g *WithT, c *cluster) {
		c.mustReconcile()
		touched := c.managedResource()
		touched.Spec.KeepObjects = new(true)
		g.Expect(c.Update(t.Context(), touched)).To(Succeed())
		c.report(yes, yes)
		c.stale = c.managedResource()
		c.report(yes, no)

		g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
		g.Expect(c.extension().Status.LastOperation.State).To(Equal(failed))
	})
}

func TestAHibernatedShootIsNotWaitedFor(t *testing.T) {
	for extensionType, waits := range map[string]bool{TypeShootAfterWorker: false, TypeSeed: true, TypeShoot: false} {
		t.Run(extensionType, func(t *testing.T) {
			g := NewWithT(t)
			c := newShootClusterOf(t, extensionType, shoot(nil))
			c.hibernate(true)
			c.mustReconcile()
			g.Expect(c.managedResource()).NotTo(BeNil(), "it is ready for the time when the shoot wakes up")
			if waits {
				g.Expect(c.extension().Status.LastOperation.State).To(Equal(processing), "the seed does not sleep")
			} else {
				g.Expect(c.extension().Status.LastOperation.State).To(Equal(succeeded))
			}
		})
	}
}

func TestAShootThatWakesUpIsWaitedForAgain(t *testing.T) {
	g := NewWithT(t)
	c := newShootClusterOf(t, TypeShootAfterWorker, shoot(nil))
	c.hibernate(true)
	c.mustReconcile()
	c.hibernate(false)
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.extension().Status.LastOperation.State).To(Equal(processing))
	c.report(yes, yes)
	c.mustReconcile()
	g.Expect(c.extension().Status.LastOperation.State).To(Equal(succeeded))
}

func TestAFailedShootIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	stuck := shoot(nil)
	stuck.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
	c := newShootClusterOf(t, TypeShootAfterWorker, stuck)
	c.mustReconcile()
	g.Expect(c.managedResource()).To(BeNil())
	g.Expect(c.extension().Status.LastOperation).To(BeNil())
	g.Expect(c.extension().Finalizers).To(BeEmpty())
}

func TestWithoutAClusterAnExtensionIsDeployedButNotDone(t *testing.T) {
	for _, extensionType := range []string{TypeSeed, TypeShootAfterWorker} {
		t.Run(extensionType, func(t *testing.T) {
			g := NewWithT(t)
			c := newShootClusterOf(t, extensionType, nil)
			g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
			c.report(yes, yes)
			g.Expect(c.mustReconcile().RequeueAfter).To(Equal(reconciler.RetryCluster))
			g.Expect(c.extension().Status.LastError.Description).To(ContainSubstring("there is no Cluster shoot--local--foo"))
		})
	}
}

func TestAClusterThatCannotBeDecodedIsReported(t *testing.T) {
	g := NewWithT(t)
	c := newShootClusterOf(t, TypeShootAfterWorker, shoot(nil))
	broken := &extensionsv1alpha1.Cluster{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Name: c.key.Namespace}, broken)).To(Succeed())
	broken.Spec.Shoot.Raw = []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","spec":"not an object"}`)
	g.Expect(c.Update(t.Context(), broken)).To(Succeed())

	_, err := c.reconcile()
	g.Expect(err).To(MatchError(ContainSubstring("reading Cluster shoot--local--foo")))
	g.Expect(c.extension().Status.LastError.Description).To(ContainSubstring("reading Cluster shoot--local--foo"))
	g.Expect(c.managedResource()).To(BeNil())
}

func TestAWaitingReconcileThatFailsIsFinishedByTheNextProcess(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "any"}, "any", errors.New("changed"))
	for name, fails := range map[string]func(obj client.Object) bool{
		"the Extension's finalizer": func(obj client.Object) bool { _, ok := obj.(*extensionsv1alpha1.Extension); return ok },
		"the Secret":                func(obj client.Object) bool { _, ok := obj.(*corev1.Secret); return ok },
		"the ManagedResource":       func(obj client.Object) bool { _, ok := obj.(*resourcesv1alpha1.ManagedResource); return ok },
	} {
		t.Run(name, func(t *testing.T) {
			eachWaiting(t, func(g *WithT, c *cluster) {
				c.fail = func(_ string, obj client.Object) error {
					if fails(obj) {
						return conflict
					}
					return nil
				}
				result, err := c.reconcile()
				if name == "the Extension's finalizer" {
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(result.RequeueAfter).To(Equal(reconciler.RetryConflict), "somebody has changed it, so it is looked at anew")
					g.Expect(c.managedResource()).To(BeNil(), "nobody would delete it")
				} else {
					g.Expect(err).To(MatchError(conflict))
				}

				c.fail = nil
				c.restart()
				c.mustReconcile()
				c.report(yes, yes)
				c.mustReconcile()
				g.Expect(c.extension().Status.LastOperation.State).To(Equal(succeeded))
			})
		})
	}
}

func TestADeletionBeforeTheObjectsWereEverHealthyIsDone(t *testing.T) {
	eachWaiting(t, func(g *WithT, c *cluster) {
		c.mustReconcile()
		c.serve(grmFinalizer)
		c.delete()
		g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
		g.Expect(*c.managedResource().Spec.KeepObjects).To(BeFalse())
		c.serve()
		c.mustReconcile()
		g.Expect(c.isGone()).To(BeTrue())
		g.Expect(c.secrets()).To(BeEmpty())
	})
}

func TestAReconcileDuringTheDeletionOfAFormerManagedResourceGivesTheWorkerBack(t *testing.T) {
	eachWaiting(t, func(g *WithT, c *cluster) {
		c.mustReconcile()
		c.serve(grmFinalizer)
		g.Expect(c.Delete(t.Context(), c.managedResource())).To(Succeed())
		c.ask("reconcile")
		g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
		g.Expect(c.extension().Status.LastOperation.Description).To(ContainSubstring("it is being deleted"))

		c.serve()
		c.mustReconcile()
		c.report(yes, yes)
		c.mustReconcile()
		g.Expect(c.extension().Status.LastOperation.State).To(Equal(succeeded))
	})
}

func TestAMigrationTakesAlongWhatIsInTheShootAndRemovesWhatIsInTheSeed(t *testing.T) {
	eachWaiting(t, func(g *WithT, c *cluster) {
		c.mustReconcile()
		c.report(yes, yes)
		c.mustReconcile()
		c.serve(grmFinalizer)
		c.ask("migrate")
		g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
		g.Expect(*c.managedResource().Spec.KeepObjects).To(Equal(c.kind.extensionType == TypeShootAfterWorker))

		c.serve()
		c.mustReconcile()
		g.Expect(c.extension().Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeMigrate))
		g.Expect(c.extension().Status.LastOperation.State).To(Equal(succeeded))
		g.Expect(c.extension().Finalizers).To(BeEmpty())

		c.ask("restore")
		c.mustReconcile()
		g.Expect(c.extension().Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeRestore))
		g.Expect(c.extension().Status.LastOperation.State).To(Equal(processing), "the new seed's GRM has not applied it yet")
		g.Expect(*c.managedResource().Spec.KeepObjects).To(BeFalse())
		c.report(yes, yes)
		c.mustReconcile()
		g.Expect(c.extension().Status.LastOperation.State).To(Equal(succeeded))
	})
}

func TestAForcedDeletionLeavesWhatIsInTheShootAndRemovesWhatIsInTheSeed(t *testing.T) {
	for _, extensionType := range []string{TypeSeed, TypeShootAfterWorker} {
		t.Run(extensionType, func(t *testing.T) {
			g := NewWithT(t)
			c := newShootClusterOf(t, extensionType, shoot(map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}))
			c.mustReconcile()
			c.serve(grmFinalizer)
			c.delete()
			g.Expect(c.mustReconcile().RequeueAfter).To(BeZero())
			g.Expect(c.isGone()).To(BeTrue())
			g.Expect(*c.managedResource().Spec.KeepObjects).To(Equal(extensionType == TypeShootAfterWorker))
			g.Expect(c.managedResource().DeletionTimestamp).NotTo(BeNil())
		})
	}
}
