// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

func TestManagedResourceHealth(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*resourcesv1alpha1.ManagedResource)
		status  gardencorev1beta1.ConditionStatus
		message string
		codes   []gardencorev1beta1.ErrorCode
	}{
		{"is healthy if applied and healthy", func(*resourcesv1alpha1.ManagedResource) {}, "True", "All health checks successful", nil},
		{"is progressing if a new generation has not been seen", func(mr *resourcesv1alpha1.ManagedResource) { mr.Generation = 2 }, "Progressing", "outdated (1/2)", nil},
		{"is progressing if it is new", func(mr *resourcesv1alpha1.ManagedResource) { mr.Status.Conditions = nil }, "Progressing", "has not been reported yet", nil},
		{"is progressing if it is being applied", func(mr *resourcesv1alpha1.ManagedResource) { mr.Status.Conditions[0].Status = "Progressing" }, "Progressing", "ResourcesApplied", nil},
		{"is progressing if its health has to be checked anew", func(mr *resourcesv1alpha1.ManagedResource) { mr.Status.Conditions[1].Status = "Unknown" }, "Progressing", "ResourcesHealthy", nil},
		{"is unhealthy if what it holds is", func(mr *resourcesv1alpha1.ManagedResource) { mr.Status.Conditions[1].Status = "False" }, "False", "so it is", nil},
		{"is unhealthy if it cannot be applied, though its health is unknown", func(mr *resourcesv1alpha1.ManagedResource) {
			mr.Status.Conditions[0].Status, mr.Status.Conditions[1].Status = "False", "Unknown"
		}, "False", "ResourcesApplied", nil},
		{"is a configuration problem if the API server refuses an object", func(mr *resourcesv1alpha1.ManagedResource) {
			mr.Status.Conditions[0].Status = "False"
			mr.Status.Conditions[0].Message = `error during apply of object "v1/Service/a/b": Service "b" is invalid: spec`
		}, "False", "is invalid", []gardencorev1beta1.ErrorCode{gardencorev1beta1.ErrorConfigurationProblem}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			mr := newManagedResource("name", gardencorev1beta1.ConditionTrue)
			test.change(mr)
			got := objectHealth(mr)
			g.Expect(got.Status).To(Equal(test.status))
			g.Expect(got.Detail).To(ContainSubstring(test.message))
			g.Expect(got.Codes).To(Equal(test.codes))
		})
	}
}

func TestDeploymentHealth(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*appsv1.Deployment)
		status gardencorev1beta1.ConditionStatus
	}{
		{"is healthy if available", func(*appsv1.Deployment) {}, "True"},
		{"is progressing if a new generation has not been seen", func(d *appsv1.Deployment) { d.Generation = 1 }, "Progressing"},
		{"is unhealthy if not available", func(d *appsv1.Deployment) { d.Status.Conditions[1].Status = corev1.ConditionFalse }, "False"},
		{"is progressing if not available since it is rolled out", func(d *appsv1.Deployment) {
			d.Status.Conditions[0].Reason, d.Status.Conditions[1].Status = "ReplicaSetUpdated", corev1.ConditionFalse
		}, "Progressing"},
		{"is unhealthy if the rollout takes too long", func(d *appsv1.Deployment) {
			d.Status.Conditions[0].Reason, d.Status.Conditions[0].Status = "ProgressDeadlineExceeded", corev1.ConditionFalse
		}, "False"},
		{"is unhealthy if nothing is known of it", func(d *appsv1.Deployment) { d.Status.Conditions = nil }, "False"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			deployment := newDeployment(corev1.ConditionTrue)
			test.change(deployment)
			g.Expect(objectHealth(deployment).Status).To(Equal(test.status))
			stripped, err := strip(deployment.DeepCopy())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(objectHealth(stripped.(*appsv1.Deployment))).To(Equal(objectHealth(deployment)), "the same in the cache")
		})
	}
}

func TestProgressing(t *testing.T) {
	applying := func() *resourcesv1alpha1.ManagedResource {
		mr := newManagedResource("extension-controlplane-shoot-webhooks", gardencorev1beta1.ConditionUnknown)
		mr.Status.ObservedGeneration = 0
		return mr
	}
	old := func(status gardencorev1beta1.ConditionStatus, age time.Duration) *extensionsv1alpha1.ControlPlane {
		cp := newControlPlane()
		at := metav1.NewTime(start.Add(-age))
		cp.Status.Conditions = []gardencorev1beta1.Condition{{Type: systemComponents, Status: status, LastTransitionTime: at, LastUpdateTime: at}}
		return cp
	}

	for _, test := range []struct {
		name   string
		before *extensionsv1alpha1.ControlPlane
		status gardencorev1beta1.ConditionStatus
		again  time.Duration
	}{
		{"is reported of what is new", newControlPlane(), "Progressing", syncPeriod},
		{"is reported of what was healthy", old("True", time.Hour), "Progressing", syncPeriod},
		{"is reported of what was unknown", old("Unknown", time.Hour), "Progressing", syncPeriod},
		{"lasts, and is looked at again when the threshold is reached", old("Progressing", 4*time.Minute), "Progressing", time.Minute + time.Second},
		{"ends at the threshold", old("Progressing", 5*time.Minute), "False", syncPeriod},
		{"is not reported of what was unhealthy", old("False", time.Second), "False", syncPeriod},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, test.before, newCluster(false), applying())
			f.Expect(f.reconcile("controlplane")).To(Equal(reconcile.Result{RequeueAfter: test.again}))
			f.Expect(f.condition(&extensionsv1alpha1.ControlPlane{}, systemComponents).Status).To(Equal(test.status))
		})
	}
}

