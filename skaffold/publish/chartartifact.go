// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/chart"
	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
)

// chartArtifact is a chart that Skaffold can have pushed. Those of others stand in Go modules, at the version that one of
// this repository's modules pins, so that they are had without a registry of theirs.
type chartArtifact struct {
	// name is the repository below a registry.
	name string
	// module is the folder of the Go module that pins upstream; both are empty for a chart of this repository.
	module, upstream string
	// folder is the chart's, in upstream or in this repository.
	folder string
}

// chartArtifacts are the charts that the development setup deploys by reference to a registry.
func chartArtifacts() []chartArtifact {
	return []chartArtifact{
		{name: chartFolder, folder: chartFolder},
		{name: admissionRuntimeFolder, folder: admissionRuntimeFolder},
		{name: admissionApplicationFolder, folder: admissionApplicationFolder},
		{name: "charts/gardenlet", module: ".", upstream: "github.com/gardener/gardener", folder: "charts/gardener/gardenlet"},
		{
			name:     "charts/networking-calico",
			module:   "test/landscape/modules/networking-calico",
			upstream: "github.com/gardener/gardener-extension-networking-calico",
			folder:   "charts/gardener-extension-networking-calico",
		},
	}
}

func chartNames() []string {
	var names []string
	for _, chart := range chartArtifacts() {
		names = append(names, chart.name)
	}
	return names
}

func chartNamed(name string) (chartArtifact, bool) {
	for _, chart := range chartArtifacts() {
		if chart.name == name {
			return chart, true
		}
	}
	return chartArtifact{}, false
}

// find returns the chart's folder. It downloads the module that has it if the module cache does not have that yet.
func (c chartArtifact) find(ctx context.Context, root string) (string, error) {
	if c.upstream == "" {
		return filepath.Join(root, c.folder), nil
	}
	var out bytes.Buffer
	// #nosec G204 -- the arguments are this program's own
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", c.upstream)
	download.Dir = filepath.Join(root, c.module)
	download.Env = append(os.Environ(), "GOWORK=off")
	download.Stdout = &out
	if err := download.Run(); err != nil {
		return "", fmt.Errorf("finding %s, which has the chart %s: %w: %s", c.upstream, c.name, err, strings.TrimSpace(out.String()))
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out.Bytes(), &module); err != nil {
		return "", fmt.Errorf("finding %s, which has the chart %s: %w", c.upstream, c.name, err)
	}
	return filepath.Join(module.Dir, c.folder), nil
}

// push packages the chart, pushes it to ref and returns its reference by digest.
func (c chartArtifact) push(ctx context.Context, root, ref string, opts oci.Options) (string, error) {
	client, err := oci.NewClient(opts)
	if err != nil {
		return "", err
	}
	folder, err := c.find(ctx, root)
	if err != nil {
		return "", err
	}
	archive, err := chart.Package(folder)
	if err != nil {
		return "", err
	}
	return archive.Push(ctx, client, ref)
}
