// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"

	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/gardener/operator"
)

// extensionFolder is the chart with the operator.gardener.cloud Extension: the one description of what this version serves,
// which Skaffold deploys from and from which this program writes the manifest.
const extensionFolder = "skaffold/extension"

// extensionManifest returns the Extension that installs our charts, in YAML with comments. charts (by folder) and images (by
// name) are references by digest.
func extensionManifest(root string, charts, images map[string]string) ([]byte, error) {
	refs := make(map[string]any, len(images))
	for name, ref := range images {
		refs[name] = ref
	}
	manifest, err := renderExtension(root, map[string]any{
		"chart":  charts[chartFolder],
		"images": refs,
		"admission": map[string]any{"charts": map[string]any{
			"runtime": charts[admissionRuntimeFolder], "application": charts[admissionApplicationFolder],
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the Extension: %w", err)
	}
	return manifest, nil
}

// renderExtension does what Skaffold has Helm do: it renders the chart with these values.
func renderExtension(root string, values map[string]any) ([]byte, error) {
	source, err := loader.LoadDir(filepath.Join(root, extensionFolder))
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(source, values, chartutil.ReleaseOptions{}, nil)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{Strict: true}.Render(source, all)
	if err != nil {
		return nil, err
	}
	return []byte(rendered[path.Join(source.Name(), "templates", "extension.yaml")]), nil
}

// The examples that are made from the chart skaffold/extension.
const (
	extensionExample    = "example/20-operator-extension.yaml"
	registrationExample = "example/21-controller-registration.yaml"
)

// What the examples name: the registry of a local landscape, with zeros for digests.
const (
	exampleRegistry = "registry.local.gardener.cloud:5001/"
	exampleDigest   = "@sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

func newExamplesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "examples",
		Short: "Write the examples that name what this version serves: " + extensionExample + " and " + registrationExample,
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			root, err := findRoot()
			if err != nil {
				return err
			}
			contents, err := examples(root)
			if err != nil {
				return err
			}
			return writeFiles(root, contents)
		},
	}
}

// examples returns the examples by their path. What stands above the first object in a file stays.
func examples(root string) (map[string][]byte, error) {
	images := map[string]string{}
	for _, name := range artifactNames() {
		images[name] = exampleRegistry + name + exampleDigest
	}
	charts := map[string]string{}
	for _, folder := range extensionCharts() {
		charts[folder] = exampleRegistry + folder + exampleDigest
	}
	extension, err := extensionManifest(root, charts, images)
	if err != nil {
		return nil, err
	}
	registration, err := registrationManifest(extension)
	if err != nil {
		return nil, err
	}

	out := map[string][]byte{extensionExample: extension, registrationExample: registration}
	for name, content := range out {
		current, err := os.ReadFile(filepath.Join(root, name)) // #nosec G304 -- a file of the repository
		header, _, found := strings.Cut(string(current), "apiVersion:")
		if err == nil && !found {
			err = errors.New("there is no apiVersion")
		}
		if err != nil {
			return nil, fmt.Errorf("finding the header of %s: %w", name, err)
		}
		out[name] = append([]byte(header), content...)
	}
	return out, nil
}

// registrationManifest returns what gardener-operator makes of an Extension: a ControllerDeployment and a
// ControllerRegistration for the virtual garden.
func registrationManifest(manifest []byte) ([]byte, error) {
	extension := &operatorv1alpha1.Extension{}
	if err := yaml.UnmarshalStrict(manifest, extension); err != nil {
		return nil, fmt.Errorf("reading the Extension: %w", err)
	}
	registration, deployment := operator.ControllerRegistrationForExtension(extension)
	registration.SetGroupVersionKind(gardencorev1beta1.SchemeGroupVersion.WithKind("ControllerRegistration"))
	deployment.SetGroupVersionKind(gardencorev1.SchemeGroupVersion.WithKind("ControllerDeployment"))

	first, err := yaml.Marshal(deployment)
	if err != nil {
		return nil, err
	}
	second, err := yaml.Marshal(registration)
	return slices.Concat(first, []byte("---\n"), second), err
}
