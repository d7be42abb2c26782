// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command permissions writes docs/operations/permissions.md: what every program of this extension may do, as the charts have it, with
// the reasons that stand there as comments. `make generate` runs it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// page is the file that is written, in the repository.
const page = "docs/operations/permissions.md"

const introduction = `---
title: Permissions
description: The permissions of each program in each cluster, with reasons
---

# Permissions

` + "`make generate`" + ` writes this page from the charts; the reasons are the comments there. [security.md](security.md) describes the security
model.

Each role is bound to the ServiceAccount of one program. "core" is the empty API group. A rule without a reason belongs to the rule above it, or
its names say enough.

Not in a chart, as the namespace comes later: each instance grants itself write access to its ConfigMaps of
CoreDNS (Role ` + "`gardener-extension-provider-local-garden`" + ` or ` + "`...-seed`" + `, by ` + "`pkg/dns/coredns`" + `).
`

// program is one that has permissions of its own.
type program struct {
	title, about string
	// chart is its folder, and namespace that of the release.
	chart, namespace string
	values           map[string]any
}

func programs() []program {
	image := "registry.local.gardener.cloud:5001/image"
	coreDNS := map[string]any{"coreDNS": map[string]any{"image": image}}
	secureMetrics := map[string]any{"secureMetrics": true}
	const aboutMetrics = "The ClusterRole with suffix `-metrics` exists only with `server.secureMetrics`."
	return []program{
		{
			title: "operator-extension, in the garden runtime cluster",
			about: "The garden instance, which serves class `garden`. It may read Secrets of its namespace only with `charts.sources`. " + aboutMetrics,
			chart: "charts/provider-local", namespace: "runtime-extension-provider-local",
			values: map[string]any{
				"gardener": map[string]any{"runtimeCluster": map[string]any{"enabled": true}}, "image": image, "dns": coreDNS, "server": secureMetrics,
				"charts": map[string]any{"sources": map[string]any{"coredns": map[string]any{"ref": image + ":tag"}}},
			},
		},
		{
			title: "gardenlet-extension, in a seed",
			about: "The seed instance, which serves the classes `seed` and `shoot`. The ClusterRole with suffix `-mock` exists only with `mock.enabled`. " + aboutMetrics,
			chart: "charts/provider-local", namespace: "extension-provider-local",
			values: map[string]any{
				"image": image, "dns": coreDNS, "mock": map[string]any{"enabled": true}, "server": secureMetrics,
				"controlPlane": map[string]any{"localPathProvisioner": map[string]any{"image": image}},
			},
		},
		{
			title: "operator-extension admission, in the garden runtime cluster",
			about: "The webhooks of the virtual garden ([admission.md](admission.md)). " + aboutMetrics,
			chart: "charts/admission-local/runtime", namespace: "garden",
			values: map[string]any{"image": image, "gardener": map[string]any{"virtualCluster": map[string]any{"namespace": "extension-provider-local"}}, "server": secureMetrics},
		},
		{
			title: "operator-extension admission, in the virtual garden",
			about: "The same program.",
			chart: "charts/admission-local/application", namespace: "extension-provider-local",
			values: map[string]any{"gardener": map[string]any{"virtualCluster": map[string]any{"serviceAccount": map[string]any{
				"name": "extension-admission-provider-local", "namespace": "kube-system",
			}}}},
		},
		{
			title: "coredns, in a garden runtime cluster or seed",
			about: "The server of DNSRecords of type `local` ([dns.md](../usage/dns.md)).",
			chart: "charts/components/coredns", namespace: "gardener-extension-provider-local-coredns",
			values: map[string]any{"image": image},
		},
		{
			title: "cloud-controller, in the namespace of a shoot and in the shoot",
			about: "The controller of a shoot's load balancers ([loadbalancers.md](../usage/loadbalancers.md)). The Role is in the shoot's namespace in the seed, unless the machines are in another cluster, the ClusterRole in the shoot.",
			chart: "charts/components/cloud-controller", namespace: "shoot--project--name",
			values: map[string]any{"image": image, "serverSecret": "server", "shootAccess": map[string]any{"kubeconfigSecret": "kubeconfig", "tokenSecret": "token"}},
		},
		{
			title: "local-path-provisioner, in a shoot",
			about: "What makes the volumes of a shoot.",
			chart: "charts/components/local-path-provisioner", namespace: "kube-system",
			values: map[string]any{"image": image},
		},
	}
}

