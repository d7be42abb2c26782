// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

func mockValues(values map[string]any) map[string]any {
	return with(values, map[string]any{
		"enabled": true, "seed": 7, "concurrentSyncs": 3,
		"behaviours": []any{map[string]any{
			"kind": "Worker", "operation": "Create", "delay": "1s", "jitter": "500ms", "failures": 2, "errorRate": 0.1, "retryAfter": "2s",
			"error": map[string]any{"message": "no quota", "codes": []any{"ERR_INFRA_QUOTA_EXCEEDED"}},
		}},
	}, "mock")
}

func TestTheMockProviderIsConfiguredInBothPlaces(t *testing.T) {
	for place, values := range map[string]map[string]any{"garden": gardenValues(), "seed": seedValues()} {
		t.Run(place, func(t *testing.T) {
			g := NewWithT(t)
			configMap := find[corev1.ConfigMap](t, objects(t, "here", mockValues(values)), "ConfigMap", "gardener-extension-provider-local-"+place+"-config")
			config := &configv1alpha1.ExtensionConfiguration{}
			g.Expect(configv1alpha1.Decode([]byte(configMap.Data["config.yaml"]), config)).To(Succeed())
			g.Expect(config.Mock.Enabled).To(BeTrue())
			g.Expect(config.Mock.Seed).To(BeNumerically("==", 7))
			g.Expect(config.Mock.Behaviours).To(HaveExactElements(And(
				HaveField("Kind", "Worker"), HaveField("Failures", int32(2)), HaveField("ErrorRate", 0.1), HaveField("Delay.Duration", time.Second),
				HaveField("Error.Codes", HaveLen(1)),
			)))
		})
	}
}

func TestOnlyASeedWithTheMockProviderMayChangeTheKindsThatItAloneServes(t *testing.T) {
	g := NewWithT(t)
	const name = "gardener-extension-provider-local-seed-mock"
	role := find[rbacv1.ClusterRole](t, objects(t, "here", mockValues(seedValues())), "ClusterRole", name)
	for _, rule := range role.Rules {
		g.Expect(rule.APIGroups).To(HaveExactElements("extensions.gardener.cloud"))
		g.Expect(rule.Verbs).NotTo(ContainElement(BeElementOf("create", "delete", "update", "deletecollection", "*")))
	}
	for _, values := range []map[string]any{seedValues(), gardenValues(), mockValues(gardenValues()), with(seedValues(), nil, "mock")} {
		g.Expect(names(objects(t, "here", values))).NotTo(ContainElement(HaveSuffix(name)))
	}
}

func TestFakeNodesAndTheirKubeletsAreReachedInASeedWithTheMockProvider(t *testing.T) {
	g := NewWithT(t)
	const annotation = "networking.resources.gardener.cloud/from-all-webhook-targets-allowed-ports"
	const toShoots = "networking.resources.gardener.cloud/to-all-shoots-kube-apiserver-tcp-443"
	const name = "gardener-extension-provider-local-seed"
	for port, values := range map[int32]map[string]any{
		10250: mockValues(seedValues()),
		999:   with(mockValues(seedValues()), map[string]any{"kubeletPort": 999}, "mock", "nodes"),
		10004: mockValues(selfHostedValues()),
	} {
		all := objects(t, "here", values)
		g.Expect(find[appsv1.Deployment](t, all, "Deployment", name).Spec.Template.Labels).To(HaveKeyWithValue(toShoots, "allowed"))
		service := find[corev1.Service](t, all, "Service", name)
		g.Expect(service.Spec.Ports).To(ContainElement(And(HaveField("Name", "kubelet"), HaveField("Port", port), HaveField("TargetPort.IntVal", port))))
		var allowed []struct{ Port int32 }
		g.Expect(json.Unmarshal([]byte(service.Annotations[annotation]), &allowed)).To(Succeed())
		g.Expect(allowed).To(ContainElement(HaveField("Port", port)))
		config := &configv1alpha1.ExtensionConfiguration{}
		g.Expect(configv1alpha1.Decode([]byte(find[corev1.ConfigMap](t, all, "ConfigMap", name+"-config").Data["config.yaml"]), config)).To(Succeed())
		g.Expect(config.Mock.Nodes.KubeletPort).To(HaveValue(BeEquivalentTo(port)))
		g.Expect(config.Mock.Behaviours).To(HaveLen(1))
	}
	for _, values := range []map[string]any{seedValues(), with(mockValues(seedValues()), map[string]any{"disabled": true}, "mock", "nodes")} {
		all := objects(t, "here", values)
		g.Expect(find[appsv1.Deployment](t, all, "Deployment", name).Spec.Template.Labels).NotTo(HaveKey(toShoots))
		service := find[corev1.Service](t, all, "Service", name)
		g.Expect(service.Spec.Ports).NotTo(ContainElement(HaveField("Name", "kubelet")))
	}
	g.Expect(find[corev1.Service](t, objects(t, "here", mockValues(gardenValues())), "Service", "gardener-extension-provider-local-garden").Spec.Ports).To(HaveLen(1))
}

func TestTheSchemaHasEveryFieldOfTheMockProvider(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(chartDirectory, "values.schema.json"))
	g.Expect(err).NotTo(HaveOccurred())
	schema := map[string]any{}
	g.Expect(json.Unmarshal(content, &schema)).To(Succeed())
	field, _ := reflect.TypeFor[configv1alpha1.ExtensionConfiguration]().FieldByName("Mock")
	expectFields(t, schema, schema, field)

	mock := schema["properties"].(map[string]any)["mock"].(map[string]any)["properties"].(map[string]any)
	behaviour := mock["behaviours"].(map[string]any)["items"].(map[string]any)
	for field := range reflect.TypeFor[configv1alpha1.MockBehaviour]().Fields() {
		expectFields(t, schema, behaviour, field)
	}

	for says, behaviour := range map[string]map[string]any{
		"operations": {"operations": "Create"}, "create": {"operation": "create"}, "errorRate": {"errorRate": 2}, "1 hour": {"delay": "1 hour"},
	} {
		_, err := render("here", with(seedValues(), map[string]any{"behaviours": []any{behaviour}}, "mock"))
		g.Expect(err).To(HaveOccurred(), says)
		g.Expect(strings.Contains(err.Error(), "mock")).To(BeTrue(), "%v", err)
	}
}
