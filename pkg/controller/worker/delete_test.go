// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// manage puts machine-controller-manager's finalizer on all that it looks after, or takes it off.
func (c *seed) manage(finalizers ...string) {
	c.t.Helper()
	for _, d := range c.deployments() {
		d.Finalizers = finalizers
		c.update(&d)
	}
	for _, s := range c.sets() {
		s.Finalizers = finalizers
		c.update(&s)
	}
	for _, m := range c.machines() {
		m.Finalizers = finalizers
		c.update(&m)
	}
	for _, class := range c.classes() {
		class.Finalizers = finalizers
		c.update(&class)
	}
	for _, s := range c.classSecrets() {
		s.Finalizers = finalizers
		c.update(&s)
	}
}

func (c *seed) credentials() *corev1.Secret {
	c.t.Helper()
	secret := &corev1.Secret{}
	NewWithT(c.t).Expect(c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: "cloudprovider"}, secret)).To(Succeed())
	return secret
}

// delete deletes the Worker so long ago that it tells what it waits for.
func (c *seed) delete() {
	c.t.Helper()
	NewWithT(c.t).Expect(c.Delete(c.t.Context(), c.worker())).To(Succeed())
	if w := (&extensionsv1alpha1.Worker{}); c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: "foo"}, w) == nil {
		c.clock.SetTime(w.DeletionTimestamp.Add(reconciler.DefaultQuiet))
	}
}

// isEmpty reports whether nothing is left of machines.
func (c *seed) isEmpty() bool {
	return len(c.deployments())+len(c.sets())+len(c.machines())+len(c.classes())+len(c.classSecrets()) == 0
}

func newMachine(name string, owners ...metav1.OwnerReference) *machinev1alpha1.Machine {
	return &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owners}}
}

func TestADeletionWaitsForEachKindInTurn(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	c.create(newMachine("m"))
	c.manage(mcmFinalizer)
	secret := c.credentials()
	secret.Finalizers = []string{"gardener.cloud/gardener"}
	c.update(secret)
	c.delete()

	g.Expect(c.mustReconcile().RequeueAfter).To(Equal(2*time.Second), "Secrets are not watched")
	g.Expect(c.outcome()).To(Equal("Processing: waiting for machine-controller-manager to acquire the Secret shoot--local--foo/cloudprovider with the credentials"))
	g.Expect(c.requests).NotTo(ContainElement("delete all MachineDeployment"))

	secret = c.credentials()
	secret.Finalizers = append(secret.Finalizers, driverFinalizer)
	c.update(secret)
	g.Expect(c.mustReconcile().RequeueAfter).To(Equal(time.Minute))
	g.Expect(c.outcome()).To(Equal("Processing: waiting for the deletion of 3 machine deployments: shoot--local--foo-a-z1, shoot--local--foo-a-z2, shoot--local--foo-b-z1"))
	g.Expect(c.machines()["m"].Labels).To(HaveKeyWithValue("force-deletion", "True"))
	g.Expect(c.classes()).To(HaveLen(3))

	free := func(obj client.Object) {
		obj.SetFinalizers(nil)
		c.update(obj)
	}
	for _, d := range c.deployments() {
		free(&d)
	}
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Processing: waiting for the deletion of 3 machine sets: "))
	for _, s := range c.sets() {
		free(&s)
	}
	c.mustReconcile()
	g.Expect(c.outcome()).To(Equal("Processing: waiting for the deletion of 1 machines: m"), "an orphan is deleted, too")
	for _, class := range c.classes() {
		g.Expect(class.DeletionTimestamp).To(BeNil(), "the machine needs it")
	}
	m := c.machines()["m"]
	free(&m)
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Processing: waiting for the deletion of 3 machine classes: "))
	for _, class := range c.classes() {
		free(&class)
	}
	g.Expect(c.mustReconcile().RequeueAfter).To(Equal(2*time.Second), "Secrets are not watched")
	g.Expect(c.outcome()).To(HavePrefix("Processing: waiting for the deletion of 3 secrets of machine classes: "))
	for _, s := range c.classSecrets() {
		free(&s)
	}
	g.Expect(c.mustReconcile().RequeueAfter).To(Equal(2 * time.Second))
	g.Expect(c.outcome()).To(Equal("Processing: waiting for machine-controller-manager to release the Secret shoot--local--foo/cloudprovider with the credentials"))

	secret = c.credentials()
	secret.Finalizers = []string{"gardener.cloud/gardener"}
	c.update(secret)
	c.mustReconcile()
	g.Expect(c.isGone()).To(BeTrue())
	g.Expect(c.isEmpty()).To(BeTrue())
}

