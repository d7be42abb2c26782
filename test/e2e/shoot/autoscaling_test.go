// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// autoscalingSpecs need the landscape of make up COMPONENTS=autoscaling.
func autoscalingSpecs() {
	It("gives machine-controller-manager and its driver the recommended resources", func(ctx SpecContext) {
		if !landscape.Chosen("autoscaling") {
			Skip("it needs make up COMPONENTS=autoscaling: run it with LABELS=autoscaling")
		}
		const name = "machine-controller-manager"
		shoot := example(exampleMachines)
		Expect(g.Refresh(ctx, shoot)).To(Succeed())
		namespace := shoot.Status.TechnicalID

		vpa := landscape.Named[*vpaautoscalingv1.VerticalPodAutoscaler](namespace, name+"-vpa")
		Eventually(landscape.Get(ctx, l.Client, vpa)).WithTimeout(10*time.Minute).Should(
			HaveField("Status.Recommendation", HaveValue(HaveField("ContainerRecommendations", ConsistOf(
				HaveField("ContainerName", name), HaveField("ContainerName", name+"-local"))))),
			"the recommender knows the containers' use after some minutes")

		selector := client.MatchingLabels{"app": "kubernetes", "role": name}
		Expect(l.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), selector, &client.DeleteAllOfOptions{
			DeleteOptions: client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)},
		})).To(Succeed())
		recommended := map[string]vpaautoscalingv1.RecommendedContainerResources{}
		for _, container := range vpa.Status.Recommendation.ContainerRecommendations {
			recommended[container.ContainerName] = container
		}
		Eventually(func(g Gomega) {
			pods := &corev1.PodList{}
			g.Expect(l.Client.List(ctx, pods, client.InNamespace(namespace), selector)).To(Succeed())
			g.Expect(pods.Items).To(ConsistOf(HaveField("Annotations", HaveKeyWithValue("vpaUpdates",
				And(ContainSubstring("container 0: "), ContainSubstring("container 1: "))))), "the admission controller changed the new pod")
			for _, container := range pods.Items[0].Spec.Containers {
				r, memory := recommended[container.Name], container.Resources.Requests.Memory()
				g.Expect(memory.Value()).To(BeNumerically(">=", r.LowerBound.Memory().Value()), container.Name)
				g.Expect(memory.Value()).To(BeNumerically("<=", r.UpperBound.Memory().Value()), container.Name)
			}
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(20*time.Minute))
}
