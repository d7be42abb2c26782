// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	unused := slices.DeleteFunc(binaries.Programs(l.Layout.Root), func(p binaries.Program) bool { return !l.isUnused(p) })
	real.Versions = slices.DeleteFunc(slices.Clone(real.Versions), func(version string) bool {
		return slices.ContainsFunc(unused, func(p binaries.Program) bool { return strings.HasSuffix(p.Name, "-"+version) })
	})
	return real
}

// applyCloudProfile applies the example's CloudProfile without the versions of Kubernetes that this landscape has no images of. In a kind
// cluster, where images can be pulled, Skaffold does.
func (l Landscape) applyCloudProfile(ctx context.Context) error {
	if l.Layout.Kind != "" {
		return nil
	}
	profile, err := l.cloudProfile()
	if err != nil {
		return fmt.Errorf("reading the CloudProfile: %w", err)
	}
	c, err := l.client(virtualGarden)
	if err != nil {
		return err
	}
	return cluster.Apply(ctx, c, []*unstructured.Unstructured{profile})
}

func (l Landscape) cloudProfile() (*unstructured.Unstructured, error) {
	objects, err := cluster.Read(filepath.Join(l.Layout.Root, "example", "50-cloudprofile.yaml"))
	if err != nil {
		return nil, err
	}
	profile := objects[0]
	versions, _, err := unstructured.NestedSlice(profile.Object, "spec", "kubernetes", "versions")
	if err != nil {
		return nil, err
	}
	table, err := images.Load()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(table.Real, func(r images.Real) bool { return r.Name == "kubelet" })
	served := l.served(table.Real[i]).Versions
	versions = slices.DeleteFunc(versions, func(version any) bool {
		entry, _ := version.(map[string]any)
		return !slices.Contains(served, fmt.Sprintf("v%s", entry["version"]))
	})
	return profile, unstructured.SetNestedSlice(profile.Object, versions, "spec", "kubernetes", "versions")
}