func TestADeletionThatHasJustBegunDoesNotSayWhatItWaitsFor(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	c.manage(mcmFinalizer)
	c.delete()
	c.clock.SetTime(c.worker().DeletionTimestamp.Add(time.Second))
	g.Expect(c.mustReconcile().RequeueAfter).To(Equal(reconciler.DefaultQuiet - time.Second))
	g.Expect(c.deployments()).To(HaveEach(HaveField("DeletionTimestamp", Not(BeNil()))))
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))

	c.clock.Step(reconciler.DefaultQuiet)
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Processing: waiting for the deletion of 3 machine deployments"))
}

func TestWhatTheCacheDoesNotHaveYetIsDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		later time.Duration
		asks  bool
	}{
		"what has just been deployed may not be there yet": {time.Second, true},
		"after a while nobody asks":                        {settledAfter + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorker()
			w.Spec.Pools = nil
			c := newSeed(t, w)
			c.mustReconcile()
			secret := c.credentials()
			secret.Finalizers = nil
			c.update(secret)
			c.delete()
			w = c.worker()
			w.Status.MachineDeploymentsLastUpdateTime = &metav1.Time{Time: c.clock.Now().Add(-test.later)}
			g.Expect(c.Status().Update(t.Context(), w)).To(Succeed())

			c.mustReconcile()
			g.Expect(c.isGone()).To(BeTrue())
			if test.asks {
				g.Expect(c.requests).To(ContainElement("live list *v1alpha1.MachineDeploymentList"))
			} else {
				g.Expect(c.requests).NotTo(ContainElement(HavePrefix("live list")))
			}
		})
	}
}

func TestADeletionThatNobodyHoldsUpTakesAsManyAttemptsAsThereAreKinds(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	secret := c.credentials()
	c.delete()
	for range 4 {
		c.mustReconcile()
	}
	secret.Finalizers = nil
	c.update(secret)
	c.mustReconcile()
	g.Expect(c.isGone()).To(BeTrue())
	g.Expect(c.isEmpty()).To(BeTrue())
}

func TestADeletionIsPreparedOnce(t *testing.T) {
	now := &metav1.Time{Time: time.Now()}
	deployment := func(going *metav1.Time) observed {
		return observed{deployments: machinev1alpha1.MachineDeploymentList{Items: []machinev1alpha1.MachineDeployment{{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: going}}}}}
	}
	set := func(going *metav1.Time) observed {
		return observed{sets: machinev1alpha1.MachineSetList{Items: []machinev1alpha1.MachineSet{{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: going}}}}}
	}
	machine := func(going *metav1.Time) observed {
		return observed{machines: machinev1alpha1.MachineList{Items: []machinev1alpha1.Machine{{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: going}}}}}
	}
	both := deployment(nil)
	both.machines = machine(now).machines
	for name, test := range map[string]struct {
		existing observed
		want     bool
	}{
		"nothing is there":                            {observed{}, false},
		"a deployment":                                {deployment(nil), true},
		"a deployment that goes":                      {deployment(now), false},
		"a deployment whose machine goes by itself":   {both, true},
		"a set without a deployment":                  {set(nil), true},
		"a set that goes":                             {set(now), false},
		"a machine that nothing manages":              {machine(nil), true},
		"a machine that goes after all that makes it": {machine(now), false},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(test.existing.isUntouched()).To(Equal(test.want)) })
	}
}

func TestADeletionBeforeTheCreationIsFinished(t *testing.T) {
	t.Run("of a Worker that was never touched", func(t *testing.T) {
		g := NewWithT(t)
		w := newWorker()
		w.Finalizers = []string{"somebody/else"}
		c := newSeed(t, w)
		c.delete()
		c.mustReconcile()
		g.Expect(c.requests).To(BeEmpty())
	})
	t.Run("of a Worker whose pools cannot be rendered", func(t *testing.T) {
		g := NewWithT(t)
		w := newWorker()
		w.Spec.Pools[0].MachineImage.Version = "9.9.9"
		c := newSeed(t, w)
		c.mustReconcile()
		g.Expect(c.outcome()).To(HavePrefix("Error: "))
		secret := c.credentials()
		secret.Finalizers = nil
		c.update(secret)
		c.delete()
		c.mustReconcile()
		g.Expect(c.isGone()).To(BeTrue(), "neither credentials nor a running manager are needed")
	})
	t.Run("of a Worker that waits for its first machine", func(t *testing.T) {
		g := NewWithT(t)
		c := newSeed(t, newWorker())
		c.mustReconcile()
		c.change(func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[0].MachineType = "gone" })
		secret := c.credentials()
		c.delete()
		for range 3 {
			c.mustReconcile()
		}
		secret.Finalizers = nil
		c.update(secret)
		c.mustReconcile()
		g.Expect(c.isGone()).To(BeTrue())
		g.Expect(c.isEmpty()).To(BeTrue())
	})
}

