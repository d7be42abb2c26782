// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

func log() logr.Logger { return logr.Discard() }

// newDeployedCluster has everything, and a GRM that has not done anything yet when something is deleted.
func newDeployedCluster(t testing.TB, mutate ...func(*gardencorev1beta1.Shoot)) *cluster {
	t.Helper()
	c := newServedCluster(t, mutate...)
	c.opts.DeployCloudController = true
	c.restart()
	c.mustReconcile()
	c.serve([]string{grmFinalizer}, WebhooksName, SeedName, ShootName)
	return c
}

func (c *cluster) isDeleting(name string) bool {
	c.t.Helper()
	mr := c.managedResource(name)
	return mr != nil && mr.DeletionTimestamp != nil
}

func (c *cluster) allSecrets() []corev1.Secret {
	c.t.Helper()
	list := &corev1.SecretList{}
	NewWithT(c.t).Expect(c.List(c.t.Context(), list)).To(Succeed())
	return list.Items
}

func TestADeletionGoesStepByStepWithoutHoldingAWorker(t *testing.T) {
	g := NewWithT(t)
	c := newDeployedCluster(t)
	c.delete()
	c.clock.Step(2 * time.Minute)

	order := []string{ShootName, SeedName, WebhooksName}
	secretsLeft := map[string]int{ShootName: 5, SeedName: 5, WebhooksName: 0}
	for i, name := range order {
		for range 2 {
			g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
			g.Expect(c.isDeleting(name)).To(BeTrue())
			g.Expect(*c.managedResource(name).Spec.KeepObjects).To(BeFalse())
			g.Expect(c.controlPlane().Status.LastError.Description).To(ContainSubstring("ManagedResource shoot--local--foo/" + name + " is still being deleted"))
			for _, later := range order[i+1:] {
				g.Expect(c.isDeleting(later)).To(BeFalse(), later)
			}
			g.Expect(c.secrets()).To(HaveLen(secretsLeft[name]), "the secrets go after what uses them, before the webhooks")
			c.restart()
		}
		c.serve(nil, name)
	}

	c.mustReconcile()
	g.Expect(c.isGone()).To(BeTrue())
	g.Expect(c.managedResources()).To(BeEmpty())
	g.Expect(c.allSecrets()).To(BeEmpty(), "neither data nor the token is left")
}

func TestADeletionSaysOnlyWhatTakesLong(t *testing.T) {
	for name, test := range map[string]struct {
		taken  time.Duration
		state  gardencorev1beta1.LastOperationState
		failed bool
	}{
		"what has just begun is not worth a word": {0, gardencorev1beta1.LastOperationStateSucceeded, false},
		"what is under way is told":               {reconciler.DefaultQuiet + time.Second, gardencorev1beta1.LastOperationStateProcessing, false},
		"what takes long is an error":             {failAfter + time.Second, gardencorev1beta1.LastOperationStateError, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newDeployedCluster(t)
			c.delete()
			c.clock.Step(test.taken)
			for range 2 {
				g.Expect(c.mustReconcile().RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", retryWait)))
				g.Expect(c.isDeleting(ShootName)).To(BeTrue())
				status := c.controlPlane().Status
				g.Expect(status.LastOperation.State).To(Equal(test.state))
				g.Expect(status.LastError != nil).To(Equal(test.failed))
			}
			g.Expect(c.requests).To(BeEmpty(), "it is said once, and nothing is deleted twice")
		})
	}
}

func TestADeletionBeforeTheCreationWasFinishedIsDone(t *testing.T) {
	for name, fails := range map[string]func(verb string, obj client.Object) bool{
		"before the webhooks": func(verb string, obj client.Object) bool { return verb == "create" && obj.GetName() == WebhooksName },
		"before the secrets":  func(verb string, obj client.Object) bool { return verb == "create" && hasPrefix(obj, authorityName) },
		"between two secrets": func(verb string, obj client.Object) bool { return verb == "create" && hasPrefix(obj, serverName) },
		"before the shoot's":  func(verb string, obj client.Object) bool { return verb == "create" && obj.GetName() == ShootName },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t, hibernate)
			c.fail = func(verb string, obj client.Object) error {
				if fails(verb, obj) {
					return errors.New("no answer")
				}
				return nil
			}
			_, err := c.reconcile()
			g.Expect(err).To(HaveOccurred())

			c.fail = nil
			c.delete()
			for range 4 {
				c.mustReconcile()
			}
			g.Expect(c.isGone()).To(BeTrue())
			g.Expect(c.managedResources()).To(BeEmpty())
			g.Expect(c.secrets()).To(BeEmpty())
		})
	}
}

