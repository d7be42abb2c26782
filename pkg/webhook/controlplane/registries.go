// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	_ "embed"
	"fmt"
	"path"
	"slices"
	"strings"
	"text/template"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// hostsFolder is where containerd of a machine looks for the configuration of registries, by Gardener's contract for it.
const hostsFolder = "/etc/containerd/certs.d"

//go:embed templates/hosts.toml.tpl
var hostsTemplate string

// ensureRegistries merges the mirrors into the containerd section, which gardener-node-agent writes to the machine. An
// upstream that is configured already, by an extension for registry caches for example, keeps all that is set and its
// hosts come first; ours are asked after them. Mirrors have no readiness probe: they are outside of the shoot and there
// before any machine, and a probe would hold up the machine's configuration.
func ensureRegistries(config *extensionsv1alpha1.CRIConfig, mirrors []configv1alpha1.RegistryMirror) {
	if config == nil || config.Name != extensionsv1alpha1.CRINameContainerD || config.Containerd == nil {
		return
	}
	for _, mirror := range mirrors {
		i := slices.IndexFunc(config.Containerd.Registries, func(r extensionsv1alpha1.RegistryConfig) bool { return r.Upstream == mirror.Upstream })
		if i < 0 {
			i = len(config.Containerd.Registries)
			config.Containerd.Registries = append(config.Containerd.Registries, extensionsv1alpha1.RegistryConfig{Upstream: mirror.Upstream})
		}
		ensureMirror(&config.Containerd.Registries[i], mirror)
	}
}

func ensureMirror(registry *extensionsv1alpha1.RegistryConfig, mirror configv1alpha1.RegistryMirror) {
	if registry.Server == nil && mirror.Server != "" {
		registry.Server = new(mirror.Server)
	}
	if registry.ReadinessProbe == nil {
		registry.ReadinessProbe = new(false)
	}
	for _, url := range mirror.Hosts {
		if slices.ContainsFunc(registry.Hosts, func(h extensionsv1alpha1.RegistryHost) bool { return h.URL == url }) {
			continue
		}
		registry.Hosts = append(registry.Hosts, extensionsv1alpha1.RegistryHost{
			URL:          url,
			Capabilities: []extensionsv1alpha1.RegistryCapability{extensionsv1alpha1.PullCapability, extensionsv1alpha1.ResolveCapability},
		})
	}
}

// withHostsFiles returns the files of a new machine with those that tell containerd of the mirrors. gardener-node-agent,
// which writes the same files later on, is itself pulled from a registry first. A file that is there already is kept.
func withHostsFiles(files []extensionsv1alpha1.File, mirrors []configv1alpha1.RegistryMirror) ([]extensionsv1alpha1.File, error) {
	for _, mirror := range mirrors {
		name := path.Join(hostsFolder, mirror.Upstream, "hosts.toml")
		if extensionswebhook.FileWithPath(files, name) != nil {
			continue
		}
		content, err := hostsFile(mirror)
		if err != nil {
			return nil, err
		}
		files = append(files, extensionsv1alpha1.File{
			Path:        name,
			Permissions: new(uint32(0o644)),
			Content:     extensionsv1alpha1.FileContent{Inline: &extensionsv1alpha1.FileContentInline{Data: content}},
		})
	}
	return files, nil
}

func hostsFile(mirror configv1alpha1.RegistryMirror) (string, error) {
	tpl, err := template.New("hosts.toml").Option("missingkey=error").Parse(hostsTemplate)
	if err != nil {
		return "", err
	}
	content := &strings.Builder{}
	if err := tpl.Execute(content, mirror); err != nil {
		return "", fmt.Errorf("rendering hosts.toml of %s: %w", mirror.Upstream, err)
	}
	return content.String(), nil
}
