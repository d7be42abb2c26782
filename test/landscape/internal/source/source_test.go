// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// entry is a folder, a file or a link of an archive, as its mode says.
type entry struct {
	name string
	mode fs.FileMode
}

func archiveOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	g := NewWithT(t)
	var out bytes.Buffer
	zipper := zip.NewWriter(&out)
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		header.SetMode(e.mode)
		file, err := zipper.CreateHeader(header)
		g.Expect(err).NotTo(HaveOccurred())
		if e.mode.IsRegular() {
			_, err = file.Write([]byte("content of " + e.name))
		} else if e.mode&fs.ModeSymlink != 0 {
			_, err = file.Write([]byte("go.mod"))
		}
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(zipper.Close()).To(Succeed())
	return out.Bytes()
}

func TestSourcesAreUnpackedAndReplaced(t *testing.T) {
	g := NewWithT(t)
	folder := filepath.Join(t.TempDir(), "provider-local")
	first := archiveOf(t, entry{"a/", fs.ModeDir | 0o755}, entry{"a/run", 0o755}, entry{"go.mod", 0o644}, entry{"link", fs.ModeSymlink | 0o777})
	in := func(name string) string { return filepath.Join(folder, name) }
	g.Expect(Unpacked(folder)).To(BeFalse())
	g.Expect(unpack(first, folder)).To(ContainElements(folder, in(stamp), in("a"), in("a/run"), in("go.mod"), in("link")))
	g.Expect(Unpacked(folder)).To(BeTrue())
	g.Expect(os.ReadFile(filepath.Join(folder, "a", "run"))).To(BeEquivalentTo("content of a/run"))
	g.Expect(os.ReadFile(filepath.Join(folder, "link"))).To(BeEquivalentTo("content of go.mod"))
	info, err := os.Stat(filepath.Join(folder, "a", "run"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(BeEquivalentTo(0o755))

	// What is built there stays, and an edit too while the program is the same.
	g.Expect(os.MkdirAll(filepath.Join(folder, "bin"), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(folder, "my.kubeconfig"), nil, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(folder, "go.mod"), []byte("edited"), 0o600)).To(Succeed())
	g.Expect(unpack(first, folder)).To(BeEmpty())
	g.Expect(os.ReadFile(filepath.Join(folder, "go.mod"))).To(BeEquivalentTo("edited"))

	g.Expect(unpack(archiveOf(t, entry{"go.mod", 0o644}), folder)).To(ConsistOf(folder, in(stamp), in("go.mod")))
	g.Expect(os.ReadFile(filepath.Join(folder, "go.mod"))).To(BeEquivalentTo("content of go.mod"))
	g.Expect(filepath.Join(folder, "bin")).To(BeADirectory())
	g.Expect(filepath.Join(folder, "my.kubeconfig")).To(BeARegularFile(), "what the user put there stays")
	g.Expect(filepath.Join(folder, "a")).NotTo(BeADirectory())
}

func TestAnInterruptedUnpackingBeginsAnew(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	whole := archiveOf(t, entry{"go.mod", 0o644})
	_, err := unpack(whole[:len(whole)/2], folder)
	g.Expect(err).To(HaveOccurred())
	// As the middle of replacing a former version leaves it.
	g.Expect(os.WriteFile(filepath.Join(folder, stamp), []byte("\ngo.mod\nformer"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(folder, "former"), nil, 0o600)).To(Succeed())
	g.Expect(unpack(whole, folder)).NotTo(BeEmpty())
	g.Expect(filepath.Join(folder, "go.mod")).To(BeARegularFile())
	g.Expect(filepath.Join(folder, "former")).NotTo(BeAnExistingFile())
}

func TestAFolderOfOthersIsRefused(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(folder, "theirs"), nil, 0o600)).To(Succeed())
	_, err := unpack(archiveOf(t), folder)
	g.Expect(err).To(MatchError(ContainSubstring("has files of others; choose another --folder")))
	g.Expect(filepath.Join(folder, "theirs")).To(BeARegularFile())
}

func TestNothingIsWrittenElsewhere(t *testing.T) {
	g := NewWithT(t)
	folder := filepath.Join(t.TempDir(), "provider-local")
	_, err := unpack(archiveOf(t, entry{"../outside", 0o644}), folder)
	g.Expect(err).To(HaveOccurred())
	g.Expect(filepath.Join(filepath.Dir(folder), "outside")).NotTo(BeAnExistingFile())
}

func TestThisProgramHasNone(t *testing.T) {
	NewWithT(t).Expect(Included()).To(BeFalse())
}