func TestADeletionThatFailsIsTriedAgain(t *testing.T) {
	for name, fails := range map[string]func(verb string, obj client.Object) bool{
		"a ManagedResource": func(verb string, obj client.Object) bool {
			_, ok := obj.(*resourcesv1alpha1.ManagedResource)
			return ok && verb == "delete"
		},
		"the token":    func(verb string, obj client.Object) bool { return verb == "delete" && hasPrefix(obj, "shoot-access-") },
		"the secrets":  func(verb string, _ client.Object) bool { return verb == "deletecollection" },
		"the webhooks": func(verb string, obj client.Object) bool { return verb == "delete" && obj.GetName() == WebhooksName },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newDeployedCluster(t)
			c.serve(nil, WebhooksName, SeedName, ShootName)
			c.delete()
			c.fail = func(verb string, obj client.Object) error {
				if fails(verb, obj) {
					return errors.New("no answer")
				}
				return nil
			}
			var err error
			for i := 0; i < 5 && err == nil; i++ {
				_, err = c.reconcile()
			}
			g.Expect(err).To(MatchError(ContainSubstring("no answer")))
			g.Expect(c.isGone()).To(BeFalse())

			c.fail = nil
			for range 5 {
				c.mustReconcile()
			}
			g.Expect(c.isGone()).To(BeTrue())
			g.Expect(c.allSecrets()).To(BeEmpty())
		})
	}
}

func TestAForcedDeletionWaitsForNothing(t *testing.T) {
	g := NewWithT(t)
	c := newDeployedCluster(t, func(shoot *gardencorev1beta1.Shoot) {
		shoot.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
	})
	c.delete()

	g.Expect(c.mustReconcile().RequeueAfter).To(BeZero())
	g.Expect(c.isGone()).To(BeTrue())
	for _, name := range []string{WebhooksName, ShootName, SeedName} {
		g.Expect(c.isDeleting(name)).To(BeTrue(), name)
	}
	g.Expect(c.allSecrets()).To(BeEmpty())
}

func TestAForcedDeletionOfWhatNeverWasIsDone(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t, hibernate, func(shoot *gardencorev1beta1.Shoot) {
		shoot.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
	})
	c.fail = func(verb string, _ client.Object) error {
		if verb == "create" {
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

func TestAMigrationLeavesTheShootAsItIsButForTheWebhooks(t *testing.T) {
	g := NewWithT(t)
	c := newDeployedCluster(t)
	before := c.secrets()
	c.ask("migrate")

	for _, step := range []struct {
		name string
		kept bool
	}{{ShootName, true}, {SeedName, false}, {WebhooksName, false}} {
		var statusWrites int
		for range 3 {
			g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
			g.Expect(c.isDeleting(step.name)).To(BeTrue())
			g.Expect(*c.managedResource(step.name).Spec.KeepObjects).To(Equal(step.kept), step.name)
			g.Expect(c.controlPlane().Status.LastError.Description).To(ContainSubstring(step.name + " is still being deleted"))
			statusWrites += len(slices.DeleteFunc(c.requests, func(request string) bool { return request != "status ControlPlane" }))
		}
		g.Expect(statusWrites).To(Equal(1), "each write wakes the controller as long as the annotation is there")
		c.serve(nil, step.name)
	}

	c.mustReconcile()
	cp := c.controlPlane()
	g.Expect(cp.Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeMigrate))
	g.Expect(cp.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	g.Expect(cp.Finalizers).To(BeEmpty())
	g.Expect(cp.Annotations).NotTo(HaveKey("gardener.cloud/operation"))
	g.Expect(c.managedResources()).To(BeEmpty())
	g.Expect(c.secrets()).To(Equal(before), "Gardener takes those that move on only later")

	c.mustReconcile()
	g.Expect(c.managedResources()).To(BeEmpty(), "what was migrated is left alone")
}
