// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package seed_test

import (
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/original/components/kubelet"
	oscutils "github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/utils"
	kubeproxy "github.com/gardener/gardener/pkg/component/kubernetes/proxy"
)

var _ = Describe("The webhooks", Ordered, func() {
	capacity := func(cpu, memory string) OmegaMatcher {
		return HaveField("Status.Capacity", And(
			HaveKeyWithValue(corev1.ResourceCPU, HaveField("String()", cpu)), HaveKeyWithValue(corev1.ResourceMemory, HaveField("String()", memory))))
	}

	ready := func() {
		GinkgoHelper()
		url := fmt.Sprintf("http://127.0.0.1:%d/readyz", instance.config.Server.HealthProbes.Port)
		Eventually(func() (*http.Response, error) { return http.Get(url) }).Should(HaveHTTPStatus(http.StatusOK))
	}

	It("serve, as readiness tells", ready)

	It("give a Node of the seed what is configured, also one from before they served", func(ctx SpecContext) {
		Eventually(get(ctx, seed, named[*corev1.Node]("", oldNode))).Should(capacity("100", "100Gi"))
		node := create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "young"}})
		Expect(get(ctx, seed, node)()).To(capacity("100", "100Gi"))
	})

	It("are where shoots can't have them called: at a path that they are not told", func(ctx SpecContext) {
		namespace := named[*corev1.Namespace]("", instanceNamespace)
		Expect(seed.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
		registered := named[*admissionregistrationv1.MutatingWebhookConfiguration]("", "gardener-extension-provider-local-seed")
		Expect(seed.Get(ctx, client.ObjectKeyFromObject(registered), registered)).To(Succeed())
		Expect(registered.Webhooks).NotTo(BeEmpty())
		for _, webhook := range registered.Webhooks {
			Expect(*webhook.ClientConfig.URL).To(ContainSubstring("/"+string(namespace.UID)+"/"), webhook.Name)
		}
	})

	It("never keep the seed from starting: those that fail closed see nothing in the namespaces kube-system and garden", func(ctx SpecContext) {
		registered := named[*admissionregistrationv1.MutatingWebhookConfiguration]("", "gardener-extension-provider-local-seed")
		Expect(seed.Get(ctx, client.ObjectKeyFromObject(registered), registered)).To(Succeed())
		var closed int
		for _, webhook := range registered.Webhooks {
			if *webhook.FailurePolicy != admissionregistrationv1.Fail {
				continue
			}
			closed++
			selector, err := metav1.LabelSelectorAsSelector(webhook.NamespaceSelector)
			Expect(err).NotTo(HaveOccurred())
			for _, namespace := range []string{metav1.NamespaceSystem, "garden"} {
				Expect(selector.Matches(labels.Set{corev1.LabelMetadataName: namespace})).To(BeFalse(), "%s sees namespace %s", webhook.Name, namespace)
			}
			for _, rule := range webhook.Rules {
				for _, resource := range rule.Resources {
					kind, err := seed.RESTMapper().KindFor(schema.GroupVersionResource{Group: rule.APIGroups[0], Version: rule.APIVersions[0], Resource: resource})
					Expect(err).NotTo(HaveOccurred())
					mapping, err := seed.RESTMapper().RESTMapping(kind.GroupKind())
					Expect(err).NotTo(HaveOccurred())
					Expect(mapping.Scope.Name()).To(Equal(meta.RESTScopeNameNamespace), "a selector of namespaces does not keep %s from %s", webhook.Name, resource)
				}
			}
		}
		Expect(closed).To(BeNumerically(">=", 1))
	})

	It("make the kubelets of machines start on this machine, and their containerd ask the mirrors", func(ctx SpecContext) {
		codec := kubelet.NewConfigCodec(oscutils.NewFileContentInlineCodec())
		content, err := codec.Encode(&kubeletconfigv1beta1.KubeletConfiguration{FailSwapOn: new(true)}, "")
		Expect(err).NotTo(HaveOccurred())
		osc := create(ctx, &extensionsv1alpha1.OperatingSystemConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: shootNamespace, Name: "pool", Labels: map[string]string{
				"provider.extensions.gardener.cloud/mutated-by-controlplane-webhook": "true",
			}},
			Spec: extensionsv1alpha1.OperatingSystemConfigSpec{
				DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
				Purpose:     extensionsv1alpha1.OperatingSystemConfigPurposeReconcile,
				CRIConfig:   &extensionsv1alpha1.CRIConfig{Name: extensionsv1alpha1.CRINameContainerD, Containerd: &extensionsv1alpha1.ContainerdConfig{SandboxImage: "pause"}},
				Files: []extensionsv1alpha1.File{{
					Path: "/var/lib/kubelet/config/kubelet", Content: extensionsv1alpha1.FileContent{Inline: content},
				}},
			},
		})
		Expect(seed.Get(ctx, client.ObjectKeyFromObject(osc), osc)).To(Succeed())
		config, err := codec.Decode(osc.Spec.Files[0].Content.Inline)
		Expect(err).NotTo(HaveOccurred())
		Expect(*config.FailSwapOn).To(BeFalse())
		Expect(osc.Spec.CRIConfig.Containerd.Registries).To(ContainElement(HaveField("Upstream", "registry.k8s.io")))
	})

	Describe("in a shoot", Ordered, func() {
		BeforeAll(func(ctx SpecContext) {
			controlPlane := newControlPlane(shootNamespace)
			Expect(seed.Create(ctx, controlPlane)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { remove(ctx, controlPlane) })
			eventuallySucceeded(ctx, controlPlane)
		})

		It("give a Node what its machine type has", func(ctx SpecContext) {
			for name, labels := range map[string]map[string]string{"of-a-pool": {"worker.gardener.cloud/pool": "small"}, "of-no-pool": nil} {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
				Expect(shoot.Create(ctx, node)).To(Succeed())
				DeferCleanup(func(ctx SpecContext) { Expect(shoot.Delete(ctx, node)).To(Succeed()) })
			}
			Expect(get(ctx, shoot, named[*corev1.Node]("", "of-a-pool"))()).To(capacity("2", "4Gi"))
			Expect(get(ctx, shoot, named[*corev1.Node]("", "of-no-pool"))()).To(capacity("100", "100Gi"))
		})

		It("keep kube-proxy off the host's limit of connections", func(ctx SpecContext) {
			configMap := newKubeProxyConfig()
			Expect(shoot.Create(ctx, configMap)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(shoot.Delete(ctx, configMap)).To(Succeed()) })
			Expect(configMap.Data["config.yaml"]).To(ContainSubstring("maxPerCore: 0"))
		})
	})

	It("are in the cluster itself if that is a Shoot that hosts itself", func(ctx SpecContext) {
		restart := func(selfHosted bool) {
			GinkgoHelper()
			instance.Stop()
			instance.config.SelfHostedShootCluster = selfHosted
			instance.start()
			ready()
		}
		DeferCleanup(func() { restart(false) })
		restart(true)
		Eventually(func(g Gomega) {
			configMap := newKubeProxyConfig()
			g.Expect(seed.Create(ctx, configMap, client.DryRunAll)).To(Succeed())
			g.Expect(configMap.Data["config.yaml"]).To(ContainSubstring("maxPerCore: 0"))
		}).Should(Succeed(), "the new registration is in force")
		create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "self-hosted", Labels: map[string]string{"worker.gardener.cloud/pool": "small"}}})
		Expect(get(ctx, seed, named[*corev1.Node]("", "self-hosted"))()).To(capacity("100", "100Gi"), "what is configured")
	})

	It("block nothing in the seed but the shoots' own while the instance is down", func(ctx SpecContext) {
		instance.Stop()
		DeferCleanup(func() { instance.start() })
		create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "during-the-outage"}})
		create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: "machine-controller-manager"}})
		create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: "any"},
			Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "any", Image: "any"}}},
		})
	})
})

// newKubeProxyConfig is a configuration of kube-proxy as gardenlet deploys it.
func newKubeProxyConfig() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-proxy-config-12345678", Labels: kubeproxy.GetLabels()},
		Data:       map[string]string{"config.yaml": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nconntrack:\n  maxPerCore: 524288\n"},
		Immutable:  new(true),
	}
}
