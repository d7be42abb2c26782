// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/host"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/pki"
)

// Users of the landscape's own programs; what they may do is in the base manifests.
const (
	DNSUser              = "landscape:coredns"
	StatusControllerUser = "landscape:status-controller"
	IPAMUser             = "landscape:ipam"
)

// Certificates makes everything below the pki folder, and the admin's kubeconfig, and links the programs that use them from
// below the state folder.
func Certificates(l layout.Layout, now func() time.Time) error {
	authority, err := pki.Open(l.State("pki"), now)
	if err != nil {
		return err
	}
	if err := authority.ServiceAccountKey(); err != nil {
		return err
	}
	nodeUser := "system:node:" + layout.NodeName
	for _, identity := range []pki.Identity{
		{Name: "kube-apiserver", User: "kube-apiserver", Hosts: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			"127.0.0.1", l.Network.KubernetesServiceIP(), l.Network.NodeIP(),
		}},
		{Name: "kubelet-serving", User: nodeUser, Groups: []string{"system:nodes"}, Hosts: []string{layout.NodeName, l.Network.NodeIP()}},
		{Name: "etcd", User: "etcd", Hosts: []string{"localhost", "127.0.0.1"}},
		{Name: "kube-apiserver-etcd-client", User: "kube-apiserver-etcd-client"},
		{Name: "kube-apiserver-kubelet", User: "kube-apiserver-kubelet", Groups: []string{"system:masters"}},
	} {
		if err := authority.Issue(identity); err != nil {
			return err
		}
	}
	for _, client := range []pki.Identity{
		{Name: "kube-controller-manager", User: "system:kube-controller-manager"},
		{Name: "kube-scheduler", User: "system:kube-scheduler"},
		{Name: "kube-proxy", User: "system:kube-proxy"},
		{Name: "kubelet", User: nodeUser, Groups: []string{"system:nodes"}},
		{Name: "coredns", User: DNSUser},
		{Name: "status-controller", User: StatusControllerUser},
		{Name: "ipam", User: IPAMUser},
	} {
		if err := authority.WriteKubeconfig(client, l.Network.APIServer(), authority.Kubeconfig(client.Name)); err != nil {
			return err
		}
	}
	admin := pki.Identity{Name: "admin", User: "admin", Groups: []string{"system:masters"}}
	if err := authority.WriteKubeconfig(admin, l.Network.APIServer(), l.Kubeconfig()); err != nil {
		return err
	}
	return links(l)
}

// links offers programs at their fixed places: kubectl, and in one folder, as containerd knows no more, our CNI plugin and those
// of the machine that go with it.
func links(l layout.Layout) error {
	wanted := map[string]string{
		l.Kubectl():                      l.Binary("kubectl"),
		filepath.Join(l.Plugins(), IPAM): l.Binary("ipam"),
	}
	for _, name := range host.Plugins() {
		wanted[filepath.Join(l.Plugins(), name)] = filepath.Join(host.PluginFolder(), name)
	}
	if err := os.MkdirAll(l.Plugins(), 0o755); err != nil { // #nosec G301 -- holds nothing secret.
		return fmt.Errorf("linking programs: %w", err)
	}
	for path, target := range wanted {
		if present, err := os.Readlink(path); err == nil && present == target {
			continue
		}
		_ = os.Remove(path)
		if err := os.Symlink(target, path); err != nil {
			return fmt.Errorf("linking programs: %w", err)
		}
	}
	return nil
}
