// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

func TestWhatMayBeTheEndOfAWait(t *testing.T) {
	p := awaited()
	for name, test := range map[string]struct {
		before, after client.Object
		want          bool
	}{
		"a machine that is available": {&machinev1alpha1.MachineDeployment{}, &machinev1alpha1.MachineDeployment{Status: machinev1alpha1.MachineDeploymentStatus{AvailableReplicas: 1}}, true},
		"a machine that has failed": {&machinev1alpha1.MachineDeployment{}, &machinev1alpha1.MachineDeployment{Status: machinev1alpha1.MachineDeploymentStatus{
			FailedMachines: []*machinev1alpha1.MachineSummary{{Name: "m"}}}}, true},
		"a generation that is observed": {&machinev1alpha1.MachineDeployment{}, &machinev1alpha1.MachineDeployment{Status: machinev1alpha1.MachineDeploymentStatus{ObservedGeneration: 1}}, true},
		"a condition that changes":      {withCondition(machinev1alpha1.ConditionFalse, 0), withCondition(machinev1alpha1.ConditionTrue, 0), true},
		"a condition that is confirmed": {withCondition(machinev1alpha1.ConditionTrue, 0), withCondition(machinev1alpha1.ConditionTrue, 1), false},
		"an annotation on a deployment": {&machinev1alpha1.MachineDeployment{}, &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}}, false},
		"a set with fewer machines":     {&machinev1alpha1.MachineSet{Status: machinev1alpha1.MachineSetStatus{Replicas: 1}}, &machinev1alpha1.MachineSet{}, true},
		"a set with a finalizer":        {&machinev1alpha1.MachineSet{}, &machinev1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"a"}}}, false},
		"a heartbeat of a machine":      {&machinev1alpha1.Machine{}, &machinev1alpha1.Machine{Status: machinev1alpha1.MachineStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}}}}, false},
		"a machine that has been updated in place": {&machinev1alpha1.Machine{}, &machinev1alpha1.Machine{Status: machinev1alpha1.MachineStatus{
			Conditions: []corev1.NodeCondition{{Type: machinev1alpha1.NodeInPlaceUpdate, Reason: machinev1alpha1.UpdateSuccessful}}}}, true},
		"a machine that cannot be deleted": {&machinev1alpha1.Machine{}, &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}},
			Status: machinev1alpha1.MachineStatus{LastOperation: machinev1alpha1.LastOperation{State: machinev1alpha1.MachineStateFailed, Description: "no"}}}, true},
		"a class that changes": {&machinev1alpha1.MachineClass{}, &machinev1alpha1.MachineClass{Provider: "local"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(p.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after})).To(Equal(test.want))
		})
	}

	t.Run("what is gone or new", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(p.Delete(event.DeleteEvent{Object: &machinev1alpha1.MachineClass{}})).To(BeTrue())
		g.Expect(p.Create(event.CreateEvent{Object: &machinev1alpha1.MachineSet{}})).To(BeTrue())
		g.Expect(p.Create(event.CreateEvent{Object: &machinev1alpha1.Machine{}})).To(BeFalse())
	})
}

func withCondition(status machinev1alpha1.ConditionStatus, minute int) client.Object {
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC))
	return &machinev1alpha1.MachineDeployment{Status: machinev1alpha1.MachineDeploymentStatus{Conditions: []machinev1alpha1.MachineDeploymentCondition{
		{Type: machinev1alpha1.MachineDeploymentAvailable, Status: status, LastUpdateTime: at, LastTransitionTime: at},
	}}}
}
