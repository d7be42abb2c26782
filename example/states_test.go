// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package example_test

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	corevalidation "github.com/gardener/gardener/pkg/api/core/validation"
	gardencore "github.com/gardener/gardener/pkg/apis/core"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	apiserverfeatures "github.com/gardener/gardener/pkg/apiserver/features"
)

func TestGardenerTakesTheShootsInEveryState(t *testing.T) {
	apiserverfeatures.RegisterFeatureGates()
	content, err := os.ReadFile("states/shoots.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	list := &corev1.List{}
	NewWithT(t).Expect(yaml.UnmarshalStrict(content, list)).To(Succeed())
	NewWithT(t).Expect(list.Items).To(HaveLen(9), "a Seed and its Shoots")
	seed := &gardencorev1beta1.Seed{}
	NewWithT(t).Expect(yaml.UnmarshalStrict(list.Items[0].Raw, seed)).To(Succeed())

	names, states := map[string]bool{}, map[gardencorev1beta1.LastOperationState]bool{}
	for _, item := range list.Items[1:] {
		shoot := &gardencorev1beta1.Shoot{}
		NewWithT(t).Expect(yaml.UnmarshalStrict(item.Raw, shoot)).To(Succeed())
		t.Run(shoot.Name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(shoot.Spec.SeedName).To(HaveValue(Equal(seed.Name)))
			g.Expect(shoot.Status.TechnicalID).To(Equal("shoot--states--" + shoot.Name))
			g.Expect(names).NotTo(HaveKey(string(shoot.Status.UID)))
			names[string(shoot.Status.UID)], states[shoot.Status.LastOperation.State] = true, true

			converted := &gardencore.Shoot{}
			internal(t, shoot, converted)
			g.Expect(corevalidation.ValidateShoot(converted)).To(BeEmpty())
			before := converted.DeepCopy()
			g.Expect(corevalidation.ValidateShootStatusUpdate(converted.Status, before.Status)).To(BeEmpty())
		})
	}
	NewWithT(t).Expect(states).To(HaveLen(4))
}
