// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package operation_test holds the end-to-end tests of what an operator does with a Garden: rotate its credentials, and delete it. They
// change the landscape that is up (`make up`) as a whole, so they only run if the label filter names them, and leave it as it was. The
// rotation needs the Shoots of `make up`; the deletion a Garden alone (`make up UNTIL=garden`).
package operation_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/pkg/api/operator/v1alpha1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

const (
	labelRotation = "garden-rotation"
	labelDeletion = "garden-deletion"
	// How long operations may take at most, on two busy cores.
	patience     = 20 * time.Minute
	specPatience = SpecTimeout(90 * time.Minute)
)

func TestOperation(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(3 * time.Minute)
	EnforceDefaultTimeoutsWhenUsingContexts()
	suite, reporter := GinkgoConfiguration()
	suite.Timeout = max(suite.Timeout, 3*time.Hour)
	RunSpecs(t, "Operation of a Garden, end to end", suite, reporter)
}

var l *landscape.Landscape

// begin skips a spec that the filter does not name.
func begin(label string) {
	GinkgoHelper()
	if !strings.Contains(GinkgoLabelFilter(), label) {
		Skip("it changes the whole landscape: name it with LABELS=" + label)
	}
	l = landscape.Connect()
}

var _ = JustAfterEach(landscape.ExplainFailure)

var _ = Describe("The credentials of a Garden", Label(labelRotation), func() {
	It("are rotated, and the Seed, its Shoots and this extension go on with the new ones", specPatience, func(ctx SpecContext) {
		begin(labelRotation)
		garden := theGarden(ctx)
		before := landscape.RenewGarden(ctx)
		expectAllServed(ctx, before)

		By("preparing it")
		operate(ctx, garden, v1beta1constants.OperationRotateCredentialsStart)
		eventuallyHealthy(ctx, garden, gardencorev1beta1.RotationPrepared)
		between := landscape.RenewGarden(ctx)
		expectAllServed(ctx, between)

		By("completing it")
		operate(ctx, garden, v1beta1constants.OperationRotateCredentialsComplete)
		eventuallyHealthy(ctx, garden, gardencorev1beta1.RotationCompleted)
		after := landscape.RenewGarden(ctx)
		Expect(after.Config.CAData).NotTo(Equal(before.Config.CAData))
		Eventually(func() error { return before.Client.List(ctx, &gardencorev1beta1.SeedList{}) }).WithContext(ctx).Should(
			MatchError(ContainSubstring("certificate")), "the old CA is no more")
		expectAllServed(ctx, after)
	})
})

var _ = Describe("A Garden", Label(labelDeletion), func() {
	It("is deleted with all that this extension has for it, and comes up again", specPatience, func(ctx SpecContext) {
		begin(labelDeletion)
		l.RequireGardenOnly(ctx)
		garden := theGarden(ctx)
		Expect(objectsOf(ctx)).NotTo(BeEmpty(), "buckets, entries, records and extensions of class garden")

		Expect(gardenerutils.ConfirmDeletion(ctx, l.Client, garden)).To(Succeed())
		Expect(l.Client.Delete(ctx, garden)).To(Succeed())
		Eventually(landscape.IsGone(ctx, l.Client, garden)).WithContext(ctx).WithTimeout(patience).Should(BeTrue(), "the Garden goes")
		Expect(objectsOf(ctx)).To(BeEmpty())
		extension := landscape.Named[*operatorv1alpha1.Extension]("", "provider-local")
		Eventually(landscape.Get(ctx, l.Client, extension)).WithContext(ctx).Should(HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", operatorv1alpha1.ExtensionInstalled), HaveField("Status", gardencorev1beta1.ConditionFalse), HaveField("Reason", "DeleteSuccessful"),
		))))

		By("removing what Gardener leaves: volumes of etcd, and the keys for what is in them")
		volumes := &corev1.PersistentVolumeClaimList{}
		Expect(l.Client.DeleteAllOf(ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace(landscape.GardenNamespace))).To(Succeed())
		Eventually(func() ([]corev1.PersistentVolumeClaim, error) {
			err := l.Client.List(ctx, volumes, client.InNamespace(landscape.GardenNamespace))
			return volumes.Items, err
		}).WithContext(ctx).Should(BeEmpty())
		for _, role := range []string{"kube-apiserver-etcd-encryption-configuration", "gardener-apiserver-etcd-encryption-configuration"} {
			Expect(l.Client.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(landscape.GardenNamespace), client.MatchingLabels{"role": role})).To(Succeed())
		}
		landscape.Run(ctx, "up", "--until", "garden")
		eventuallyHealthy(ctx, theGarden(ctx), "")
	})
})

func theGarden(ctx context.Context) *operatorv1alpha1.Garden {
	GinkgoHelper()
	list := &operatorv1alpha1.GardenList{}
	Expect(l.Client.List(ctx, list)).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	return &list.Items[0]
}

