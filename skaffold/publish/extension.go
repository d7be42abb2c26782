// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"path/filepath"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
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