func TestNodes(t *testing.T) {
	const running, pending, unknown = machinev1alpha1.MachineRunning, machinev1alpha1.MachinePending, machinev1alpha1.MachineUnknown
	silent := newMachineOf("silent", running, corev1.ConditionTrue)
	silent.Status.Conditions[0].Type = corev1.NodeDiskPressure
	leaving := newMachineOf("leaving", running, corev1.ConditionFalse)
	leaving.DeletionTimestamp, leaving.Finalizers = new(metav1.NewTime(start)), []string{"machine.sapcloud.io/machine-controller"}
	ready := newMachineOf("node", running, corev1.ConditionTrue)
	broken := newMachineDeployment(1)
	broken.Status.FailedMachines = []*machinev1alpha1.MachineSummary{{Name: "machine-1", LastOperation: machinev1alpha1.LastOperation{Description: "no room"}}}
	unavailable := newMachineDeployment(1)
	unavailable.Status.Conditions[0] = machinev1alpha1.MachineDeploymentCondition{
		Type: machinev1alpha1.MachineDeploymentAvailable, Status: machinev1alpha1.ConditionFalse, Reason: "Because", Message: "too few"}

	for _, test := range []struct {
		name    string
		seed    []client.Object
		status  gardencorev1beta1.ConditionStatus
		message string
	}{
		{"are ready", []client.Object{newMachineDeployment(1), ready}, "True", "All health checks successful"},
		{"are ready if none are wanted", nil, "True", "All health checks successful"},
		{"are ready though critical pods of one are not", []client.Object{newMachineDeployment(1), newMachineOf("b", pending, "True")}, "True", "All health checks successful"},
		{"are not ready", []client.Object{newMachineDeployment(1), newMachineOf("b", running, "False")}, "False", "not ready: Node b"},
		{"are not ready if the kubelet is silent", []client.Object{newMachineDeployment(1), newMachineOf("b", unknown, "Unknown")}, "False", "not ready: Node b"},
		{"are not ready if they have no condition", []client.Object{newMachineDeployment(1), silent}, "False", "not ready: Node silent"},
		{"are not ready if one has gone, whose conditions its Machine keeps", []client.Object{newMachineDeployment(1), newMachineOf("b", unknown, "True")}, "False", "not ready: Node b"},
		{"are named, but not all of them", append(unreadyMachines(7), newMachineDeployment(7)), "False", "not ready: Node node-0, node-1, node-2, node-3, node-4, and 2 more"},
		{"are starting", []client.Object{newMachineDeployment(2), ready, newMachineOf("young", pending, "False")}, "Progressing", "starting: Node young"},
		{"are coming", []client.Object{newMachineDeployment(3), ready, newMachineOf("b", pending, "")}, "Progressing", "1 of 3 Nodes have registered"},
		{"are too many for now", []client.Object{newMachineDeployment(1), ready, newMachineOf("b", running, "True")}, "Progressing", "2 Nodes are registered, 1 are wanted"},
		{"are too many in a rolling update, though one is starting", []client.Object{newMachineDeployment(1), ready, newMachineOf("b", pending, "False")}, "Progressing", "2 Nodes are registered, 1 are wanted"},
		{"are ready though one leaves", []client.Object{newMachineDeployment(1), ready, leaving}, "True", "All health checks successful"},
		{"cannot come as a machine has failed", []client.Object{broken, ready}, "False", "machine machine-1 failed: no room"},
		{"are ready but their MachineDeployment isn't", []client.Object{unavailable, ready}, "Progressing", "MachineDeployment pool is unhealthy: too few (Because)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, append(test.seed, newWorker(), newCluster(false))...)
			f.reconcile("worker")
			got := f.condition(&extensionsv1alpha1.Worker{}, everyNode)
			f.Expect(got.Status).To(Equal(test.status))
			f.Expect(got.Message).To(Equal(test.message))
		})
	}

	t.Run("that don't come in time are an error", func(t *testing.T) {
		f := newFixture(t, newWorker(), newCluster(false), newMachineDeployment(1), newMachineOf("b", pending, ""))
		f.Expect(f.reconcile("worker").RequeueAfter).To(Equal(syncPeriod))
		f.clock.Step(syncPeriod)
		f.reconcile("worker")
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, everyNode)).To(And(
			HaveField("Status", gardencorev1beta1.ConditionFalse), HaveField("Message", "0 of 1 Nodes have registered")))
	})

	t.Run("that don't go have longer", func(t *testing.T) {
		f := newFixture(t, append(healthyWorker(), newMachine("other", "other"))...)
		f.reconcile("worker")
		f.clock.Step(14 * time.Minute)
		f.Expect(f.reconcile("worker").RequeueAfter).To(Equal(time.Minute + time.Second))
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, everyNode).Status).To(Equal(gardencorev1beta1.ConditionProgressing))
		f.clock.Step(time.Minute)
		f.reconcile("worker")
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, everyNode).Status).To(Equal(gardencorev1beta1.ConditionFalse))
	})
}

func TestTheSameFailedMachineIsNamedWhateverTheOrder(t *testing.T) {
	g := NewWithT(t)
	failed := func(name string) machinev1alpha1.MachineDeployment {
		d := machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
		d.Status.FailedMachines = []*machinev1alpha1.MachineSummary{{Name: "machine-of-" + name}}
		return d
	}
	g.Expect(failedMachine(failed("b"), failed("a"))).To(HavePrefix("machine machine-of-a failed"))
}
