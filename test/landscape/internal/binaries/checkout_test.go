// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package binaries_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/binaries"
)

// newCheckout is a clone with two programs, one of which uses a package of the clone.
func newCheckout(t *testing.T) (folder string, write func(name, content string)) {
	t.Helper()
	folder = t.TempDir()
	write = func(name, content string) {
		t.Helper()
		path := filepath.Join(folder, name)
		NewWithT(t).Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		NewWithT(t).Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}
	write("go.mod", "module example.com/gardener\n\ngo 1.26.0\n")
	write("VERSION", "v1.2.3-dev\n")
	write("pkg/text/text.go", "package text\n\nconst Text = \"one\"\n\nvar Version string\n")
	write("cmd/a/main.go", "package main\n\nimport \"example.com/gardener/pkg/text\"\n\nfunc main() { print(text.Text, text.Version) }\n")
	write("cmd/b/main.go", "package main\n\nfunc main() {}\n")
	return folder, write
}

func TestACheckoutBuildsWhatAnEditChanges(t *testing.T) {
	g := NewWithT(t)
	folder, write := newCheckout(t)
	out := t.TempDir()
	programs := []binaries.Program{
		{Name: "a", Package: "example.com/gardener/cmd/a", Versions: []string{"example.com/gardener/pkg/text.Version"}},
		{Name: "b", Package: "example.com/gardener/cmd/b"},
	}
	build := func() ([]string, error) {
		return binaries.Checkout{Folder: folder, Out: out}.Build(t.Context(), programs)
	}
	g.Expect(build()).To(ConsistOf("a", "b"))
	before, err := os.Stat(filepath.Join(out, "a"))
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(build()).To(BeEmpty())
	after, err := os.Stat(filepath.Join(out, "a"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after.ModTime()).To(Equal(before.ModTime()))

	write("pkg/text/text.go", "package text\n\nconst Text = \"another\"\n\nvar Version string\n")
	g.Expect(build()).To(ConsistOf("a"))
	printed, err := exec.CommandContext(t.Context(), filepath.Join(out, "a")).CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(printed)).To(Equal("anotherv1.2.3-dev"))

	write("pkg/text/text.go", "package text\n\nconst Text = \"another\"\n\nvar Version string // explained\n")
	g.Expect(build()).To(BeEmpty(), "a comment is no change of a program")

	write("pkg/text/text.go", "package text\n\nconst Text = nonsense\n")
	_, err = build()
	g.Expect(err).To(MatchError(And(ContainSubstring(folder), ContainSubstring("undefined: nonsense"))))
	g.Expect(filepath.Join(out, "a")).To(BeAnExistingFile())
}

func TestOpenCheckout(t *testing.T) {
	folder, _ := newCheckout(t)
	for _, test := range []struct{ name, folder, module, err string }{
		{name: "accepts a clone of the module", folder: folder, module: "example.com/gardener"},
		{name: "refuses another module", folder: folder, module: "example.com/other", err: `is no clone of https://example.com/other: its go.mod is that of module "example.com/gardener"`},
		{name: "refuses a folder without a module", folder: t.TempDir(), module: "example.com/gardener", err: "go.mod: no such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := binaries.OpenCheckout(test.folder, test.module)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(test.folder))
		})
	}
}
