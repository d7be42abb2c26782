// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package node is the landscape's one node and control plane: the files they are configured by, and the processes they
// consist of, in the order of their start. `up` starts them, `status` asks them, `down` stops them in reverse.
package node

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/host"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

//go:embed files
var files embed.FS

// IPAM is the plugin that gives pods their addresses, by which name it is linked beside the other plugins.
const IPAM = "landscape-ipam"

// Values are what the templates below files/ may use.
type Values struct {
	State, PKI, Socket                                  string
	NodeName, NodeIP, HostServicesIP, HostDNSIP         string
	PodCIDR, ClusterDNSIP, ExtensionDNSIP, RegistryHost string
	ClusterDNSPort, RegistryPort                        int
	PauseImage, Bridge, CNINetwork, CNIBinaries, IPAM   string
	Cgroup                                              string
}

// NewValues fills in a layout's values.
func NewValues(l layout.Layout) Values {
	return Values{
		State: l.State(), PKI: l.State("pki"), Socket: l.ContainerdSocket(),
		NodeName: layout.NodeName, NodeIP: l.Network.NodeIP(), HostServicesIP: l.Network.HostServicesIP(), HostDNSIP: l.Network.HostDNSIP(),
		PodCIDR: l.Network.PodCIDR(), ClusterDNSIP: l.Network.ClusterDNSIP(), ExtensionDNSIP: l.Network.ExtensionDNSIP(), RegistryHost: layout.RegistryHost,
		ClusterDNSPort: layout.ClusterDNSPort, RegistryPort: layout.RegistryPort,
		PauseImage: fmt.Sprintf("127.0.0.1:%d/real/pause:latest", layout.RegistryPort),
		Bridge:     layout.PodBridge, CNINetwork: layout.CNINetwork, Cgroup: host.Cgroup, CNIBinaries: l.Plugins(), IPAM: IPAM,
	}
}

// targets maps each template to its place below the state folder.
func targets() map[string]string {
	return map[string]string{
		"audit-policy.yaml": "etc/audit-policy.yaml",
		"containerd.toml":   "etc/containerd.toml",
		"hosts.toml":        "etc/registries/_default/hosts.toml",
		"cni.conflist":      "etc/cni/10-landscape.conflist",
		"kubelet.yaml":      "etc/kubelet.yaml",
		"kube-proxy.yaml":   "etc/kube-proxy.yaml",
		"resolv.conf":       "etc/resolv.conf",
		"Corefile":          "etc/Corefile",
	}
}

// Render renders one of the templates below files/.
func Render(name string, values Values) ([]byte, error) {
	parsed, err := template.New(name).Option("missingkey=error").ParseFS(files, "files/"+name)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, values); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// WriteConfig writes one configuration file below the state folder and returns its path.
func WriteConfig(l layout.Layout, name string) (string, error) {
	content, err := Render(name, NewValues(l))
	if err != nil {
		return "", err
	}
	path := l.State(targets()[name])
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // #nosec G301 -- holds nothing secret.
		return "", fmt.Errorf("writing %s: %w", path, err)
	}
	// Some programs watch their file, and kube-proxy ends when it is written to.
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) { // #nosec G304 -- the landscape's own file.
		return path, nil
	}
	if err := os.WriteFile(path, content, 0o644); err != nil { // #nosec G306 -- holds nothing secret.
		return "", fmt.Errorf("writing %s: %w", path, err)
	}
	return path, nil
}
