// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestChangeOf(t *testing.T) {
	deployed := map[string]string{
		gardenInstance: "1", seedInstance: "1", "charts/provider-local": "1", "charts/networking-calico": "1", "gardener-operator": "1", "gardenlet": "1",
	}
	for _, test := range []struct {
		name    string
		edit    []string
		changed []string
		want    change
	}{
		{name: "nothing for a file that changes nothing", edit: []string{"pkg/dns/dns.go"}},
		{name: "the extension for both instances", changed: []string{gardenInstance, seedInstance}, want: change{names: []string{gardenInstance, seedInstance}, module: "extension"}},
		{name: "the extension for its chart", changed: []string{"charts/provider-local"}, want: change{names: []string{"charts/provider-local"}, module: "extension"}},
		{name: "the extension for its values", edit: []string{"skaffold/extension/values.yaml"}, want: change{module: "extension"}},
		{name: "gardener-operator for its images", changed: []string{"gardener-operator"}, want: change{names: []string{"gardener-operator"}, module: "operator"}},
		{name: "gardener-operator for its chart in a checkout", edit: []string{"charts/gardener/operator/values.yaml"}, want: change{module: "operator"}},
		{name: "gardenlet alone for its images", changed: []string{"gardenlet"}, want: change{names: []string{"gardenlet"}, gardenlet: true}},
		{name: "gardenlet for its chart in a checkout", edit: []string{"charts/gardener/gardenlet/values.yaml"}, want: change{gardenlet: true}},
		{name: "gardenlet for the CloudProfile", edit: []string{"example/50-cloudprofile.yaml"}, want: change{gardenlet: true}},
		{name: "the module that requires all for several", edit: []string{"skaffold/operator/values.yaml", "skaffold/garden/values.yaml"}, changed: []string{gardenInstance},
			want: change{names: []string{gardenInstance}, module: "garden"}},
		{name: "the Garden's module for networking-calico", changed: []string{"charts/networking-calico"}, want: change{names: []string{"charts/networking-calico"}, module: "garden"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			built := map[string]string{}
			for name, reference := range deployed {
				built[name] = reference
			}
			for _, name := range test.changed {
				built[name] = "2"
			}
			NewWithT(t).Expect(changeOf(test.edit, deployed, built)).To(Equal(test.want))
		})
	}
}

func TestWhatWasBuiltIsNotDeployedUntilSkaffoldHasDeployedIt(t *testing.T) {
	g := NewWithT(t)
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}}
	g.Expect(os.MkdirAll(filepath.Dir(l.artifacts()), 0o700)).To(Succeed())
	g.Expect(os.MkdirAll(filepath.Dir(l.imageValues("gardenlet")), 0o700)).To(Succeed())
	build := func(tag string) {
		g.Expect(os.WriteFile(l.artifacts(), []byte(`{"builds":[{"imageName":"x","tag":"`+tag+`"}]}`), 0o600)).To(Succeed())
		g.Expect(os.WriteFile(l.imageValues("gardenlet"), []byte(tag), 0o600)).To(Succeed())
	}
	build("1")
	g.Expect(l.deployed()).To(BeEmpty())
	g.Expect(l.saveDeployed(runtimeCluster)).To(Succeed())
	g.Expect(l.saveDeployed(virtualGarden)).To(Succeed())
	build("2")
	g.Expect(l.deployed()).To(HaveKeyWithValue("x", "1"))
	g.Expect(l.saveDeployed(runtimeCluster)).To(Succeed())
	g.Expect(l.deployed()).To(And(HaveKeyWithValue("x", "2"), HaveKeyWithValue("gardenlet", "1")))
	g.Expect(l.saveDeployed(virtualGarden)).To(Succeed())
	g.Expect(l.deployed()).To(HaveKeyWithValue("gardenlet", "2"))
}

