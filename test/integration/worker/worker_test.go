// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/gardener/shootstate"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

var _ = Describe("A Worker", func() {
	It("succeeds as soon as its machines are there, and changes nothing when nothing has changed", func(ctx SpecContext) {
		s := newShoot(ctx, "shoot--it--plain")
		s.succeed(ctx)
		w, err := s.worker(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.Status.MachineDeployments).To(HaveLen(3))
		Expect(string(w.Status.ProviderStatus.Raw)).To(ContainSubstring("registry.local/machine:1"))

		Eventually(ctx, func(g Gomega) {
			requests.Reset()
			g.Consistently(s.writes).WithTimeout(300 * time.Millisecond).Should(BeEmpty())
			w, err = s.worker(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(time.Since(w.Status.LastOperation.LastUpdateTime.Time)).To(BeNumerically(">", time.Second))
		}).Should(Succeed(), "what woke it late has been dealt with, and Gardener asks in another second")
		s.change(ctx, "reconcile", nothing)
		Eventually(ctx, s.writes).Should(ConsistOf("PATCH rolebindings", "PATCH workers/status", "PATCH workers"))
		s.succeeds(ctx)
		Consistently(ctx, s.writes).WithTimeout(300*time.Millisecond).Should(HaveLen(3), "it does not wake itself")
	})

	It("replaces machines of another type, but not for labels", func(ctx SpecContext) {
		s := newShoot(ctx, "shoot--it--rolling")
		s.succeed(ctx)
		before := s.deployments(ctx)
		s.change(ctx, "reconcile", func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[1].Labels = map[string]string{"example.org/a": "b"} })
		Eventually(ctx, func() map[string]string { return s.deployments(ctx)["b-z1"].Spec.Template.Spec.NodeTemplateSpec.Labels }).Should(HaveKeyWithValue("example.org/a", "b"))
		Expect(s.deployments(ctx)["b-z1"].Spec.Template.Spec.Class).To(Equal(before["b-z1"].Spec.Template.Spec.Class))
		Eventually(ctx, s.outcome(ctx)).Should(ContainSubstring("observed generation outdated"), "what was there before the change is not taken for its outcome")
		s.finishes(ctx)

		s.change(ctx, "reconcile", func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[1].MachineType = "small" })
		Eventually(ctx, s.outcome(ctx)).Should(ContainSubstring("b-z1 has no machine set with its machine class yet"))
		d := s.deployments(ctx)["b-z1"]
		Expect(d.Spec.Template.Spec.Class).NotTo(Equal(before["b-z1"].Spec.Template.Spec.Class))
		Expect(s.objects(ctx, &machinev1alpha1.MachineClassList{})).To(HaveLen(4))
		s.observe(ctx, &d, 0)
		Eventually(ctx, s.outcome(ctx)).Should(ContainSubstring("has 0 of 1 machines available"))
		s.finishes(ctx)
		Expect(s.objects(ctx, &machinev1alpha1.MachineClassList{})).To(HaveLen(3))
		Expect(s.objects(ctx, &corev1.SecretList{})).To(HaveLen(3))
		Expect(s.deployments(ctx)["a-z1"].Spec.Template.Spec.Class).To(Equal(before["a-z1"].Spec.Template.Spec.Class))
	})

	It("is scaled to zero and back, hibernated and woken up", func(ctx SpecContext) {
		s := newShoot(ctx, "shoot--it--scaled")
		s.succeed(ctx)
		s.change(ctx, "reconcile", func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[0].Minimum, w.Spec.Pools[0].Maximum = 0, 0 })
		s.isDeployed(ctx, map[string]int32{"a-z1": 0, "a-z2": 0, "b-z1": 1})
		s.finishes(ctx)
		s.change(ctx, "reconcile", func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[0].Minimum, w.Spec.Pools[0].Maximum = 4, 4 })
		s.isDeployed(ctx, map[string]int32{"a-z1": 2, "a-z2": 2, "b-z1": 1})
		s.finishes(ctx)

		s.changeShoot(ctx, func(shoot *gardencorev1beta1.Shoot) {
			shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)}
		})
		s.change(ctx, "reconcile", nothing)
		Eventually(ctx, s.outcome(ctx)).Should(ContainSubstring("a-z1 has 2 machines that are to be hibernated"))
		s.finishes(ctx)
		deployment := &appsv1.Deployment{}
		Expect(seed.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "machine-controller-manager"}, deployment)).To(Succeed())
		Expect(*deployment.Spec.Replicas).To(BeZero())

		s.changeShoot(ctx, func(shoot *gardencorev1beta1.Shoot) { shoot.Spec.Hibernation = nil })
		s.change(ctx, "reconcile", nothing)
		s.isDeployed(ctx, map[string]int32{"a-z1": 2, "a-z2": 2, "b-z1": 1})
		s.finishes(ctx)
	})

	It("tells a mistake and a machine that has failed, and goes on when they are put right", func(ctx SpecContext) {
		s := newShoot(ctx, "shoot--it--mistake")
		w := s.newWorker()
		w.Spec.Pools[1].MachineImage.Version = "9.9.9"
		Expect(seed.Create(ctx, w)).To(Succeed())
		Eventually(ctx, s.outcome(ctx)).Should(And(HavePrefix("Error: "), ContainSubstring("worker pool b: could not find machine image for local/9.9.9"), HaveSuffix("[ERR_CONFIGURATION_PROBLEM]")))
		s.change(ctx, "reconcile", func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[1].MachineImage.Version = "1.0.0" })
		s.isDeployed(ctx, map[string]int32{"a-z1": 1, "a-z2": 1, "b-z1": 1})

		d := s.deployments(ctx)["b-z1"]
		before := d.DeepCopy()
		d.Status.FailedMachines = []*machinev1alpha1.MachineSummary{{Name: "m", LastOperation: machinev1alpha1.LastOperation{Description: "machine codes error: code = [ResourceExhausted] message = [Insufficient memory]", LastUpdateTime: metav1.Now()}}}
		Expect(seed.Status().Patch(ctx, &d, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, s.outcome(ctx)).Should(And(HavePrefix("Error: "), ContainSubstring("Insufficient memory"), HaveSuffix("[ERR_INFRA_RESOURCES_DEPLETED]")))
		s.finish(ctx)
		s.succeeds(ctx)
	})

	It("does not keep others from being reconciled while it waits", func(ctx SpecContext) {
		waiting, other := newShoot(ctx, "shoot--it--waiting"), newShoot(ctx, "shoot--it--other")
		Expect(seed.Create(ctx, waiting.newWorker())).To(Succeed())
		Eventually(ctx, waiting.outcome(ctx)).Should(ContainSubstring("waiting for machines"))
		other.succeed(ctx)
		Expect(waiting.outcome(ctx)()).To(HavePrefix("Processing: waiting for machines"))
		waiting.finishes(ctx)
	})

	It("is migrated and restored with its machines", func(ctx SpecContext) {
		s := newShoot(ctx, "shoot--it--migrated")
		s.succeed(ctx)
		s.change(ctx, "migrate", nothing)
		Eventually(ctx, func() []string {
			w, err := s.worker(ctx)
			Expect(err).NotTo(HaveOccurred())
			return w.Finalizers
		}).Should(BeEmpty())
		s.succeeds(ctx)
		Expect(s.deployments(ctx)).To(HaveLen(3), "the machines stay")
		w, err := s.worker(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(seed.Delete(ctx, w)).To(Succeed())

		to := newShoot(ctx, "shoot--it--restored")
		name := to.name + "-a-z1"
		state, err := shootstate.MarshalMachineState(&shootstate.MachineState{MachineDeployments: map[string]*shootstate.MachineDeploymentState{name: {
			Replicas:    2,
			MachineSets: []machinev1alpha1.MachineSet{{ObjectMeta: metav1.ObjectMeta{Namespace: to.name, Name: name + "-set", Labels: map[string]string{"name": name}}}},
			Machines:    []machinev1alpha1.Machine{{ObjectMeta: metav1.ObjectMeta{Namespace: to.name, Name: "m", Labels: map[string]string{"name": name}}}},
		}}})
		Expect(err).NotTo(HaveOccurred())
		w = to.newWorker()
		w.Annotations = map[string]string{"gardener.cloud/operation": "wait-for-state"}
		Expect(seed.Create(ctx, w)).To(Succeed())
		w.Status.State = &runtime.RawExtension{Raw: state}
		Expect(seed.Status().Update(ctx, w)).To(Succeed())
		to.change(ctx, "restore", nothing)
		to.isDeployed(ctx, map[string]int32{"a-z1": 2, "a-z2": 1, "b-z1": 1})
		Expect(to.objects(ctx, &machinev1alpha1.MachineList{})).To(HaveLen(1))
		Eventually(ctx, to.worker).Should(HaveField("Status.LastOperation", PointTo(HaveField("Description", ContainSubstring("waiting for machines")))))

		Eventually(ctx, func(g Gomega) {
			requests.Reset()
			g.Consistently(to.writes).WithTimeout(300 * time.Millisecond).Should(BeEmpty())
		}).Should(Succeed(), "the annotation does not have it reconciled without end")
		to.finish(ctx)
		to.succeeds(ctx)
	})

	It("is deleted when machine-controller-manager has deleted its machines", func(ctx SpecContext) {
		s := newShoot(ctx, "shoot--it--deleted")
		s.succeed(ctx)
		Expect(seed.Create(ctx, &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "m"}})).To(Succeed())
		for _, list := range kinds() {
			s.setFinalizers(ctx, list, mcmFinalizer)
		}
		w, err := s.worker(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(seed.Delete(ctx, w)).To(Succeed())
		Eventually(ctx, s.outcome(ctx)).Should(ContainSubstring("waiting for machine-controller-manager to acquire the Secret"))
		s.credentials(ctx, mcFinalizer)

		for i, what := range []string{"3 machine deployments", "3 machine sets", "1 machines", "3 machine classes", "3 secrets of machine classes"} {
			Eventually(ctx, s.outcome(ctx)).Should(ContainSubstring("waiting for the deletion of " + what))
			s.setFinalizers(ctx, kinds()[i])
		}
		Eventually(ctx, s.outcome(ctx)).Should(ContainSubstring("waiting for machine-controller-manager to release the Secret"))
		s.credentials(ctx)
		s.isEmpty(ctx)
	})

	It("is deleted by force with all that machines are made of", func(ctx SpecContext) {
		s := newShoot(ctx, "shoot--it--forced")
		s.succeed(ctx)
		labels := map[string]string{"app": "machine", "machine-provider": "local", "machine": "m"}
		Expect(seed.Create(ctx, &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "m"}})).To(Succeed())
		Expect(seed.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "machine-m", Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "machine"}}, AutomountServiceAccountToken: new(false)},
		})).To(Succeed())
		Expect(seed.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "machine-m", Labels: labels}, Spec: corev1.ServiceSpec{ClusterIP: "None"}})).To(Succeed())
		for _, list := range kinds() {
			s.setFinalizers(ctx, list, mcmFinalizer)
		}
		s.credentials(ctx, mcFinalizer)
		s.changeShoot(ctx, func(shoot *gardencorev1beta1.Shoot) {
			shoot.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
		})
		w, err := s.worker(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(seed.Delete(ctx, w)).To(Succeed())
		s.isEmpty(ctx)

		for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ServiceList{}} {
			Expect(s.objects(ctx, list)).To(BeEmpty())
		}
		secret := &corev1.Secret{}
		Expect(seed.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "cloudprovider"}, secret)).To(Succeed())
		Expect(secret.Finalizers).To(BeEmpty())
	})
})
