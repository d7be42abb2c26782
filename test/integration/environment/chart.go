// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
)

// Release is the release chart as an instance finds itself in it.
type Release struct {
	// Namespace is where the instance runs.
	Namespace string
	// Config is the configuration that the chart would give to the instance.
	Config *configv1alpha1.ExtensionConfiguration
}

// configFile is what the chart calls the configuration of an instance.
const configFile = "config.yaml"

// rbacKinds are those objects of the chart that the suites need: what an instance may do, and as whom.
var rbacKinds = map[string]bool{"ServiceAccount": true, "Role": true, "RoleBinding": true, "ClusterRole": true, "ClusterRoleBinding": true}

// InstallChart renders charts/provider-local with values, creates its ServiceAccount and RBAC, and returns what an
// instance needs to run by it.
func (e *Environment) InstallChart(ctx context.Context, namespace string, values map[string]any) (*Release, error) {
	root, err := moduleDir("github.com/gardener/gardener-extension-provider-local")
	if err != nil {
		return nil, err
	}
	renderer, err := chart.NewRenderer("v1.36.3")
	if err != nil {
		return nil, err
	}
	objects, err := renderer.Render(ctx, chart.Embedded(os.DirFS(filepath.Join(root, "charts")), "provider-local"),
		chart.Release{Name: "provider-local", Namespace: namespace}, values)
	if err != nil {
		return nil, err
	}

	release := &Release{Namespace: namespace}
	for _, obj := range objects {
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		switch {
		case rbacKinds[kind]:
			if err := client.IgnoreAlreadyExists(e.Client.Create(ctx, obj)); err != nil {
				return nil, fmt.Errorf("creating %s %s: %w", kind, client.ObjectKeyFromObject(obj), err)
			}
		case kind == "ConfigMap":
			config, err := configOf(obj)
			if err != nil {
				return nil, err
			}
			if config != nil {
				release.Config = config
			}
		}
	}
	if release.Config == nil {
		return nil, fmt.Errorf("the chart has no configuration for %s", namespace)
	}
	return release, nil
}

// configOf returns the configuration that a ConfigMap has, or nil if it is for something else.
func configOf(obj client.Object) (*configv1alpha1.ExtensionConfiguration, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	data, _, err := unstructured.NestedStringMap(object, "data")
	if err != nil {
		return nil, err
	}
	file, ok := data[configFile]
	if !ok {
		return nil, nil
	}
	config := &configv1alpha1.ExtensionConfiguration{}
	return config, configv1alpha1.Decode([]byte(file), config)
}
