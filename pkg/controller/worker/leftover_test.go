// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

func TestTheSecretOfAClassThatNeverCameToBeIsDeleted(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	c.fail = func(verb string, obj client.Object) error {
		if _, isClass := obj.(*machinev1alpha1.MachineClass); isClass && verb == "create" {
			return errors.New("connection refused")
		}
		return nil
	}
	c.change(func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[1].MachineType = "small" })
	c.ask("reconcile")
	_, err := c.reconcile()
	g.Expect(err).To(HaveOccurred())
	g.Expect(c.classSecrets()).To(HaveLen(4))

	c.fail = nil
	c.change(func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[1].MachineType = "large" })
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	g.Expect(c.classSecrets()).To(HaveLen(3), "the user data is in them")
}

func TestSecretsAreDeletedIfThatFailedAfterTheirClassesWereGone(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	failed := false
	c.fail = func(verb string, obj client.Object) error {
		if _, isSecret := obj.(*metav1.PartialObjectMetadata); isSecret && verb == "delete" && !failed {
			failed = true
			return errors.New("connection refused")
		}
		return nil
	}
	c.change(func(w *extensionsv1alpha1.Worker) { w.Spec.Pools = w.Spec.Pools[:1] })
	c.ask("reconcile")
	_, err := c.reconcile()
	g.Expect(err).To(HaveOccurred())
	c.mustReconcile()
	c.mustReconcile()
	g.Expect(failed).To(BeTrue())
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	g.Expect(c.classSecrets()).To(HaveLen(2))
}

func TestMachinesThatAreUpdatedInPlaceCannotMoveToAnotherCluster(t *testing.T) {
	g := NewWithT(t)
	w := newWorker()
	w.Spec.Pools[1].UpdateStrategy = new(gardencorev1beta1.AutoInPlaceUpdate)
	c := newSeed(t, w).succeed()
	before := c.classes()
	c.change(func(w *extensionsv1alpha1.Worker) {
		w.Spec.Pools[1].MachineImage.Version = "2.0.0"
		w.Spec.InfrastructureProviderStatus = &runtime.RawExtension{Raw: []byte(`{"machineNamespace":"infra-shoot--local--foo"}`)}
	})
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.outcome()).To(And(HavePrefix("Error: "), HaveSuffix("[ERR_CONFIGURATION_PROBLEM]")))
	g.Expect(c.worker().Status.LastError.Description).To(ContainSubstring("worker pool b: its machines are updated in place and cannot move"))
	g.Expect(c.classes()).To(Equal(before), "the machines are found by these")

	c.change(func(w *extensionsv1alpha1.Worker) { w.Spec.Pools = w.Spec.Pools[:1] })
	c.ask("reconcile")
	c.mustReconcile()
	c.finish()
	c.mustReconcile()
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
}