func TestWatchSourcesSendsWhatAnEditWrote(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	for _, folder := range []string{"pkg/dns", ".git", "test/e2e", "docs"} {
		g.Expect(os.MkdirAll(filepath.Join(root, folder), 0o700)).To(Succeed())
	}
	edits, err := watchSources(t.Context(), []string{root})
	g.Expect(err).NotTo(HaveOccurred())
	write := func(name string) string {
		path := filepath.Join(root, name)
		g.Expect(os.WriteFile(path, []byte(name), 0o600)).To(Succeed())
		return path
	}
	for _, other := range []string{"pkg/dns/dns_test.go", ".git/index", "test/e2e/x.go", "docs/x.md", "pkg/dns/.dns.go.swp"} {
		write(other)
	}
	one, two := write("pkg/dns/dns.go"), write("pkg/dns/zone.go")
	g.Eventually(edits).WithTimeout(20 * time.Second).Should(Receive(Equal([]string{one, two})))

	folder := filepath.Join(root, "pkg", "new")
	g.Expect(os.Mkdir(folder, 0o700)).To(Succeed())
	g.Eventually(edits).WithTimeout(20 * time.Second).Should(Receive(Equal([]string{folder})))
	three := write("pkg/new/new.go")
	g.Eventually(edits).WithTimeout(20 * time.Second).Should(Receive(Equal([]string{three})))
}

// newDev is a landscape in kind with a Skaffold that writes its command to standard output, and doesn't build while there is a file named broken.
func newDev(t *testing.T) (Landscape, *gbytes.Buffer) {
	t.Helper()
	g := NewWithT(t)
	out := gbytes.NewBuffer()
	l := Landscape{Layout: layout.Layout{Root: t.TempDir(), Kind: "single"}, Out: out, Now: time.Now}
	skaffold := `#!/bin/sh
echo "$@" >>commands
case $1 in
build)
  if [ -e broken ]; then echo 'pkg/dns/dns.go:1:1: undefined: nonsense'; exit 1; fi
  echo '{"builds":[{"imageName":"` + gardenInstance + `","tag":"r/a@sha256:'$(wc -c <commands)'"}]}' >"$3"
esac
`
	for path, content := range map[string]string{
		l.Layout.Binary("skaffold"):                      skaffold,
		l.Layout.Module("modules", "programs", "go.mod"): "module github.com/gardener/gardener\n",
		l.artifacts():                          "",
		l.deployedFile(runtimeCluster):         `{"` + gardenInstance + `":"r/a@sha256:0"}`,
		l.Layout.State("logs", "skaffold.log"): "",
		filepath.Join(l.Layout.Root, "broken"): "",
	} {
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(content), 0o700)).To(Succeed())
	}
	return l, out
}

func TestDevReportsWhatDoesNotBuildAndDeploysTheNextEdit(t *testing.T) {
	g := NewWithT(t)
	l, out := newDev(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() { done <- l.Dev(ctx) }()
	g.Eventually(out).WithTimeout(20 * time.Second).Should(gbytes.Say(`watching `))
	g.Eventually(out).WithTimeout(20 * time.Second).Should(gbytes.Say(`(?s)FAILED.*pkg/dns/dns.go:1:1: undefined: nonsense`))

	g.Expect(os.Remove(filepath.Join(l.Layout.Root, "broken"))).To(Succeed())
	g.Eventually(out).WithTimeout(20 * time.Second).Should(gbytes.Say(`build .* what changed is built and pushed \(` + gardenInstance + `\)`))
	g.Eventually(out).WithTimeout(20 * time.Second).Should(gbytes.Say(`deploy .* Skaffold deployed it \(extension, done\)`))
	commands, err := os.ReadFile(filepath.Join(l.Layout.Root, "commands"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(commands)).To(MatchRegexp(`(?s)^build .*\nbuild .*\ndeploy --module extension --build-artifacts `))
	cancel()
	g.Eventually(done).WithTimeout(20 * time.Second).Should(Receive(BeNil()))
}

func TestDevNeedsALandscape(t *testing.T) {
	l := Landscape{Layout: layout.Layout{Root: t.TempDir(), Kind: "single"}}
	NewWithT(t).Expect(l.Dev(t.Context())).To(MatchError(ContainSubstring("run make up first")))
}
