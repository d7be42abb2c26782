// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// poolSpecs are those of the life of a Shoot with a worker pool.
func poolSpecs() {
	const (
		name = "e2e-mach"
		// The versions of the machine image in the CloudProfile.
		before, after = "1.0.0", "2.0.0"
	)
	var shoot *gardencorev1beta1.Shoot

	operate := func(ctx context.Context, what string, ask func()) {
		GinkgoHelper()
		timed(name, what, func() {
			ask()
			g.EventuallyHealthy(ctx, shoot, patience)
		})
	}
	scale := func(ctx context.Context, machines int32) {
		GinkgoHelper()
		g.Change(ctx, shoot, func() {
			pool := &shoot.Spec.Provider.Workers[0]
			pool.Minimum, pool.Maximum = machines, machines
		})
	}

	BeforeAll(func(ctx SpecContext) {
		shoot = exampleNamed(exampleMachines, name)
		DeferCleanup(remove, shoot)
		makeRoom(ctx)
	})

	It("is created", specPatience, func(ctx SpecContext) {
		pool := &shoot.Spec.Provider.Workers[0]
		pool.Minimum, pool.Maximum = 1, 1
		pool.Machine.Image = &gardencorev1beta1.ShootMachineImage{Name: "local", Version: new(before)}
		operate(ctx, "create", func() { create(ctx, shoot) })
		expectMachines(ctx, shoot, 1, before)
		writeNote(ctx, shoot)
	})

	It("gets another machine", specPatience, func(ctx SpecContext) {
		first := expectMachines(ctx, shoot, 1, before)
		operate(ctx, "scale up", func() { scale(ctx, 2) })
		Expect(expectMachines(ctx, shoot, 2, before)).To(ContainElement(first[0]), "the first one stays")
	})

	It("loses a machine", specPatience, func(ctx SpecContext) {
		both := expectMachines(ctx, shoot, 2, before)
		operate(ctx, "scale down", func() { scale(ctx, 1) })
		Expect(both).To(ContainElement(expectMachines(ctx, shoot, 1, before)[0]), "one of them stays")
	})

	It("takes another version of the machine image by new machines", specPatience, func(ctx SpecContext) {
		old := expectMachines(ctx, shoot, 1, before)
		operate(ctx, "machine image "+after, func() {
			g.Change(ctx, shoot, func() { shoot.Spec.Provider.Workers[0].Machine.Image.Version = new(after) })
		})
		Expect(expectMachines(ctx, shoot, 1, after)).NotTo(ContainElement(old[0]))
	})

	It("hibernates, without machines", specPatience, func(ctx SpecContext) {
		operate(ctx, "hibernate", func() {
			g.Change(ctx, shoot, func() { shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)} })
		})
		Expect(shoot.Status.IsHibernated).To(BeTrue())
		expectNoControlPlane(ctx, shoot)
		Expect(machinePods(ctx, shoot)).To(BeEmpty())
	})

	It("wakes up, with a new machine", specPatience, func(ctx SpecContext) {
		operate(ctx, "wake up", func() {
			g.Change(ctx, shoot, func() { shoot.Spec.Hibernation = nil })
		})
		expectMachines(ctx, shoot, 1, after)
		expectNote(ctx, shoot)
	})

	It("takes another version of the machine image in place, by the machine that it has", specPatience, func(ctx SpecContext) {
		operate(ctx, "a pool that is updated in place", func() {
			g.Change(ctx, shoot, func() {
				pool := &shoot.Spec.Provider.Workers[0]
				pool.Name, pool.UpdateStrategy, pool.Machine.Image.Version = "in-place", new(gardencorev1beta1.AutoInPlaceUpdate), new(before)
				pool.MaxSurge, pool.MaxUnavailable = new(intstr.FromInt32(0)), new(intstr.FromInt32(1))
			})
		})
		machine := expectMachines(ctx, shoot, 1, before)
		operate(ctx, "machine image "+after+" in place", func() {
			g.Change(ctx, shoot, func() { shoot.Spec.Provider.Workers[0].Machine.Image.Version = new(after) })
		})
		Expect(expectMachines(ctx, shoot, 1, after)).To(Equal(machine))
		expectNote(ctx, shoot)
	})

	It("is deleted, and nothing is left", specPatience, func(ctx SpecContext) {
		left := trace(ctx, shoot)
		timed(name, "delete", func() {
			g.Delete(ctx, shoot)
			g.EventuallyDeleted(ctx, shoot, patience)
		})
		left.expectNothingLeft(ctx)
	})
}

// expectMachines expects that a shoot has just so many machines with this version of the image, and that machine, pod and Node
// are one each. It returns the names of the Nodes.
func expectMachines(ctx context.Context, shoot *gardencorev1beta1.Shoot, count int, version string) []string {
	GinkgoHelper()
	cluster := access(ctx, shoot)
	var names []string
	Eventually(func(g Gomega) {
		nodes := &corev1.NodeList{}
		g.Expect(cluster.Client.List(ctx, nodes)).To(Succeed())
		g.Expect(nodes.Items).To(HaveLen(count))
		g.Expect(nodes.Items).To(HaveEach(And(
			HaveField("Status.NodeInfo.OSImage", ContainSubstring(version)),
			HaveField("Status.Conditions", ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue)))),
		)))
		names = nil
		for _, node := range nodes.Items {
			names = append(names, node.Name)
		}
		g.Expect(machinePods(ctx, shoot)).To(ConsistOf(names), "the pods in the seed")
		machines := &machinev1alpha1.MachineList{}
		g.Expect(l.Client.List(ctx, machines, client.InNamespace(shoot.Status.TechnicalID))).To(Succeed())
		g.Expect(machines.Items).To(HaveLen(count))
	}).WithContext(ctx).Should(Succeed())
	return sets.List(sets.New(names...))
}

// machinePods are the names of the pods that are machines of a shoot.
func machinePods(ctx context.Context, shoot *gardencorev1beta1.Shoot) []string {
	GinkgoHelper()
	pods := &corev1.PodList{}
	Expect(l.Client.List(ctx, pods, client.InNamespace(shoot.Status.TechnicalID), client.MatchingLabels(machine.Selector()))).To(Succeed())
	var names []string
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}
