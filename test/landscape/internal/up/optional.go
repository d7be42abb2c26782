// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/binaries"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

// Observability is the component that has Prometheus and what belongs to it built.
const Observability = "observability"

// Use has Up build what is not always built: minor versions of Kubernetes for Shoots, such as 1.35, and components in place of their
// stand-ins. It is added to what the landscape has already.
func (l *Landscape) Use(names []string) error {
	var known []string
	for _, program := range binaries.Programs(l.Layout.Root) {
		if program.Optional != "" && !slices.Contains(known, program.Optional) {
			known = append(known, program.Optional)
		}
	}
	known = append(known, images.Upstream)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no %q to build: choose of %s; the newest Kubernetes is always there", name, strings.Join(known, ", "))
		}
	}
	l.optional = names
	return nil
}

// saveOptional adds what this Up was asked for to what the landscape has. Where pods run already, the stand-in of a component would go on.
func (l Landscape) saveOptional() error {
	for _, name := range l.optional {
		if !strings.HasPrefix(name, "1.") && !slices.Contains(l.Layout.Optional(), name) && exists(l.Layout.State("containerd")) {
			return fmt.Errorf("the landscape is up without %s: make down, then make up COMPONENTS=%s", name, name)
		}
	}
	all := slices.Compact(slices.Sorted(slices.Values(append(l.Layout.Optional(), l.optional...))))
	return layout.WriteFile(l.Layout.State("optional"), []byte(strings.Join(all, "\n")), 0o644)
}

// isUnused reports whether nobody asked for the program.
func (l Landscape) isUnused(p binaries.Program) bool {
	return p.Optional != "" && !slices.Contains(slices.Concat(l.Layout.Optional(), l.optional), p.Optional)
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
	table, err := images.Load(l.Layout.Optional())
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
