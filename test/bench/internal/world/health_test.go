// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

func TestHealthThatTheBenchSetsIsWhatGardenerTakesItFor(t *testing.T) {
	applied := gardencorev1beta1.Condition{Type: resourcesv1alpha1.ResourcesApplied, Status: gardencorev1beta1.ConditionTrue}
	generation := metav1.ObjectMeta{Name: "it", Generation: 2}
	targets := map[string]struct {
		obj   client.Object
		check func(client.Object) error
	}{
		"ManagedResource": {
			&resourcesv1alpha1.ManagedResource{Status: resourcesv1alpha1.ManagedResourceStatus{Conditions: []gardencorev1beta1.Condition{applied}}},
			func(obj client.Object) error {
				return health.CheckManagedResource(obj.(*resourcesv1alpha1.ManagedResource))
			},
		},
		"Deployment": {
			&appsv1.Deployment{ObjectMeta: generation},
			func(obj client.Object) error { return health.CheckDeployment(obj.(*appsv1.Deployment)) },
		},
		"MachineDeployment": {
			&machinev1alpha1.MachineDeployment{ObjectMeta: generation},
			func(obj client.Object) error {
				for _, machine := range obj.(*machinev1alpha1.MachineDeployment).Status.FailedMachines {
					return fmt.Errorf("machine %s failed", machine.Name)
				}
				return nil
			},
		},
	}
	for _, check := range HealthChecks() {
		t.Run(check.Kind+" by "+check.Target, func(t *testing.T) {
			g := NewWithT(t)
			target := targets[check.Target]
			for range 2 {
				check.set(target.obj, false)
				g.Expect(target.check(target.obj)).NotTo(Succeed())
				check.set(target.obj, true)
				g.Expect(target.check(target.obj)).To(Succeed())
			}
		})
	}
}
