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

func TestFind(t *testing.T) {
	g := NewWithT(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	inner := filepath.Join(root, "test", "landscape")
	g.Expect(os.MkdirAll(inner, 0o700)).To(Succeed())
	const module = "module github.com/gardener/gardener-extension-provider-local"
	g.Expect(os.WriteFile(filepath.Join(inner, "go.mod"), []byte(module+"/test/landscape\n"), 0o600)).To(Succeed())

	_, err = layout.Find(inner)
	g.Expect(err).To(MatchError(ContainSubstring("run it inside of a clone")))

	g.Expect(os.WriteFile(filepath.Join(root, "go.mod"), []byte(module+"\n\ngo 1.26\n"), 0o600)).To(Succeed())
	found, err := layout.Find(inner)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.Root).To(Equal(root))
	link := filepath.Join(t.TempDir(), "link")
	for target, start := range map[string]string{root: "test", inner: ""} {
		g.Expect(os.Symlink(target, link)).To(Succeed())
		g.Expect(layout.Find(filepath.Join(link, start))).To(Equal(found), "mounts are listed without the link")
		g.Expect(os.Remove(link)).To(Succeed())
	}
	g.Expect(found.Kubeconfig()).To(Equal(filepath.Join(root, ".landscape", "kubeconfig")))
}

func TestACloneInAFolderForEverybodyIsNotAnothers(t *testing.T) {
	g := NewWithT(t)
	shared := t.TempDir()
	clone := filepath.Join(shared, "clone")
	g.Expect(os.MkdirAll(clone, 0o755)).To(Succeed())
	for _, folder := range []string{shared, clone} {
		g.Expect(os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module github.com/gardener/gardener-extension-provider-local\n"), 0o600)).To(Succeed())
	}
	_, err := layout.Find(clone)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.Chmod(shared, 0o777|os.ModeSticky)).To(Succeed())
	_, err = layout.Find(clone)
	g.Expect(err).NotTo(HaveOccurred(), "it is one's own")
	_, err = layout.Find(shared)
	g.Expect(err).To(MatchError(ContainSubstring("may be another user's")))
	if os.Geteuid() != 0 {
		t.Skip("only root makes files of others")
	}
	g.Expect(os.Chown(clone, 65534, 65534)).To(Succeed())
	_, err = layout.Find(clone)
	g.Expect(err).To(MatchError(ContainSubstring("may be another user's")))
	t.Setenv("SUDO_UID", "65534")
	_, err = layout.Find(clone)
	g.Expect(err).NotTo(HaveOccurred(), "it is that of the user who called sudo")
}