func main() {
	root := ".."
	content, err := generate(root)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, page), content, 0o644) // #nosec G306 -- like any file of a repository
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "Error: writing "+page+":", err)
		os.Exit(1)
	}
}

// generate returns the page. root is the folder of the repository.
func generate(root string) ([]byte, error) {
	var out strings.Builder
	out.WriteString(introduction)
	for _, program := range programs() {
		fmt.Fprintf(&out, "\n## %s\n\n%s\n", program.title, program.about)
		documents, err := program.render(root)
		if err != nil {
			return nil, fmt.Errorf("rendering %s: %w", program.chart, err)
		}
		for _, document := range documents {
			if err := writeRole(&out, document); err != nil {
				return nil, fmt.Errorf("reading %s: %w", program.chart, err)
			}
		}
	}
	return []byte(out.String()), nil
}

// render returns the documents of all templates, with their comments.
func (p program) render(root string) ([]string, error) {
	source, err := loader.LoadDir(filepath.Join(root, p.chart))
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "release", Namespace: p.namespace}
	values, err := chartutil.ToRenderValues(source, p.values, release, nil)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(source, values)
	if err != nil {
		return nil, err
	}
	var names, documents []string
	for name := range rendered {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		documents = append(documents, strings.Split(rendered[name], "\n---\n")...)
	}
	return documents, nil
}

// writeRole writes what a document grants; nothing if it is no Role or ClusterRole.
func writeRole(out *strings.Builder, document string) error {
	role := rbacv1.Role{}
	if err := yaml.Unmarshal([]byte(document), &role); err != nil {
		return err
	}
	if role.Kind != "Role" && role.Kind != "ClusterRole" {
		return nil
	}
	about, reasons := comments(document)
	if len(reasons) != len(role.Rules) {
		return fmt.Errorf("%s %s has %d rules, but %d lines that begin with \"- apiGroups\"", role.Kind, role.Name, len(role.Rules), len(reasons))
	}

	fmt.Fprintf(out, "\n### %s `%s`", role.Kind, role.Name)
	if role.Namespace != "" {
		fmt.Fprintf(out, " in namespace `%s`", role.Namespace)
	}
	out.WriteString("\n\n")
	if about != "" {
		out.WriteString(about + "\n\n")
	}
	out.WriteString("| API group | resources | verbs | why |\n|---|---|---|---|\n")
	for i, rule := range role.Rules {
		resources := strings.Join(rule.Resources, ", ")
		if len(rule.ResourceNames) > 0 {
			resources += " named `" + strings.Join(rule.ResourceNames, "`, `") + "`"
		}
		groups := slices.Clone(rule.APIGroups)
		for j := range groups {
			if groups[j] == "" {
				groups[j] = "core"
			}
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", strings.Join(groups, ", "), resources, strings.Join(rule.Verbs, ", "), reasons[i])
	}
	return nil
}

// comments returns the comment above a role, and for each of its rules the comment above it.
func comments(document string) (about string, reasons []string) {
	var pending []string
	for _, line := range strings.Split(document, "\n") {
		line = strings.TrimSpace(line)
		comment, isComment := strings.CutPrefix(line, "# ")
		switch {
		case isComment:
			pending = append(pending, comment)
			continue
		case strings.HasPrefix(line, "apiVersion:"):
			about = strings.Join(pending, " ")
		case strings.HasPrefix(line, "- apiGroups:"):
			reasons = append(reasons, strings.Join(pending, " "))
		}
		pending = nil
	}
	return about, reasons
}
