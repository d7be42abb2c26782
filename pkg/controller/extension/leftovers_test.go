// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var forceDeleteTest = map[string]string{"test-force-delete": "true"}

func (c *cluster) networkPolicies() []networkingv1.NetworkPolicy {
	c.t.Helper()
	list := &networkingv1.NetworkPolicyList{}
	NewWithT(c.t).Expect(c.List(c.t.Context(), list, client.InNamespace(c.key.Namespace), client.MatchingLabels{"app.kubernetes.io/name": "local-ext-shoot"})).To(Succeed())
	return list.Items
}

func TestAShootMayAskForLeftoversThatADeletionDoesNotTakeAway(t *testing.T) {
	g := NewWithT(t)
	c := newShootCluster(t, shoot(forceDeleteTest))
	c.mustReconcile()
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.networkPolicies()).To(HaveLen(2), "a second reconcile makes no more of them")
	for _, policy := range c.networkPolicies() {
		g.Expect(policy.Finalizers).To(ConsistOf("extensions.gardener.cloud/local-ext-shoot"))
		g.Expect(policy.Spec.PodSelector.MatchLabels).NotTo(BeEmpty(), "one that selects all pods would cut them off")
	}

	c.delete()
	c.mustReconcile()
	c.mustReconcile()
	g.Expect(c.isGone()).To(BeTrue())
	g.Expect(c.networkPolicies()).To(HaveLen(2))
}

func TestAForcedDeletionInTheGardenTouchesNoNetworkPolicies(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.mustReconcile()
	ex := c.extension()
	ex.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
	g.Expect(c.Update(t.Context(), ex)).To(Succeed())
	c.delete()
	c.fail = func(_ string, obj client.Object) error {
		if _, ok := obj.(*networkingv1.NetworkPolicy); ok {
			return errors.New("forbidden")
		}
		return nil
	}
	c.mustReconcile()
	g.Expect(c.isGone()).To(BeTrue())
}

func TestAForcedDeletionTakesTheLeftoversAway(t *testing.T) {
	g := NewWithT(t)
	c := newShootCluster(t, shoot(map[string]string{"test-force-delete": "true", "confirmation.gardener.cloud/force-deletion": "true"}))
	c.mustReconcile()
	g.Expect(c.networkPolicies()).To(HaveLen(2))
	c.delete()
	c.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*networkingv1.NetworkPolicy); ok && verb == "delete" {
			return errors.New("no answer")
		}
		return nil
	}
	_, err := c.reconcile()
	g.Expect(err).To(MatchError(ContainSubstring("no answer")))
	g.Expect(c.isGone()).To(BeFalse())

	c.fail = nil
	c.restart()
	c.mustReconcile()
	g.Expect(c.isGone()).To(BeTrue())
	g.Expect(c.networkPolicies()).To(BeEmpty())
}

func TestAMigrationTakesTheLeftoversAway(t *testing.T) {
	g := NewWithT(t)
	c := newShootCluster(t, shoot(forceDeleteTest))
	c.mustReconcile()
	c.ask("migrate")
	c.mustReconcile()
	g.Expect(c.networkPolicies()).To(BeEmpty(), "the namespace in the old seed has to go")
}

func TestAMigrationTakesThemAwayThoughTheShootAsksNoMore(t *testing.T) {
	g := NewWithT(t)
	c := newShootCluster(t, shoot(forceDeleteTest))
	c.mustReconcile()
	g.Expect(c.networkPolicies()).To(HaveLen(2))
	c.setShoot(shoot(nil))
	c.ask("migrate")
	c.mustReconcile()
	g.Expect(c.networkPolicies()).To(BeEmpty())
}

func TestWhatWasLeftIsTakenAwayThoughTheSwitchIsOffByThen(t *testing.T) {
	for name, leave := range map[string]func(*cluster){
		"by a migration":       func(c *cluster) { c.ask("migrate") },
		"by a forced deletion": func(c *cluster) { c.delete() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newShootCluster(t, shoot(map[string]string{"test-force-delete": "true", "confirmation.gardener.cloud/force-deletion": "true"}))
			c.mustReconcile()
			NewWithT(t).Expect(c.networkPolicies()).To(HaveLen(2))
			c.forceDeleteTest = false
			c.restart()
			leave(c)
			c.mustReconcile()
			NewWithT(t).Expect(c.networkPolicies()).To(BeEmpty())
		})
	}
}

func TestThereAreNoLeftoversUnlessAsked(t *testing.T) {
	for name, newCluster := range map[string]func(t testing.TB) *cluster{
		"a shoot without the annotation": func(t testing.TB) *cluster { return newShootCluster(t, shoot(nil)) },
		"a shoot with another value": func(t testing.TB) *cluster {
			return newShootCluster(t, shoot(map[string]string{"test-force-delete": "false"}))
		},
		"an instance that is no test's": func(t testing.TB) *cluster {
			c := newShootCluster(t, shoot(forceDeleteTest))
			c.forceDeleteTest = false
			c.restart()
			return c
		},
		"class garden":  newCluster,
		"another type":  func(t testing.TB) *cluster { return newShootClusterOf(t, TypeSeed, shoot(forceDeleteTest)) },
		"after workers": func(t testing.TB) *cluster { return newShootClusterOf(t, TypeShootAfterWorker, shoot(forceDeleteTest)) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.mustReconcile()
			if c.kind.waits {
				c.report(yes, yes)
				c.mustReconcile()
			}
			NewWithT(t).Expect(c.extension().Status.LastOperation.State).To(Equal(succeeded))
			NewWithT(t).Expect(c.networkPolicies()).To(BeEmpty())
		})
	}
}
