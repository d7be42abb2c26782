// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestReplicasAndGateways(t *testing.T) {
	c := admitting(t, "replicas.yaml", "gateway.yaml")
	labels := map[string]string{"app": "istio-ingressgateway"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "a", Image: "a"}}, AutomountServiceAccountToken: new(bool),
	}}
	const (
		zones     = "high-availability-config.resources.gardener.cloud/zones"
		tolerance = "high-availability-config.resources.gardener.cloud/failure-tolerance-type"
	)
	for name, test := range map[string]struct {
		annotations      map[string]string
		replicas, wanted int32
	}{
		"other":         {nil, 2, 1},
		"nobody":        {nil, 0, 0},
		"zones":         {map[string]string{zones: "0,1,2"}, 3, 1},
		"node":          {map[string]string{zones: "0", tolerance: "node"}, 3, 3},
		"two":           {map[string]string{zones: "0", tolerance: "node"}, 2, 2},
		"zone":          {map[string]string{zones: "0,1,2", tolerance: "zone"}, 4, 3},
		"istio-ingress": {map[string]string{zones: "0,1"}, 4, 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: test.annotations}})).To(Succeed())
			deployment := &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "a"},
				Spec:       appsv1.DeploymentSpec{Replicas: &test.replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
			}
			g.Eventually(func(g Gomega) {
				admitted := deployment.DeepCopy()
				g.Expect(c.Create(t.Context(), admitted, client.DryRunAll)).To(Succeed())
				g.Expect(*admitted.Spec.Replicas).To(Equal(test.wanted))
				if test.replicas == 0 {
					return // An autoscaler has at least one.
				}
				scaler := &autoscalingv2.HorizontalPodAutoscaler{
					ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "a"},
					Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
						MinReplicas: &test.replicas, MaxReplicas: 9, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "a"},
					},
				}
				g.Expect(c.Create(t.Context(), scaler, client.DryRunAll)).To(Succeed())
				g.Expect(*scaler.Spec.MinReplicas).To(Equal(test.wanted))
			}).WithTimeout(10*time.Second).Should(Succeed(), "policies are in force a moment after they are there")
		})
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "a", Labels: labels}, Spec: template.Spec}
	NewWithT(t).Eventually(func(g Gomega) {
		admitted := pod.DeepCopy()
		g.Expect(c.Create(t.Context(), admitted, client.DryRunAll)).To(Succeed())
		g.Expect(admitted.Labels).To(Equal(map[string]string{"app": "istio-ingressgateway", "networking.gardener.cloud/to-runtime-apiserver": "allowed"}))
	}).WithTimeout(10*time.Second).Should(Succeed(), "a gateway may ask the API server")
}

func TestPodsUseSomeProcessors(t *testing.T) {
	g := NewWithT(t)
	c := admitting(t, "processors.yaml")
	some, chosen, other := corev1.EnvVar{Name: "GOMAXPROCS", Value: "2"}, corev1.EnvVar{Name: "GOMAXPROCS", Value: "8"}, corev1.EnvVar{Name: "OTHER", Value: "x"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "a"}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: new(bool),
		Containers: []corev1.Container{
			{Name: "none", Image: "a"}, {Name: "others", Image: "a", Env: []corev1.EnvVar{other}}, {Name: "chosen", Image: "a", Env: []corev1.EnvVar{chosen, other}},
		},
	}}
	g.Eventually(func(g Gomega) {
		admitted := pod.DeepCopy()
		g.Expect(c.Create(t.Context(), admitted, client.DryRunAll)).To(Succeed())
		g.Expect(admitted.Spec.Containers).To(HaveExactElements(
			HaveField("Env", HaveExactElements(some)), HaveField("Env", HaveExactElements(other, some)), HaveField("Env", HaveExactElements(chosen, other)),
		))
	}).WithTimeout(10*time.Second).Should(Succeed(), "policies are in force a moment after they are there")
}

func TestSyncPeriods(t *testing.T) {
	c := admitting(t, "times.yaml")
	// These parts of a configuration are as Gardener v1.149 writes them.
	const (
		manager = "controllers:\n  garbageCollector:\n    syncPeriod: 12h0m0s\n  health:\n    concurrentSyncs: 10\n    syncPeriod: %s\n  managedResources:\n    syncPeriod: 1h0m0s\n"
		druid   = "controllers:\n  etcd:\n    etcdStatusSyncPeriod: %s\n"
	)
	for name, test := range map[string]struct{ config, before, wanted string }{
		"gardener-resource-manager-0":                {manager, "1m0s", "5m0s"},
		"virtual-garden-gardener-resource-manager-0": {manager, "1m0s", "5m0s"},
		"etcd-druid-configmap-0":                     {druid, "15s", "5s"},
		"other":                                      {manager, "1m0s", "1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			config := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
				Data:       map[string]string{"config.yaml": fmt.Sprintf(test.config, test.before)},
			}
			NewWithT(t).Eventually(func(g Gomega) {
				admitted := config.DeepCopy()
				g.Expect(c.Create(t.Context(), admitted, client.DryRunAll)).To(Succeed())
				g.Expect(admitted.Data).To(HaveKeyWithValue("config.yaml", fmt.Sprintf(test.config, test.wanted)))
			}).WithTimeout(10*time.Second).Should(Succeed(), "policies are in force a moment after they are there")
		})
	}
}
