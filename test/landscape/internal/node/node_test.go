// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/golden"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/host"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
)

func TestRender(t *testing.T) {
	for _, name := range []string{"audit-policy.yaml", "containerd.toml", "hosts.toml", "10-landscape.conflist", "kubelet.yaml", "kube-proxy.yaml", "resolv.conf", "Corefile"} {
		t.Run(name, func(t *testing.T) {
			content, err := node.Render(name, layout.Layout{Root: "/clone"})
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			golden.Check(t, name, content)
		})
	}
}

func TestAnotherNetworkChangesAddressesAndNothingElse(t *testing.T) {
	network, err := layout.ParseNetwork("172.30.0.0/16")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{"10-landscape.conflist", "kubelet.yaml", "kube-proxy.yaml", "resolv.conf", "Corefile"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			content, err := node.Render(name, layout.Layout{Root: "/clone", Network: network})
			g.Expect(err).NotTo(HaveOccurred())
			usual, err := os.ReadFile(filepath.Join("testdata", name))
			g.Expect(err).NotTo(HaveOccurred())
			expected := strings.NewReplacer("172.18.", "172.30.", "10.244.0.0/16", "172.30.64.0/18", "10.96.0.", "172.30.32.").Replace(string(usual))
			g.Expect(string(content)).To(Equal(expected))
			g.Expect(string(content)).NotTo(Equal(string(usual)))
		})
	}
}

func TestTheProgramsKnowTheNetwork(t *testing.T) {
	g := NewWithT(t)
	network, err := layout.ParseNetwork("172.30.0.0/16")
	g.Expect(err).NotTo(HaveOccurred())
	var all []string
	for _, c := range node.Components(layout.Layout{Root: "/clone", Network: network}) {
		all = append(all, c.Command...)
	}
	g.Expect(all).To(ContainElements("172.30.255.1:5001", "--bind-address=172.30.0.2", "--service-cluster-ip-range=172.30.32.0/20",
		"--cluster-cidr=172.30.64.0/18", "--node-ip=172.30.0.2", "172.30.0.2:10261"))
	g.Expect(strings.Join(all, " ")).NotTo(MatchRegexp(`172\.18\.|10\.96\.|10\.244\.`))
}

func TestAComponentIsReadyOnceItsSocketTakesConnections(t *testing.T) {
	g := NewWithT(t)
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "socket")} {
		listener, err := net.Listen(network, address)
		g.Expect(err).NotTo(HaveOccurred())
		component := node.Component{Health: network + "://" + listener.Addr().String()}
		g.Expect(component.Ready(t.Context())).To(Succeed())
		g.Expect(listener.Close()).To(Succeed())
		g.Expect(component.Ready(t.Context())).NotTo(Succeed())
	}
}

func TestWriteConfigLeavesAFileAloneThatIsRight(t *testing.T) {
	g := NewWithT(t)
	l := layout.Layout{Root: t.TempDir()}
	path, err := node.WriteConfig(l, "kube-proxy.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	long := time.Unix(1000, 0)
	g.Expect(os.Chtimes(path, long, long)).To(Succeed())
	_, err = node.WriteConfig(l, "kube-proxy.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	info, err := os.Stat(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.ModTime()).To(Equal(long), "kube-proxy ends when its file is written to")
}

func TestComponents(t *testing.T) {
	g := NewWithT(t)
	var names []string
	for _, c := range node.Components(layout.Layout{Root: "/clone"}) {
		g.Expect(c.Env).To(ContainElement(MatchRegexp(`^GOMAXPROCS=[1-9]`)), c.Name)
		g.Expect(names).NotTo(ContainElement(c.Name))
		names = append(names, c.Name)
	}
	for _, order := range [][2]string{
		{node.Registry, node.Containerd}, {node.Etcd, node.APIServer}, {node.Containerd, node.Kubelet}, {node.APIServer, node.Kubelet},
	} {
		g.Expect(slices.Index(names, order[0])).To(BeNumerically("<", slices.Index(names, order[1])), "%s is needed by %s", order[0], order[1])
	}
}

func TestCertificatesCanBeMadeTwice(t *testing.T) {
	g := NewWithT(t)
	l := layout.Layout{Root: t.TempDir()}
	g.Expect(node.Certificates(l, time.Now)).To(Succeed())
	first, err := os.ReadFile(l.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(node.Certificates(l, time.Now)).To(Succeed())
	g.Expect(os.ReadFile(l.Kubeconfig())).To(Equal(first))
	g.Expect(os.Readlink(l.Kubectl())).To(Equal(l.Binary("kubectl")))
	g.Expect(os.Readlink(l.Plugins() + "/" + node.IPAM)).To(Equal(l.Binary("ipam")))
	g.Expect(os.Readlink(l.Plugins()+"/bridge")).To(Equal(filepath.Join(host.PluginFolder(), "bridge")), "where the machine has it, if it does yet")
}
