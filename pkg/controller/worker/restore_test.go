// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/gardener/shootstate"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

// restored is a Worker that gardenlet has created in another seed, with the state of one of its pools.
func restored(t testing.TB) *extensionsv1alpha1.Worker {
	t.Helper()
	name := namespace + "-a-z1"
	set := machinev1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-set", Labels: map[string]string{"name": name}}}
	machine := machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m", Labels: map[string]string{"name": name, "node": "machine-m"}}}
	state, err := shootstate.MarshalMachineState(&shootstate.MachineState{MachineDeployments: map[string]*shootstate.MachineDeploymentState{
		name: {Replicas: 3, MachineSets: []machinev1alpha1.MachineSet{set}, Machines: []machinev1alpha1.Machine{machine}},
	}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	w := newWorker()
	w.Annotations = map[string]string{"gardener.cloud/operation": "restore"}
	w.Status.State = &runtime.RawExtension{Raw: state}
	return w
}

func (c *seed) scaleManager(replicas int32) {
	c.t.Helper()
	deployment := c.manager()
	deployment.Spec.Replicas = &replicas
	c.update(deployment)
}

func (c *seed) manager() *appsv1.Deployment {
	c.t.Helper()
	deployment := &appsv1.Deployment{}
	NewWithT(c.t).Expect(c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: "machine-controller-manager"}, deployment)).To(Succeed())
	return deployment
}

func TestARestorationBringsMachinesBackOnce(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, restored(t))
	c.scaleManager(0)
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Processing: waiting for machines"))
	g.Expect(c.worker().Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeRestore))
	g.Expect(c.machines()).To(HaveKey("m"))
	g.Expect(c.sets()).To(HaveKey(namespace + "-a-z1-set"))
	g.Expect(c.replicas()).To(Equal(map[string]int32{"a-z1": 3, "a-z2": 1, "b-z1": 1}))
	g.Expect(*c.manager().Spec.Replicas).To(BeEquivalentTo(1))

	// machine-controller-manager replaces the machine, which the state still has.
	g.Expect(c.Delete(t.Context(), newMachine("m"))).To(Succeed())
	c.mustReconcile()
	g.Expect(c.machines()).To(BeEmpty())
	c.restart()
	c.mustReconcile()
	g.Expect(c.machines()).To(BeEmpty())
	g.Expect(c.requests).To(ConsistOf("live Worker", "apply RoleBinding"), "the annotation wakes it at every write")

	c.finish()
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	g.Expect(c.worker().Annotations).NotTo(HaveKey("gardener.cloud/operation"))
}

func TestARestorationThatIsAskedForAgainStartsItsManagerAgain(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, restored(t))
	c.mustReconcile()
	// As gardenlet does, whose flow has begun anew before machine-controller-manager had written a status.
	c.scaleManager(0)
	c.mustReconcile()
	g.Expect(*c.manager().Spec.Replicas).To(BeZero(), "nobody has asked")
	c.clock.Step(time.Minute)
	c.ask("restore")
	c.mustReconcile()
	g.Expect(*c.manager().Spec.Replicas).To(BeEquivalentTo(1))
	g.Expect(c.replicas()).To(HaveKeyWithValue("a-z1", int32(3)))
}

func TestARestorationOfAHibernatedShootStartsNobody(t *testing.T) {
	for name, change := range map[string]func(*extensionsv1alpha1.Worker){
		"with state":    func(*extensionsv1alpha1.Worker) {},
		"without state": func(w *extensionsv1alpha1.Worker) { w.Status.State = nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := restored(t)
			change(w)
			c := newSeed(t, w)
			c.scaleManager(0)
			c.shoot(func(shoot *gardencorev1beta1.Shoot) {
				hibernate(shoot)
				shoot.Status.IsHibernated = true
			})
			c.mustReconcile()
			g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
			g.Expect(*c.manager().Spec.Replicas).To(BeZero())
			g.Expect(c.replicas()).To(Equal(map[string]int32{"a-z1": 0, "a-z2": 0, "b-z1": 0}))
		})
	}
}

func TestARestorationWithoutStateCreatesMachines(t *testing.T) {
	g := NewWithT(t)
	w := restored(t)
	w.Status.State = nil
	c := newSeed(t, w)
	c.scaleManager(0)
	c.mustReconcile()
	g.Expect(*c.manager().Spec.Replicas).To(BeEquivalentTo(1))
	c.finish()
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	g.Expect(c.replicas()).To(HaveKeyWithValue("a-z1", int32(2)))
}

func TestAMistakeInTheWorkerStopsTheRestoration(t *testing.T) {
	g := NewWithT(t)
	w := restored(t)
	w.Spec.Pools[0].MachineType = "gone"
	c := newSeed(t, w)
	c.mustReconcile()
	g.Expect(c.worker().Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
	c.mustReconcile()
	g.Expect(c.requests).To(ConsistOf("live Worker"))
}

func TestReplicasThatWereRestoredAreKeptThoughTheCacheIsBehind(t *testing.T) {
	for name, behind := range map[string]func(machinev1alpha1.MachineDeployment) bool{
		"and has no deployment":          func(machinev1alpha1.MachineDeployment) bool { return true },
		"and has those without machines": func(d machinev1alpha1.MachineDeployment) bool { return d.Spec.Replicas > 0 },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newSeed(t, restored(t))
			c.scaleManager(0)
			c.create(&machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace + "-b-z1"}})
			c.behind = behind
			c.mustReconcile()
			g.Expect(c.replicas()).To(HaveKeyWithValue("a-z1", int32(3)))
		})
	}
}
