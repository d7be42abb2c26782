// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestTheTargetIsWhatThereIs(t *testing.T) {
	for _, test := range []struct {
		name       string
		bare       bool
		kind       string
		target     layout.Target
		kubeconfig string
		err        string
	}{
		{name: "a bare landscape", bare: true, kubeconfig: ".landscape/kubeconfig"},
		{name: "a bare landscape that is asked for", bare: true, kind: "single", target: layout.Bare, kubeconfig: ".landscape/kubeconfig"},
		{name: "a kind cluster", kind: "zones", kubeconfig: ".kind/kubeconfig"},
		{name: "a kind cluster that is asked for", bare: true, kind: "single", target: layout.Kind, kubeconfig: ".kind/kubeconfig"},
		{name: "both", bare: true, kind: "single", err: "TARGET=bare or TARGET=kind"},
		{name: "neither", err: "`make up`, or in Docker with `make kind-up gardener-up`"},
		{name: "no kind cluster", bare: true, target: layout.Kind, err: "create one with `make kind-up`"},
		{name: "no bare landscape", kind: "single", target: layout.Bare, err: "bring one up with `make up`"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			network, err := layout.ParseNetwork("172.30.0.0/16")
			g.Expect(err).NotTo(HaveOccurred())
			l := layout.Layout{Root: t.TempDir(), Network: network}
			if test.bare {
				g.Expect(os.MkdirAll(l.State(), 0o700)).To(Succeed())
			}
			if test.kind != "" {
				g.Expect(os.MkdirAll(filepath.Join(l.Root, ".kind"), 0o700)).To(Succeed())
				g.Expect(os.WriteFile(filepath.Join(l.Root, ".kind", "cluster"), []byte(test.kind+"\n"), 0o600)).To(Succeed())
			}
			found, err := l.On(test.target)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.Kubeconfig()).To(Equal(filepath.Join(l.Root, test.kubeconfig)))
			if found.Kind != "" {
				g.Expect(found.Kind).To(Equal(test.kind))
				g.Expect(found.Network.IsDefault()).To(BeTrue(), "that of another landscape is not kind's")
				g.Expect(found.HostDNS()).To(Equal("172.18.255.53"))
			}
		})
	}
}

func TestAClusterWithoutIPv4HasOtherAddresses(t *testing.T) {
	g := NewWithT(t)
	l := layout.Layout{Kind: "ipv6"}
	g.Expect(l.VirtualGarden()).To(Equal("fd00:ff::3"))
	g.Expect(l.HostDNS()).To(Equal("fd00:ff::53"))
	g.Expect(layout.Layout{Kind: "dual-stack"}.HostDNS()).To(Equal("172.18.255.53"))
}
