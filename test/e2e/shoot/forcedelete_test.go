// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
)

// forceDeleteSpecs delete Shoots without any regard for what is outside of Gardener. That is allowed only if a Shoot is being
// deleted, with an error whose code says that somebody has to do something. gardenlet stands still until both are so; else it
// would be through with the usual deletion before.
func forceDeleteSpecs() {
	DescribeTable("leaves nothing of a shoot", func(ctx SpecContext, file string) {
		makeRoom(ctx)
		shoot := exampleNamed(file, "e2e-force")
		DeferCleanup(remove, shoot)
		timed(shoot.Name, "create "+file, func() {
			create(ctx, shoot)
			g.EventuallyHealthy(ctx, shoot, patience)
		})
		left := trace(ctx, shoot)

		By("asking for it too early")
		Expect(forceDelete(ctx, shoot)).To(MatchError(apierrors.IsInvalid, "refused"), "nobody deletes it")
		DeferCleanup(scaleGardenlet, int32(1))
		scaleGardenlet(ctx, 0)
		g.Delete(ctx, shoot)
		Expect(g.Refresh(ctx, shoot)).To(Succeed())
		Expect(shoot.DeletionTimestamp).NotTo(BeNil())
		Expect(forceDelete(ctx, shoot)).To(MatchError(apierrors.IsInvalid, "refused"), "it has no error")

		By("having an error that allows it")
		patch := client.MergeFrom(shoot.DeepCopy())
		shoot.Status.LastErrors = []gardencorev1beta1.LastError{{
			Description: "the infrastructure is gone", Codes: []gardencorev1beta1.ErrorCode{gardencorev1beta1.ErrorInfraDependencies},
		}}
		Expect(g.Client.Status().Patch(ctx, shoot, patch)).To(Succeed())
		Expect(forceDelete(ctx, shoot)).To(Succeed())

		timed(shoot.Name, "force-delete "+file, func() {
			scaleGardenlet(ctx, 1)
			g.EventuallyDeleted(ctx, shoot, patience)
		})
		left.expectNothingLeft(ctx)
	},
		Entry("without machines", specPatience, exampleWorkerless),
		Entry("with machines", specPatience, exampleMachines),
	)
}

// forceDelete sets the annotation that asks for it.
func forceDelete(ctx context.Context, shoot *gardencorev1beta1.Shoot) error {
	asking := shoot.DeepCopy()
	patch := client.MergeFrom(shoot)
	metav1.SetMetaDataAnnotation(&asking.ObjectMeta, v1beta1constants.AnnotationConfirmationForceDeletion, "true")
	return g.Client.Patch(ctx, asking, patch)
}
