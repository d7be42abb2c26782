// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package debian_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/debian"
)

// install puts a script in the place of mmdebstrap. Its last argument is the archive to make.
func install(t *testing.T, script string) {
	t.Helper()
	bin := t.TempDir()
	NewWithT(t).Expect(os.WriteFile(filepath.Join(bin, "mmdebstrap"), []byte("#!/bin/sh\nfor target; do :; done\n"+script), 0o700)).To(Succeed())
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

func TestKeyDependsOnWhatTheTreeIsMadeOf(t *testing.T) {
	tree := debian.Tree{Recipe: "1", Variant: "extract", Packages: []string{"a"}, Options: []string{"--x"}}
	for name, change := range map[string]func(*debian.Tree){
		"the recipe":   func(t *debian.Tree) { t.Recipe = "2" },
		"the variant":  func(t *debian.Tree) { t.Variant = "minbase" },
		"the packages": func(t *debian.Tree) { t.Packages = []string{"a", "b"} },
		"the options":  func(t *debian.Tree) { t.Options = nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			other := tree
			g.Expect(other.Key()).To(Equal(tree.Key()))
			change(&other)
			g.Expect(other.Key()).NotTo(Equal(tree.Key()))
		})
	}
}

func TestALayerIsMadeOnce(t *testing.T) {
	g := NewWithT(t)
	folder := filepath.Join(t.TempDir(), "new", "folder")
	tree := debian.Tree{Variant: "extract", Packages: []string{"a"}}
	install(t, `echo "$SOURCE_DATE_EPOCH $*" | sed "s, [^ ]*$,," >"$target"`)
	reports := 0
	report := func(string, ...any) { reports++ }
	first, err := debian.Layer(t.Context(), folder, tree, report)
	g.Expect(err).NotTo(HaveOccurred())
	content, err := first.Uncompressed()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = content.Close() })
	g.Expect(io.ReadAll(content)).To(BeEquivalentTo("0 --keyring=/usr/share/keyrings/debian-archive-keyring.gpg --quiet --mode=root --variant=extract --include=a --format=tar bookworm\n"))
	g.Expect(reports).To(Equal(1))

	second, err := debian.Layer(t.Context(), folder, tree, report)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).To(Equal(first))
	g.Expect(reports).To(Equal(1))
}

func TestAFailureLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	install(t, "echo half >\"$target\"\necho E: no such package\nexit 1\n")
	_, err := debian.Layer(t.Context(), folder, debian.Tree{Packages: []string{"a"}}, t.Logf)
	g.Expect(err).To(MatchError(ContainSubstring("no such package")))
	g.Expect(os.ReadDir(folder)).To(BeEmpty())
}
