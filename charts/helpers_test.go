// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package charts_test holds the tests of the chart provider-local: what it renders in both places, with the values that
// gardener-operator and gardenlet really inject, and that no permission in it is wider than it must be.
package charts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

const (
	chartDirectory = "provider-local"
	digest         = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// gardenValues are what gardener-operator v1.149 renders with: the Extension's runtimeClusterValues below what it
// injects (pkg/operator/controller/extension/extension/runtime).
func gardenValues() map[string]any {
	return map[string]any{
		"gardener": map[string]any{
			"runtimeCluster": map[string]any{
				"enabled":           "true",
				"priorityClassName": "gardener-garden-system-200",
			},
		},
		"image": "registry.local.gardener.cloud:5001/operator-extension" + digest,
		"dns":   map[string]any{"coreDNS": map[string]any{"image": "registry.local.gardener.cloud:5001/coredns" + digest}},
	}
}

// seedValues are what gardenlet v1.149 renders with: the ControllerDeployment's values below what it injects
// (pkg/gardenlet/controller/controllerinstallation/controllerinstallation).
func seedValues() map[string]any {
	networks := map[string]any{
		"pods": "10.1.0.0/16", "services": "10.2.0.0/16", "nodes": "172.18.0.0/24", "ipFamilies": []any{"IPv4"},
		"shootDefaults": map[string]any{"pods": "10.3.0.0/16", "services": "10.4.0.0/16"}, "blockCIDRs": nil,
	}
	return map[string]any{
		"gardener": map[string]any{
			"version": "v1.149.3",
			"garden": map[string]any{
				"clusterIdentity":             "garden-cluster-identity",
				"genericKubeconfigSecretName": "generic-garden-kubeconfig-1234",
			},
			"gardenlet": map[string]any{"featureGates": map[string]any{"DefaultSeccompProfile": true, "IstioTLSTermination": false}},
			"seed": map[string]any{
				"name":            "local",
				"clusterIdentity": "local-cluster-identity",
				"annotations":     nil,
				"labels":          map[string]any{"foo": "bar"},
				"provider":        "local",
				"region":          "local",
				"volumeProvider":  "",
				"volumeProviders": nil,
				"protected":       false,
				"visible":         true,
				"taints":          nil,
				"networks":        networks,
				"blockCIDRs":      nil,
				"ingressDomain":   "ingress.local.seed.local.gardener.cloud",
				"spec":            map[string]any{"networks": networks, "provider": map[string]any{"type": "local", "region": "local"}},
			},
		},
		"image": "registry.local.gardener.cloud:5001/gardenlet-extension" + digest,
		"dns":   map[string]any{"coreDNS": map[string]any{"image": "registry.local.gardener.cloud:5001/coredns" + digest}},
		"controlPlane": map[string]any{
			"localPathProvisioner": map[string]any{"image": "registry.local.gardener.cloud:5001/local-path-provisioner" + digest},
		},
	}
}

// selfHostedValues are what gardenlet renders with on the control plane node of a self-hosted shoot.
func selfHostedValues() map[string]any {
	values := seedValues()
	values["gardener"] = map[string]any{
		"version":                "v1.149.3",
		"garden":                 map[string]any{"clusterIdentity": "garden-cluster-identity"},
		"gardenlet":              map[string]any{"featureGates": map[string]any{}},
		"selfHostedShootCluster": true,
		"shoot":                  map[string]any{"name": "root", "namespace": "garden", "labels": nil, "annotations": nil, "spec": map[string]any{"networking": map[string]any{"services": "100.64.0.0/16"}}},
	}
	values["usablePorts"] = []any{10001, 10002, 10003, 10004, 10005}
	return values
}

// with returns values with the value at the given path replaced.
func with(values map[string]any, value any, path ...string) map[string]any {
	inner := values
	for _, key := range path[:len(path)-1] {
		next, ok := inner[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			inner[key] = next
		}
		inner = next
	}
	inner[path[len(path)-1]] = value
	return values
}

// render is renderChart for the chart provider-local.
func render(namespace string, values map[string]any) ([]byte, error) {
	return renderChart(chartDirectory, namespace, values)
}

// renderChart renders a chart like Gardener does: the values go through JSON, the schema is checked, NOTES.txt is dropped.
// It returns the manifests one after the other, sorted by file.
func renderChart(directory, namespace string, values map[string]any) ([]byte, error) {
	chart, err := loader.LoadDir(directory)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	decoded, err := chartutil.ReadValues(data)
	if err != nil {
		return nil, err
	}

	release := chartutil.ReleaseOptions{Name: "provider-local", Namespace: namespace, Revision: 1, IsInstall: true}
	renderValues, err := chartutil.ToRenderValues(chart, decoded, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, renderValues)
	if err != nil {
		return nil, err
	}

	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := strings.TrimSpace(files[name])
		if content == "" || strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		out.WriteString("---\n# Source: " + name + "\n" + content + "\n")
	}
	return out.Bytes(), nil
}

// expectGolden expects manifests to be those of a golden file.
func expectGolden(t *testing.T, name string, manifests []byte) {
	t.Helper()
	g := NewWithT(t)
	golden := filepath.Join("testdata", name+".golden.yaml")
	if *update {
		g.Expect(os.WriteFile(golden, manifests, 0o600)).To(Succeed())
	}
	expected, err := os.ReadFile(golden) // #nosec G304 -- a golden file
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(manifests)).To(Equal(string(expected)), "refresh with: go test ./charts -update")
}

// objects are what the chart provider-local deploys.
func objects(t *testing.T, namespace string, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	return chartObjects(t, chartDirectory, namespace, values)
}

func chartObjects(t *testing.T, directory, namespace string, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)

	manifests, err := renderChart(directory, namespace, values)
	g.Expect(err).NotTo(HaveOccurred())

	var (
		out     []*unstructured.Unstructured
		decoder = yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	)
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(obj); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatalf("decoding manifest: %v", err)
		}
		if len(obj.Object) > 0 {
			out = append(out, obj)
		}
	}
}

// find returns the object of the kind and name as its own type.
func find[T any](t *testing.T, objs []*unstructured.Unstructured, kind, name string) *T {
	t.Helper()
	for _, obj := range objs {
		if obj.GetKind() == kind && obj.GetName() == name {
			typed := new(T)
			NewWithT(t).Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, typed, true)).To(Succeed())
			return typed
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

func names(objs []*unstructured.Unstructured) []string {
	var out []string
	for _, obj := range objs {
		out = append(out, strings.Join([]string{obj.GroupVersionKind().GroupKind().String(), obj.GetNamespace(), obj.GetName()}, "/"))
	}
	return out
}

// config is the configuration of the program that the chart renders for a place.
func config(t *testing.T, place string, values map[string]any) *configv1alpha1.ExtensionConfiguration {
	t.Helper()
	configMap := find[corev1.ConfigMap](t, objects(t, "here", values), "ConfigMap", "gardener-extension-provider-local-"+place+"-config")
	decoded := &configv1alpha1.ExtensionConfiguration{}
	NewWithT(t).Expect(configv1alpha1.Decode([]byte(configMap.Data["config.yaml"]), decoded)).To(Succeed())
	return decoded
}

// places are the values of both places.
func places() map[string]func() map[string]any {
	return map[string]func() map[string]any{"garden": gardenValues, "seed": seedValues}
}
