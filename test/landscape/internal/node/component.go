// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package node is the landscape's one node and control plane: the files they are configured by, and the processes they
// consist of, in the order of their start. `up` starts them, `status` asks them, `down` stops them in reverse.
package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/host"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/process"
)

//go:embed files
var files embed.FS

// IPAM is the plugin that gives pods their addresses, by which name it is linked beside the other plugins.
const IPAM = "landscape-ipam"

// Names of the components, which are those of their programs.
const (
	Registry          = "registry"
	Etcd              = "etcd"
	Containerd        = "containerd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
	DNS               = "coredns"
	StatusController  = "status-controller"
)

// Component is a process of the landscape.
type Component struct {
	process.Spec
	// Configs are the templates it reads; they are written before it starts.
	Configs []string
	// Health is the URL that answers with status 200, or the socket (unix://PATH or tcp://ADDRESS) that takes connections, once it serves.
	Health string
}

// Components returns all processes in the order of their start.
func Components(l layout.Layout) []Component {
	var all []Component
	content, err := Render("components.yaml", l)
	if err == nil {
		err = yaml.UnmarshalStrict(content, &all)
	}
	if err != nil {
		// The file is a part of this program.
		panic(fmt.Errorf("reading components.yaml: %w", err))
	}
	for i := range all {
		all[i].Env = append(all[i].Env, fmt.Sprintf("GOMAXPROCS=%d", Processors()))
	}
	return all
}

// Processors is GOMAXPROCS of the landscape's programs: half of the machine's processors. The landscape runs about seventy programs,
// most of them idle. With all processors, Go wakes up each of them for a little work, which costs more than the work, above all in
// virtual machines.
func Processors() int { return max(1, runtime.NumCPU()/2) }

// health asks health endpoints on this machine. Some components have made their certificate themselves, and none tells anything
// that would have to be kept secret.
var health = &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, // #nosec G402 -- see above.
}}

// Ready succeeds once the component serves.
func (c Component) Ready(ctx context.Context) error {
	if network, address, _ := strings.Cut(c.Health, "://"); network == "unix" || network == "tcp" {
		connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return err
		}
		return connection.Close()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Health, nil)
	if err != nil {
		return err
	}
	response, err := health.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 512))
		return fmt.Errorf("%s answers %s: %s", c.Health, response.Status, body)
	}
	return nil
}

// values are what the templates below files/ may use.
type values struct {
	layout.Layout
	layout.Network
	NodeName, RegistryHost, Bridge, CNINetwork, IPAM, Cgroup string
	RegistryPort                                             int
}

// Render renders one of the templates below files/.
func Render(name string, l layout.Layout) ([]byte, error) {
	parsed, err := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{"program": program}).ParseFS(files, "files/"+name)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, values{
		Layout: l, Network: l.Network,
		NodeName: layout.NodeName, RegistryHost: layout.RegistryHost, Bridge: layout.PodBridge, CNINetwork: layout.CNINetwork, IPAM: IPAM, Cgroup: host.Cgroup,
		RegistryPort: layout.RegistryPort,
	}); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// program finds a program of the machine, which Debian and Docker have in different folders.
func program(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return name
	}
	return path
}

// WriteConfig writes one configuration file below the state folder and returns its path.
func WriteConfig(l layout.Layout, name string) (string, error) {
	content, err := Render(filepath.Base(name), l)
	if err != nil {
		return "", err
	}
	path := l.State("etc", name)
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
