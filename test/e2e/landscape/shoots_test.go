// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package landscape_test

import (
	"testing"

	. "github.com/onsi/gomega"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// healthy is a Shoot without a problem.
func healthy() *gardencorev1beta1.Shoot {
	shoot := &gardencorev1beta1.Shoot{}
	shoot.Generation, shoot.Status.ObservedGeneration = 3, 3
	shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{
		Type: gardencorev1beta1.LastOperationTypeReconcile, State: gardencorev1beta1.LastOperationStateSucceeded, Progress: 100, Description: "all done",
	}
	shoot.Status.Conditions = []gardencorev1beta1.Condition{
		{Type: "APIServerAvailable", Status: gardencorev1beta1.ConditionTrue},
		{Type: "EveryNodeReady", Status: gardencorev1beta1.ConditionTrue},
	}
	return shoot
}

func TestProblem(t *testing.T) {
	for name, test := range map[string]struct {
		edit     func(*gardencorev1beta1.Shoot)
		expected []string
	}{
		"a healthy Shoot has none": {
			edit: func(*gardencorev1beta1.Shoot) {},
		},
		"a Shoot that nobody has looked at yet has no operation": {
			edit:     func(shoot *gardencorev1beta1.Shoot) { shoot.Status.LastOperation = nil },
			expected: []string{"no operation yet"},
		},
		"a change is not seen yet": {
			edit:     func(shoot *gardencorev1beta1.Shoot) { shoot.Generation++ },
			expected: []string{"generation 3 is observed, not 4", "all done"},
		},
		"an operation is asked for": {
			edit: func(shoot *gardencorev1beta1.Shoot) {
				shoot.Annotations = map[string]string{"gardener.cloud/operation": "rotate-credentials-start"}
			},
			expected: []string{"rotate-credentials-start is still asked for"},
		},
		"an operation goes on, with errors": {
			edit: func(shoot *gardencorev1beta1.Shoot) {
				shoot.Status.LastOperation.State = gardencorev1beta1.LastOperationStateError
				shoot.Status.LastOperation.Progress = 42
				shoot.Status.LastErrors = []gardencorev1beta1.LastError{{
					Description: "no room", Codes: []gardencorev1beta1.ErrorCode{gardencorev1beta1.ErrorInfraResourcesDepleted},
				}}
			},
			expected: []string{"Reconcile Error 42 %: all done", "no room", "ERR_INFRA_RESOURCES_DEPLETED"},
		},
		"the source seed is through with a migration, and nobody has restored yet": {
			edit: func(shoot *gardencorev1beta1.Shoot) {
				shoot.Status.LastOperation.Type = gardencorev1beta1.LastOperationTypeMigrate
			},
			expected: []string{"Migrate Succeeded"},
		},
		"conditions are not known yet": {
			edit:     func(shoot *gardencorev1beta1.Shoot) { shoot.Status.Conditions = nil },
			expected: []string{"no conditions"},
		},
		"one condition is not True": {
			edit: func(shoot *gardencorev1beta1.Shoot) {
				shoot.Status.Conditions[1].Status = gardencorev1beta1.ConditionProgressing
				shoot.Status.Conditions[1].Message = "a node is missing"
			},
			expected: []string{"EveryNodeReady is Progressing", "a node is missing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			shoot := healthy()
			test.edit(shoot)
			problem := landscape.Problem(shoot)
			if len(test.expected) == 0 {
				g.Expect(problem).To(BeEmpty())
			}
			for _, expected := range test.expected {
				g.Expect(problem).To(ContainSubstring(expected))
			}
		})
	}
}