func TestADeletionWithoutTheCredentials(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	secret := c.credentials()
	secret.Finalizers = nil
	c.update(secret)
	g.Expect(c.Delete(t.Context(), secret)).To(Succeed())
	c.delete()
	c.mustReconcile()
	g.Expect(c.worker().Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
	g.Expect(c.outcome()).To(ContainSubstring("create it, the machines that are left cannot be deleted without"))
	g.Expect(c.deployments()).To(HaveLen(3))

	for _, d := range c.deployments() {
		g.Expect(c.Delete(t.Context(), &d)).To(Succeed())
	}
	for _, s := range c.sets() {
		g.Expect(c.Delete(t.Context(), &s)).To(Succeed())
	}
	for range 3 {
		c.mustReconcile()
	}
	g.Expect(c.isGone()).To(BeTrue(), "without machines nobody needs them")
	g.Expect(c.isEmpty()).To(BeTrue())
}

func TestMachinesThatCannotBeDeletedAreAnErrorWithCodes(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	c.create(newMachine("m"))
	c.manage(mcmFinalizer)
	c.delete()
	c.mustReconcile()
	m := c.machines()["m"]
	g.Expect(c.Delete(t.Context(), &m)).To(Succeed())
	m = c.machines()["m"]
	m.Status.LastOperation = machinev1alpha1.LastOperation{State: machinev1alpha1.MachineStateFailed, Description: "code = [PermissionDenied] message = [no]"}
	g.Expect(c.Status().Update(t.Context(), &m)).To(Succeed())
	c.mustReconcile()
	g.Expect(c.worker().Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorInfraUnauthorized))

	c.clock.SetTime(c.worker().DeletionTimestamp.Add(6 * time.Minute))
	m = c.machines()["m"]
	m.Finalizers = nil
	c.update(&m)
	c.mustReconcile()
	g.Expect(c.outcome()).To(And(HavePrefix("Error: "), ContainSubstring("this takes more than 5m0s: waiting for the deletion of 3 machine deployments")))
}

func TestAMachineThatCannotBeDeletedKeepsNoOther(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	c.create(newMachine("m"))
	c.manage(mcmFinalizer)
	m := c.machines()["m"]
	g.Expect(c.Delete(t.Context(), &m)).To(Succeed())
	m = c.machines()["m"]
	m.Status.LastOperation = machinev1alpha1.LastOperation{State: machinev1alpha1.MachineStateFailed, Description: "code = [PermissionDenied] message = [no]"}
	g.Expect(c.Status().Update(t.Context(), &m)).To(Succeed())

	c.delete()
	c.mustReconcile()
	g.Expect(c.worker().Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorInfraUnauthorized))
	g.Expect(c.deployments()).To(And(HaveLen(3), HaveEach(HaveField("DeletionTimestamp", Not(BeNil())))))
}

func TestAForcedDeletionLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	c.create(newMachine("m"))
	c.manage(mcmFinalizer)
	machineLabels := map[string]string{"app": "machine", "machine-provider": "local", "machine": "m"}
	c.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-m", Labels: machineLabels}})
	c.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-m", Labels: machineLabels}})
	c.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-m-userdata", Labels: machineLabels}})
	c.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-apiserver"}})
	secret := c.credentials()
	secret.Finalizers = append(secret.Finalizers, "gardener.cloud/gardener")
	c.update(secret)
	c.shoot(func(shoot *gardencorev1beta1.Shoot) {
		shoot.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
	})
	c.delete()

	down := errors.New("connection refused")
	c.fail = func(verb string, obj client.Object) error {
		if verb == "patch" && strings.HasSuffix(obj.GetName(), "-b-z1") {
			return down
		}
		return nil
	}
	_, err := c.reconcile()
	g.Expect(err).To(MatchError(ContainSubstring("connection refused")))
	c.fail = nil
	c.mustReconcile()
	g.Expect(c.isGone()).To(BeTrue())
	g.Expect(c.isEmpty()).To(BeTrue())
	g.Expect(c.credentials().Finalizers).To(ConsistOf("gardener.cloud/gardener"))
	pods := list(c, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }, func(p corev1.Pod) string { return p.Name })
	g.Expect(pods).To(And(HaveLen(1), HaveKey("kube-apiserver")))
	services := list(c, &corev1.ServiceList{}, func(l *corev1.ServiceList) []corev1.Service { return l.Items }, func(s corev1.Service) string { return s.Name })
	g.Expect(services).To(BeEmpty())
	secrets := list(c, &corev1.SecretList{}, func(l *corev1.SecretList) []corev1.Secret { return l.Items }, func(s corev1.Secret) string { return s.Name })
	g.Expect(secrets).NotTo(HaveKey("machine-m-userdata"))
	g.Expect(secrets).To(HaveKey("user-data-a"), "it is gardenlet's")
}

func TestAMigrationLeavesAllAsItIs(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	c.ask("migrate")
	c.mustReconcile()
	g.Expect(c.worker().Finalizers).To(BeEmpty())
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	g.Expect(c.deployments()).To(HaveLen(3))
	g.Expect(c.classes()).To(HaveLen(3))
}
