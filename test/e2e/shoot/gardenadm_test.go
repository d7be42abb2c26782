// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// gardenadmSpecs need the landscape of make up COMPONENTS=gardenadm.
func gardenadmSpecs() {
	It("has its control plane and a worker on machines that nobody manages, and is known to the garden", specPatience, func(ctx SpecContext) {
		if !landscape.Chosen("gardenadm") {
			Skip("it needs make up COMPONENTS=gardenadm: run it with LABELS=gardenadm")
		}
		gardenadm := func(ctx SpecContext, command string) {
			GinkgoHelper()
			cmd := exec.CommandContext(ctx, landscape.State("..", "hack", "gardenadm"), command) // #nosec G204 -- a script of this repository.
			cmd.Stdout, cmd.Stderr = GinkgoWriter, GinkgoWriter
			Expect(cmd.Run()).To(Succeed(), "hack/gardenadm %s", command)
		}
		root := landscape.Named[*gardencorev1beta1.Shoot]("garden", "root")
		DeferCleanup(func(ctx SpecContext) {
			gardenadm(ctx, "down")
			landscape.EventuallyGone(ctx, g.Client, root)
			landscape.EventuallyGone(ctx, l.Client, landscape.Named[*corev1.Namespace]("", "self-hosted"))
		}, NodeTimeout(patience))
		gardenadm(ctx, "up")

		config, err := clientcmd.BuildConfigFromFlags("", landscape.State("self-hosted", "kubeconfig"))
		Expect(err).NotTo(HaveOccurred())
		shoot, err := client.New(config, client.Options{Scheme: l.Client.Scheme()})
		Expect(err).NotTo(HaveOccurred())

		By("looking at what the extension did")
		cp := landscape.Named[*extensionsv1alpha1.ControlPlane]("kube-system", "root")
		Eventually(landscape.Get(ctx, shoot, cp)).Should(matchers.HaveSucceeded())
		instance := landscape.Named[*appsv1.Deployment]("extension-provider-local", "gardener-extension-provider-local-seed")
		landscape.EventuallyReady(ctx, shoot, instance)
		Expect(instance.Spec.Template.Spec.HostNetwork).To(BeFalse(), "it moved to the network of pods")
		landscape.EventuallyReady(ctx, shoot, landscape.Named[*appsv1.Deployment]("kube-system", "local-path-provisioner"))
		configs := &corev1.ConfigMapList{}
		Expect(shoot.List(ctx, configs, client.InNamespace("kube-system"), client.MatchingLabels{"app": "kubernetes", "role": "proxy"})).To(Succeed())
		Expect(configs.Items).To(ContainElement(HaveField("Data", HaveKeyWithValue("config.yaml", ContainSubstring("maxPerCore: 0")))))

		By("running a pod on the worker, with a volume")
		claim := &corev1.PersistentVolumeClaim{}
		claim.Namespace, claim.Name = "default", "data"
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		Expect(shoot.Create(ctx, claim)).To(Succeed())
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = "default", "user"
		pod.Spec.Containers = []corev1.Container{{
			Name: "user", Image: "registry.k8s.io/pause:3.10", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
		Expect(shoot.Create(ctx, pod)).To(Succeed())
		Eventually(landscape.Get(ctx, shoot, pod)).Should(HaveField("Status.Phase", corev1.PodRunning), "the volume is made on its Node")
		Expect(pod.Spec.NodeName).To(Equal("machine-1"))

		By("connecting it to the garden")
		gardenadm(ctx, "connect")
		Eventually(landscape.Get(ctx, g.Client, root)).Should(HaveField("Status.Constraints", ContainElement(And(
			HaveField("Type", gardencorev1beta1.ShootMaintenancePreconditionsSatisfied),
			HaveField("Status", gardencorev1beta1.ConditionTrue),
		))), "no webhook is a problem")
		Eventually(func(g2 Gomega) {
			installations := &gardencorev1beta1.ControllerInstallationList{}
			g2.Expect(g.Client.List(ctx, installations)).To(Succeed())
			var names []string
			for _, installation := range installations.Items {
				if ref := installation.Spec.ShootRef; ref != nil && ref.Name == root.Name {
					names = append(names, installation.Spec.RegistrationRef.Name)
					healthy := v1beta1helper.GetCondition(installation.Status.Conditions, gardencorev1beta1.ControllerInstallationHealthy)
					g2.Expect(healthy).To(HaveValue(HaveField("Status", gardencorev1beta1.ConditionTrue)))
				}
			}
			g2.Expect(names).To(ConsistOf("provider-local", "networking-calico"))
		}).Should(Succeed())
	})
}
