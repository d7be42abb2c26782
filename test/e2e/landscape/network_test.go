// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestReadNetwork(t *testing.T) {
	usual := Network{Pods: "10.244.0.0/16", Services: "10.96.0.0/16", ShootNodes: "10.250.0.0/16", start: "172.18."}
	for _, test := range []struct {
		name, content string
		want          Network
		host          string
		err           string
	}{
		{name: "is the default without a file", want: usual, host: "172.18.255.1"},
		{name: "is the default if that was chosen", content: "172.18.0.0/16\n", want: usual, host: "172.18.255.1"},
		{
			name: "is another one", content: "10.77.0.0/16\n", host: "10.77.255.1",
			want: Network{Pods: "10.77.64.0/18", Services: "10.77.32.0/20", ShootNodes: "10.77.128.0/18", start: "10.77."},
		},
		{name: "is nothing else", content: "10.77.0.0/24\n", err: "does not end with .0.0/16"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			path := filepath.Join(t.TempDir(), "network")
			if test.content != "" {
				g.Expect(os.WriteFile(path, []byte(test.content), 0o600)).To(Succeed())
			}
			network, err := readNetwork(path)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(network).To(Equal(test.want))
			g.Expect(network.Translate("172.18.255.1")).To(Equal(test.host))
			g.Expect(network.Translate("172.18.255.128/25")).To(HaveSuffix(".255.128/25"))
		})
	}
}

func TestCommandsAreForTheKindCluster(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("KUBECONFIG", "/clone/.landscape/kubeconfig")
	g.Expect(OnKind()).To(BeFalse())
	const command = "PATH=$PWD/.landscape/bin:$PATH KUBECONFIG=$PWD/.landscape/kubeconfig bin/landscape/landscape kubeconfig local"
	g.Expect(CurrentNetwork().Translate(command)).To(Equal(command))

	t.Setenv("KUBECONFIG", "/clone/.kind/kubeconfig")
	g.Expect(OnKind()).To(BeTrue())
	g.Expect(CurrentNetwork().Translate(command)).To(Equal("PATH=$PWD/bin/landscape:$PATH KUBECONFIG=$PWD/.kind/kubeconfig bin/landscape/landscape kubeconfig local"))
	g.Expect(HostDNS()).To(Equal("172.18.255.53:53"))
	config, err := os.ReadFile("../../../skaffold/kind/cluster.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(config)).To(And(ContainSubstring("podSubnet: "+CurrentNetwork().Pods+"\n"), ContainSubstring("serviceSubnet: "+CurrentNetwork().Services+"\n")))
}

func TestExamplesAreForTheNetwork(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("../../../example/91-shoot.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	network := Network{ShootNodes: "10.77.128.0/18", start: "10.77."}
	g.Expect(network.Translate(string(content))).To(And(ContainSubstring("    nodes: 10.77.128.0/18\n"), Not(ContainSubstring("10.250."))))
}
