// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/limitstest"
)

func FuzzHandleDeployment(f *testing.F) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-controller-manager"}}
	deployment.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	seeds := []any{deployment}
	for _, spec := range limitstest.PodSpecs() {
		seeds = append(seeds, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"shoot--project--name","name":"machine-controller-manager"},"spec":{"template":{"spec":`+spec+`}}}`)
	}
	limitstest.Fuzz(f, newWebhook(f).Webhook.Handler, limitstest.About(deployment), seeds...)
}

func FuzzHandleVerticalPodAutoscaler(f *testing.F) {
	vpa := &vpaautoscalingv1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-controller-manager-vpa"}}
	vpa.SetGroupVersionKind(vpaautoscalingv1.SchemeGroupVersion.WithKind("VerticalPodAutoscaler"))
	seeds := []any{vpa}
	for _, quantity := range limitstest.Quantities() {
		seeds = append(seeds, `{"apiVersion":"autoscaling.k8s.io/v1","kind":"VerticalPodAutoscaler","metadata":{"name":"machine-controller-manager-vpa"},`+
			`"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"a","maxAllowed":{"cpu":`+quantity+`}}]}},`+
			`"status":{"recommendation":{"containerRecommendations":[{"containerName":"a","target":{"cpu":`+quantity+`}}]}}}`)
	}
	limitstest.Fuzz(f, newWebhook(f).Webhook.Handler, limitstest.About(vpa), seeds...)
}

func FuzzHandleOperatingSystemConfig(f *testing.F) {
	const kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	osc := func(purpose extensionsv1alpha1.OperatingSystemConfigPurpose, config string) client.Object {
		osc := &extensionsv1alpha1.OperatingSystemConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
		osc.SetGroupVersionKind(extensionsv1alpha1.SchemeGroupVersion.WithKind("OperatingSystemConfig"))
		osc.Spec.Purpose = purpose
		osc.Spec.Files = []extensionsv1alpha1.File{{Path: "/var/lib/kubelet/config/kubelet", Content: extensionsv1alpha1.FileContent{Inline: &extensionsv1alpha1.FileContentInline{Data: config}}}}
		return osc
	}
	reconcile := extensionsv1alpha1.OperatingSystemConfigPurposeReconcile
	files := osc(extensionsv1alpha1.OperatingSystemConfigPurposeProvision, kubelet).(*extensionsv1alpha1.OperatingSystemConfig)
	for range 5000 {
		files.Spec.Files = append(files.Spec.Files, files.Spec.Files[0])
	}
	nested, err := json.Marshal(strings.Repeat("[", 20000))
	NewWithT(f).Expect(err).NotTo(HaveOccurred())
	limitstest.Fuzz(f, newWebhook(f).Webhook.Handler, limitstest.About(files),
		osc(reconcile, kubelet+"failSwapOn: true\n"), files,
		osc(reconcile, kubelet+"a: &a "+strings.Repeat("x", 1<<15)+"\nb: ["+strings.Repeat("*a,", 10000)+"]\n"),
		osc(reconcile, kubelet+"a: "+string(nested)),
		osc(reconcile, kubelet+strings.Repeat("a: {", 10000)))
}
