// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

const (
	finalizer = "e2e.provider-local/held"
	noImage   = "registry.local.gardener.cloud:5001/none@sha256:" + "0000000000000000000000000000000000000000000000000000000000000000"
	noChart   = "registry.local.gardener.cloud:5001/charts/none:v1"
)

// explainSpecs break something, of which `landscape explain` has to name the cause.
func explainSpecs() {
	var workerless, machines *gardencorev1beta1.Shoot
	BeforeAll(func(ctx SpecContext) {
		if !landscape.Chosen("explain") {
			Skip("it breaks the landscape: ask for it by LABELS=explain")
		}
		workerless, machines = example(exampleWorkerless), example(exampleMachines)
		for _, shoot := range []*gardencorev1beta1.Shoot{workerless, machines} {
			g.EventuallyHealthy(ctx, shoot, patience)
		}
	})
	// deployment is one in the workerless Shoot's control plane.
	deployment := func(name string) *appsv1.Deployment {
		return landscape.Named[*appsv1.Deployment](workerless.Status.TechnicalID, name)
	}
	// changesPods changes the first container of a Deployment until the spec ends.
	changesPods := func(ctx SpecContext, name string, change func(*corev1.Container)) {
		GinkgoHelper()
		d := deployment(name)
		Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
		spec := d.Spec.DeepCopy()
		set := func(ctx SpecContext, to appsv1.DeploymentSpec) {
			Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			patch := client.MergeFrom(d.DeepCopy())
			d.Spec = to
			Expect(l.Client.Patch(ctx, d, patch)).To(Succeed())
		}
		DeferCleanup(func(ctx SpecContext) { set(ctx, *spec); landscape.EventuallyReady(ctx, l.Client, d) })
		broken := *spec.DeepCopy()
		broken.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		change(&broken.Template.Spec.Containers[0])
		set(ctx, broken)
	}
	const controllerManager = "kube-controller-manager"

	It("names an image that cannot be pulled", specPatience, func(ctx SpecContext) {
		changesPods(ctx, controllerManager, func(c *corev1.Container) { c.Image = noImage })
		expectCause(ctx, workerless, `^Pod shoot--local--local-workerless/kube-controller-manager-\S+ .*(ErrImagePull|ImagePullBackOff)`, "  event   ")
	})

	It("names a container that ends", specPatience, func(ctx SpecContext) {
		changesPods(ctx, controllerManager, func(c *corev1.Container) { c.Args = append(c.Args, "--no-such-flag") })
		expectCause(ctx, workerless, `^Pod shoot--local--local-workerless/kube-controller-manager-\S+ .*has ended \d+ times`, "unknown flag: --no-such-flag")
	})

	It("names a Deployment that is scaled down", specPatience, func(ctx SpecContext) {
		scale(ctx, deployment("kube-apiserver"))
		expectCause(ctx, workerless, `^Deployment shoot--local--local-workerless/kube-apiserver: is scaled to 0`)
	})

	It("names a quota that keeps pods from being created", specPatience, func(ctx SpecContext) {
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: workerless.Status.TechnicalID, Name: "e2e-explain"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
		}
		landscape.Create(ctx, l.Client, quota)
		Eventually(landscape.Get(ctx, l.Client, quota)).Should(HaveField("Status.Hard", Not(BeEmpty())))
		kill(ctx, client.InNamespace(quota.Namespace), client.MatchingLabels{"app": "kubernetes", "role": "controller-manager"})
		expectCause(ctx, workerless, `^Deployment shoot--local--local-workerless/kube-controller-manager.*: cannot create pods: .*exceeded quota: e2e-explain`)
	})

	It("names a node that takes no pods", specPatience, func(ctx SpecContext) {
		nodes := &corev1.NodeList{}
		Expect(l.Client.List(ctx, nodes)).To(Succeed())
		cordon := func(ctx SpecContext, to bool) {
			for i := range nodes.Items {
				Expect(l.Client.Patch(ctx, &nodes.Items[i], client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, to)))).To(Succeed())
			}
		}
		DeferCleanup(cordon, false)
		landscape.EventuallyReady(ctx, l.Client, deployment(controllerManager))
		cordon(ctx, true)
		kill(ctx, client.InNamespace(workerless.Status.TechnicalID), client.MatchingLabels{"app": "kubernetes", "role": "controller-manager"})
		expectCause(ctx, workerless, `^Pod shoot--local--local-workerless/kube-controller-manager-\S+ .*is not scheduled: .*unschedulable`)
	})

	It("names an extension object with an error", specPatience, func(ctx SpecContext) {
		controlPlane := landscape.Named[*extensionsv1alpha1.ControlPlane](machines.Status.TechnicalID, machines.Name)
		change := func(ctx SpecContext, config string) {
			patch := `{"spec":{"providerConfig":` + config + `},"metadata":{"annotations":{"gardener.cloud/operation":"reconcile"}}}`
			Expect(l.Client.Patch(ctx, controlPlane, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		}
		DeferCleanup(func(ctx SpecContext) {
			change(ctx, "null")
			landscape.EventuallySucceeded(ctx, l.Client, controlPlane)
		})
		change(ctx, `{"apiVersion":"v1","kind":"NoSuchKind"}`)
		expectCause(ctx, machines, `^ControlPlane shoot--local--local/local.*spec.providerConfig .* is set`)
	})

	It("names an extension that cannot be installed", specPatience, func(ctx SpecContext) {
		chart := &gardencorev1.ControllerDeployment{
			ObjectMeta: metav1.ObjectMeta{Name: "e2e-explain"},
			Helm:       &gardencorev1.HelmControllerDeployment{OCIRepository: &gardencorev1.OCIRepository{Ref: ptr.To(noChart)}},
		}
		landscape.Create(ctx, g.Client, chart)
		landscape.Create(ctx, g.Client, &gardencorev1beta1.ControllerRegistration{
			ObjectMeta: metav1.ObjectMeta{Name: chart.Name},
			Spec: gardencorev1beta1.ControllerRegistrationSpec{Deployment: &gardencorev1beta1.ControllerRegistrationDeployment{
				Policy:         ptr.To(gardencorev1beta1.ControllerDeploymentPolicyAlways),
				DeploymentRefs: []gardencorev1beta1.DeploymentRef{{Name: chart.Name}},
			}},
		})
		expectCause(ctx, landscape.Named[*gardencorev1beta1.Seed]("", seedName), `^ControllerInstallation e2e-explain-\S+ .*chart pulling process failed`)
	})

	It("names an object that does not go", specPatience, func(ctx SpecContext) {
		held := landscape.Named[*extensionsv1alpha1.DNSRecord](workerless.Status.TechnicalID, workerless.Name+"-external")
		change := func(ctx SpecContext, edit func(client.Object, string) bool) {
			Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(held), held)).To(Succeed())
			edit(held, finalizer)
			metav1.SetMetaDataAnnotation(&held.ObjectMeta, landscape.ConfirmDeletion, "true")
			Expect(l.Client.Update(ctx, held)).To(Succeed())
		}
		DeferCleanup(func(ctx SpecContext) {
			change(ctx, controllerutil.RemoveFinalizer)
			g.Operate(ctx, workerless, v1beta1constants.GardenerOperationReconcile)
			g.EventuallyHealthy(ctx, workerless, patience)
		})
		change(ctx, controllerutil.AddFinalizer)
		Expect(l.Client.Delete(ctx, held)).To(Succeed())
		g.Operate(ctx, workerless, v1beta1constants.GardenerOperationReconcile)
		expectCause(ctx, workerless, `^DNSRecord shoot--local--local-workerless/`+held.Name+`.*is being deleted, and has finalizers .*`+finalizer)
	})

	It("names a kubelet that does not run", specPatience, func(ctx SpecContext) {
		pods, err := landscape.PodsOf(ctx, l.Client, machines.Status.TechnicalID, map[string]string{"app": "machine"})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).NotTo(BeEmpty())
		// gardener-node-agent would start it again.
		DeferCleanup(func(ctx SpecContext) {
			_, err := landscape.Execute(ctx, l.Config, &pods[0], "sh", "-c", "systemctl start kubelet gardener-node-agent")
			Expect(err).NotTo(HaveOccurred())
			g.EventuallyHealthy(ctx, machines, patience)
		})
		_, err = landscape.Execute(ctx, l.Config, &pods[0], "sh", "-c", "systemctl stop gardener-node-agent kubelet")
		Expect(err).NotTo(HaveOccurred())
		expectCause(ctx, machines, `^Node `+pods[0].Name+`.*Ready is Unknown: Kubelet stopped posting node status`)
	})

	It("names gardenlet that is scaled down", specPatience, func(ctx SpecContext) {
		scale(ctx, gardenletDeployment())
		expectCause(ctx, landscape.Named[*gardencorev1beta1.Seed]("", seedName), `^Deployment garden/gardenlet: is scaled to 0`)
	})

	It("names a process that does not run", specPatience, func(ctx SpecContext) {
		if landscape.OnKind() {
			Skip("kind clusters are none of the landscape's processes")
		}
		DeferCleanup(func(ctx SpecContext) {
			out, err := explainCommand(ctx, "start").CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(out))
		})
		Expect(exec.CommandContext(ctx, "pkill", "-f", landscape.State("pki", "status-controller.kubeconfig")).Run()).To(Succeed())
		expectCause(ctx, workerless, `^process status-controller: does not run`)
	})
}

