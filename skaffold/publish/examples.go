// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/gardener/operator"
)

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
			for name, content := range contents {
				if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil { // #nosec G306 -- like any file of a repository
					return err
				}
			}
			return nil
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
		if err != nil {
			return nil, fmt.Errorf("finding the header of an example: %w", err)
		}
		header, _, found := strings.Cut(string(current), "apiVersion:")
		if !found {
			return nil, fmt.Errorf("finding the header of %s: there is no apiVersion", name)
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

	var documents [][]byte
	for _, object := range []runtime.Object{deployment, registration} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		if metadata, ok := content["metadata"].(map[string]any); ok && metadata["creationTimestamp"] == nil {
			delete(metadata, "creationTimestamp")
		}
		document, err := yaml.Marshal(content)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	return bytes.Join(documents, []byte("---\n")), nil
}
