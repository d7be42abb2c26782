// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"crypto/x509"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

// migrationSpecs move the control plane of a Shoot to another seed and back again. That seed must be in a cluster of its own,
// as both give the same name to the namespace of the shoot, and have the same backups.
func migrationSpecs(destination string) {
	const name = "e2e-moves"
	var (
		shoot     *gardencorev1beta1.Shoot
		authority []*x509.Certificate
	)

	BeforeAll(func() {
		shoot = exampleNamed(exampleWorkerless, name)
		shoot.Spec.SeedName = new(seedName)
		DeferCleanup(remove, shoot)
	})

	It("lets a Shoot be created in the other seed that is to move", specPatience, func(ctx SpecContext) {
		timed(name, "create", func() {
			create(ctx, shoot)
			g.EventuallyHealthy(ctx, shoot, patience)
		})
		authority = authorities(ctx, shoot)
		writeNote(ctx, shoot)
	})

	for _, back := range []bool{false, true} {
		text := map[bool]string{false: "has that Shoot move there", true: "has it move back"}[back]
		It(text, specPatience, func(ctx SpecContext) {
			from, to := seedName, destination
			if back {
				from, to = to, from
			}
			var left traces
			if from == seedName {
				left = trace(ctx, shoot)
			}
			timed(name, text, func() {
				bind(ctx, shoot, to)
				g.EventuallyHealthy(ctx, shoot, patience)
			})
			Expect(shoot.Status.SeedName).To(HaveValue(Equal(to)))
			Expect(authorities(ctx, shoot)).To(Equal(authority), "its clients need not know")
			expectNote(ctx, shoot)
			if from == seedName {
				Eventually(func() ([]string, error) { return left.inSeed(ctx) }).WithContext(ctx).Should(BeEmpty(), "the seed forgets it")
			}
		})
	}

	It("has nothing left of that Shoot once it is deleted", specPatience, func(ctx SpecContext) {
		left := trace(ctx, shoot)
		timed(name, "delete", func() { remove(ctx, shoot) })
		left.expectNothingLeft(ctx)
	})
}

// bind asks for another seed, which only the sub-resource allows.
func bind(ctx context.Context, shoot *gardencorev1beta1.Shoot, seed string) {
	GinkgoHelper()
	Expect(g.Refresh(ctx, shoot)).To(Succeed())
	patch := client.MergeFrom(shoot.DeepCopy())
	shoot.Spec.SeedName = new(seed)
	Expect(g.Client.SubResource("binding").Patch(ctx, shoot, patch)).To(Succeed())
}
