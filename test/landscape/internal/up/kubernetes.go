// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/binaries"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

// UseKubernetes has Up build further minor versions of Kubernetes for Shoots, such as 1.35, besides those that the landscape has already.
func (l *Landscape) UseKubernetes(minors []string) error {
	var known []string
	for _, program := range binaries.Programs(l.Layout.Root) {
		if program.Optional != "" && !slices.Contains(known, program.Optional) {
			known = append(known, program.Optional)
		}
	}
	for _, minor := range minors {
		if !slices.Contains(known, minor) {
			return fmt.Errorf("there is no Kubernetes %q to build: choose of %s; the newest is always there", minor, strings.Join(known, ", "))
		}
	}
	l.minors = minors
	return nil
}

// saveKubernetes adds the minor versions of this Up to those of the landscape.
func (l Landscape) saveKubernetes() error {
	all := slices.Compact(slices.Sorted(slices.Values(append(l.kubernetes(), l.minors...))))
	return layout.WriteFile(l.Layout.State("kubernetes"), []byte(strings.Join(all, "\n")), 0o644)
}

// kubernetes are the minor versions of the landscape that are built only when asked for.
func (l Landscape) kubernetes() []string {
	content, _ := os.ReadFile(l.Layout.State("kubernetes"))
	return strings.Fields(string(content))
}

// isUnused reports whether nobody asked for the program.
func (l Landscape) isUnused(p binaries.Program) bool {
	return p.Optional != "" && !slices.Contains(l.kubernetes(), p.Optional)
}

// served is the image without the versions whose programs nobody asked for.
func (l Landscape) served(real images.Real) images.Real {
	real.Versions = slices.DeleteFunc(slices.Clone(real.Versions), func(version string) bool {
		return slices.ContainsFunc(binaries.Programs(l.Layout.Root), func(p binaries.Program) bool {
			return l.isUnused(p) && strings.HasSuffix(p.Name, "-"+version)
		})
	})
	return real
}

// cloudProfile is the file of the CloudProfile that Skaffold deploys, as a path below the repository.
func (l Landscape) cloudProfile() string {
	if l.Layout.Kind != "" {
		return "example/50-cloudprofile.yaml"
	}
	path, _ := filepath.Rel(l.Layout.Root, l.Layout.State("skaffold", "cloudprofile.yaml"))
	return path
}

// writeCloudProfile writes the example's CloudProfile without the versions of Kubernetes that this landscape has no images of.
func (l Landscape) writeCloudProfile() error {
	objects, err := cluster.Read(filepath.Join(l.Layout.Root, "example", "50-cloudprofile.yaml"))
	if err != nil {
		return err
	}
	profile := objects[0].Object
	versions, _, err := unstructured.NestedSlice(profile, "spec", "kubernetes", "versions")
	if err != nil {
		return fmt.Errorf("reading the CloudProfile: %w", err)
	}
	table, err := images.Load()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(table.Real, func(r images.Real) bool { return r.Name == "kubelet" })
	served := l.served(table.Real[i]).Versions
	versions = slices.DeleteFunc(versions, func(version any) bool {
		entry, _ := version.(map[string]any)
		return !slices.Contains(served, fmt.Sprintf("v%s", entry["version"]))
	})
	if err := unstructured.SetNestedSlice(profile, versions, "spec", "kubernetes", "versions"); err != nil {
		return err
	}
	content, err := yaml.Marshal(profile)
	if err != nil {
		return err
	}
	return layout.WriteFile(l.Layout.State("skaffold", "cloudprofile.yaml"), content, 0o644)
}
