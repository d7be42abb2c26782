// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// gardenletLabels are those of gardenlet's pods (Gardener's chart gardenlet).
var gardenletLabels = client.MatchingLabels{"app": "gardener", "role": "gardenlet"}

// gardenletDeployment is gardenlet in the seed.
func gardenletDeployment() *appsv1.Deployment {
	return landscape.Named[*appsv1.Deployment](gardenNamespace, "gardenlet")
}

// disturb kills the extension and then gardenlet while the operation on a Shoot goes on that was just asked for.
func disturb(ctx context.Context, shoot *gardencorev1beta1.Shoot) {
	GinkgoHelper()
	namespace, err := extensionNamespace(ctx, seedName)
	Expect(err).NotTo(HaveOccurred())
	first := whileProcessing(ctx, shoot, 0, func() {
		kill(ctx, client.InNamespace(namespace))
	})
	whileProcessing(ctx, shoot, first+1, func() {
		kill(ctx, client.InNamespace(gardenNamespace), gardenletLabels)
	})
}

// whileProcessing does something as soon as the newest generation is worked on and the progress is as much as said, or in
// the same state for some seconds. It returns the progress at which it did.
func whileProcessing(ctx context.Context, shoot *gardencorev1beta1.Shoot, progress int32, do func()) int32 {
	GinkgoHelper()
	const still = 5 * time.Second
	begin := time.Now()
	var reached int32
	Eventually(func() (string, error) {
		err := g.Refresh(ctx, shoot)
		if apierrors.IsNotFound(err) {
			return "", StopTrying("the Shoot is gone before anything could be done to it")
		}
		if err != nil {
			return "", err
		}
		operation := shoot.Status.LastOperation
		if operation == nil || shoot.Generation != shoot.Status.ObservedGeneration {
			return landscape.Problem(shoot), nil
		}
		if operation.State == gardencorev1beta1.LastOperationStateSucceeded {
			return "", StopTrying("the operation is through before anything could be done to it")
		}
		if operation.State != gardencorev1beta1.LastOperationStateProcessing || operation.Progress < progress && time.Since(begin) < still {
			return landscape.Progress(shoot), nil
		}
		reached = operation.Progress
		do()
		return "", nil
	}).WithContext(ctx).WithPolling(100*time.Millisecond).Should(BeEmpty(), "Shoot %s is worked on", shoot.Name)
	GinkgoWriter.Printf("killed at %s\n", landscape.Progress(shoot))
	return reached
}

// kill deletes pods at once, without the time to end. There must be some.
func kill(ctx context.Context, which ...client.ListOption) {
	GinkgoHelper()
	pods := &corev1.PodList{}
	Expect(l.Client.List(ctx, pods, which...)).To(Succeed())
	Expect(pods.Items).NotTo(BeEmpty())
	for _, pod := range pods.Items {
		By(fmt.Sprintf("killing %s/%s", pod.Namespace, pod.Name))
		Expect(client.IgnoreNotFound(l.Client.Delete(ctx, &pod, client.GracePeriodSeconds(0)))).To(Succeed())
	}
}

// extensionNamespace is the namespace in a seed that has the extension, as its ControllerInstallation says.
func extensionNamespace(ctx context.Context, seed string) (string, error) {
	installations := &gardencorev1beta1.ControllerInstallationList{}
	if err := g.Client.List(ctx, installations); err != nil {
		return "", err
	}
	for _, installation := range installations.Items {
		if installation.Spec.RegistrationRef.Name == registration && installation.Spec.SeedRef != nil && installation.Spec.SeedRef.Name == seed {
			return "extension-" + installation.Name, nil
		}
	}
	return "", fmt.Errorf("there is no ControllerInstallation of %s for seed %s", registration, seed)
}

// scaleGardenlet has gardenlet run or not. Nobody but gardenlet itself minds its Deployment.
func scaleGardenlet(ctx context.Context, replicas int32) {
	GinkgoHelper()
	deployment := gardenletDeployment()
	Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
	patch := client.MergeFrom(deployment.DeepCopy())
	deployment.Spec.Replicas = new(replicas)
	Expect(l.Client.Patch(ctx, deployment, patch)).To(Succeed())
	if replicas > 0 {
		landscape.EventuallyReady(ctx, l.Client, deployment)
		return
	}
	Eventually(func() ([]corev1.Pod, error) {
		return landscape.PodsOf(ctx, l.Client, gardenNamespace, gardenletLabels)
	}).WithContext(ctx).Should(BeEmpty(), "gardenlet stops")
}