func operate(ctx context.Context, garden *operatorv1alpha1.Garden, operation string) {
	GinkgoHelper()
	patch := client.MergeFrom(garden.DeepCopy())
	metav1.SetMetaDataAnnotation(&garden.ObjectMeta, v1beta1constants.GardenerOperation, operation)
	Expect(l.Client.Patch(ctx, garden, patch)).To(Succeed())
}

// eventuallyHealthy waits until all conditions are True after the last operation, and the credentials are in a phase, if one is named.
func eventuallyHealthy(ctx context.Context, garden *operatorv1alpha1.Garden, phase gardencorev1beta1.CredentialsRotationPhase) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(garden), garden)).To(Succeed())
		g.Expect(garden.Annotations).NotTo(HaveKey(v1beta1constants.GardenerOperation))
		if phase != "" {
			g.Expect(helper.GetCARotationPhase(garden.Status.Credentials)).To(Equal(phase))
			g.Expect(helper.GetServiceAccountKeyRotationPhase(garden.Status.Credentials)).To(Equal(phase))
			g.Expect(helper.GetWorkloadIdentityKeyRotationPhase(garden.Status.Credentials)).To(Equal(phase))
			g.Expect(helper.GetETCDEncryptionKeyRotationPhase(garden.Status.Credentials)).To(Equal(gardencorev1beta1.RotationCompleted), "it completes itself")
		}
		g.Expect(garden.Status.LastOperation).To(HaveField("State", gardencorev1beta1.LastOperationStateSucceeded))
		g.Expect(landscape.ConditionsProblem(garden.Status.Conditions)).To(BeEmpty())
	}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
}

// expectAllServed expects that the Seed is ready, what gardenlet has installed is healthy, a Shoot can be reconciled, and the admission
// refuses what it has to.
func expectAllServed(ctx context.Context, g *landscape.Garden) {
	GinkgoHelper()
	Eventually(func(gm Gomega) {
		seeds, installations := &gardencorev1beta1.SeedList{}, &gardencorev1beta1.ControllerInstallationList{}
		gm.Expect(g.Client.List(ctx, seeds)).To(Succeed())
		gm.Expect(seeds.Items).NotTo(BeEmpty())
		for _, seed := range seeds.Items {
			gm.Expect(seed.Annotations).NotTo(HaveKey(v1beta1constants.GardenerOperation), "gardenlet has renewed its credentials")
			gm.Expect(landscape.ConditionsProblem(seed.Status.Conditions)).To(BeEmpty(), "Seed %s", seed.Name)
		}
		gm.Expect(g.Client.List(ctx, installations)).To(Succeed())
		for _, installation := range installations.Items {
			for _, condition := range installation.Status.Conditions {
				isWanted := condition.Status == gardencorev1beta1.ConditionTrue
				if condition.Type == gardencorev1beta1.ControllerInstallationProgressing {
					isWanted = condition.Status == gardencorev1beta1.ConditionFalse
				}
				gm.Expect(isWanted).To(BeTrue(), "ControllerInstallation %s: %s is %s: %s", installation.Name, condition.Type, condition.Status, condition.Message)
			}
		}
	}).WithContext(ctx).WithTimeout(patience).Should(Succeed())

	shoot := landscape.Named[*gardencorev1beta1.Shoot]("garden-local", "local-workerless")
	g.Operate(ctx, shoot, v1beta1constants.GardenerOperationReconcile)
	g.EventuallyHealthy(ctx, shoot, patience)

	profile := landscape.Named[*gardencorev1beta1.CloudProfile]("", "local")
	Expect(g.Client.Get(ctx, client.ObjectKeyFromObject(profile), profile)).To(Succeed())
	profile.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"CloudProfileConfig"}`)}
	Eventually(func() error { return g.Client.Update(ctx, profile, client.DryRunAll) }).WithContext(ctx).Should(
		MatchError(ContainSubstring("no container image is known for it")), "the admission answers")
}

// objectsOf are the extension objects of class garden.
func objectsOf(ctx context.Context) []string {
	GinkgoHelper()
	var found []string
	for _, list := range []client.ObjectList{
		&extensionsv1alpha1.BackupBucketList{}, &extensionsv1alpha1.BackupEntryList{}, &extensionsv1alpha1.DNSRecordList{}, &extensionsv1alpha1.ExtensionList{},
	} {
		err := l.Client.List(ctx, list)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue // The kind went with the Garden.
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(meta.EachListItem(list, func(object runtime.Object) error {
			if class := object.(extensionsv1alpha1.Object).GetExtensionSpec().GetExtensionClass(); class != nil && *class == extensionsv1alpha1.ExtensionClassGarden {
				found = append(found, object.(client.Object).GetName())
			}
			return nil
		})).To(Succeed())
	}
	return found
}
