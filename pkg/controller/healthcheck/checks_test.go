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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
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
			got := managedResourceHealth(mr)
			g.Expect(got.status).To(Equal(test.status))
			g.Expect(got.message).To(ContainSubstring(test.message))
			g.Expect(got.codes).To(Equal(test.codes))
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
			g.Expect(deploymentHealth(deployment).status).To(Equal(test.status))
			stripped, err := stripDeployment(deployment)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(deploymentHealth(stripped.(*appsv1.Deployment))).To(Equal(deploymentHealth(deployment)), "the same in the cache")
		})
	}
}

func TestProgressing(t *testing.T) {
	applying := func() *resourcesv1alpha1.ManagedResource {
		mr := newManagedResource(ManagedResourceShootWebhooks, gardencorev1beta1.ConditionUnknown)
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