// scale scales a Deployment to nothing until the spec ends.
func scale(ctx SpecContext, deployment *appsv1.Deployment) {
	GinkgoHelper()
	Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
	replicas := *deployment.Spec.Replicas
	set := func(ctx SpecContext, to int32) {
		Expect(l.Client.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, to)))).To(Succeed())
	}
	DeferCleanup(func(ctx SpecContext) { set(ctx, replicas); landscape.EventuallyReady(ctx, l.Client, deployment) })
	set(ctx, 0)
}

func explainCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, landscape.State("..", "bin", "landscape", "landscape"), args...) // #nosec G204 -- the landscape's own program.
}

// expectCause expects that the cause of why a Shoot or Seed is not healthy becomes one like the pattern, and that the rest has a text.
func expectCause(ctx context.Context, target client.Object, pattern string, text ...string) {
	GinkgoHelper()
	name := "shoot/" + target.GetNamespace() + "/" + target.GetName()
	if target.GetNamespace() == "" {
		name = "seed/" + target.GetName()
	}
	var out string
	Eventually(func() string {
		// It fails, as the target is not healthy.
		content, _ := explainCommand(ctx, "explain", "--target", landscape.Target(), name).Output()
		out = string(content)
		for line := range strings.Lines(out) {
			if cause, found := strings.CutPrefix(line, "  cause   "); found {
				return cause
			}
		}
		return out
	}).WithContext(ctx).WithTimeout(patience).Should(MatchRegexp(pattern))
	GinkgoWriter.Println(out)
	for _, part := range text {
		Expect(out).To(ContainSubstring(part))
	}
}
