// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"crypto/x509"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// migrationSpecs move the control plane of a Shoot to another seed and back again. The landscape has one seed; SECOND_SEED
// names another one, which must be in a cluster of its own, as both give the same name to the namespace of the shoot.
func migrationSpecs() {
	const name = "e2e-moves"
	var (
		shoot       *gardencorev1beta1.Shoot
		destination string
		authority   []*x509.Certificate
	)

	BeforeAll(func(ctx SpecContext) {
		destination = os.Getenv("SECOND_SEED")
		if destination == "" && !chosen("migration") {
			Skip("there is one seed only; SECOND_SEED names another one")
		}
		Expect(destination).NotTo(BeEmpty(), "SECOND_SEED names the seed that the Shoot moves to")
		seed := landscape.Named[*gardencorev1beta1.Seed]("", destination)
		Eventually(seedProblem(ctx, seed)).Should(BeEmpty(), "the second seed is ready")

		shoot = exampleNamed(exampleWorkerless, name)
		shoot.Spec.SeedName = new(seedName)
		DeferCleanup(remove, shoot)
		makeRoom(ctx)
	})

	It("is created", specPatience, func(ctx SpecContext) {
		timed(name, "create", func() {
			create(ctx, shoot)
			g.EventuallyHealthy(ctx, shoot, patience)
		})
		authority = authorities(ctx, shoot)
		writeNote(ctx, shoot)
	})

	for _, back := range []bool{false, true} {
		text := map[bool]string{false: "moves to the other seed", true: "moves back"}[back]
		It(text, specPatience, func(ctx SpecContext) {
			from, to := seedName, destination
			if back {
				from, to = to, from
			}
			left := trace(ctx, shoot)
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

	It("is deleted, and nothing is left", specPatience, func(ctx SpecContext) {
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
