// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	. "github.com/onsi/gomega"
)

func TestImagesAreReadFromAllSources(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	image, err := random.Image(64, 1)
	g.Expect(err).NotTo(HaveOccurred())
	other, err := random.Image(64, 1)
	g.Expect(err).NotTo(HaveOccurred())
	same := func(source string) {
		t.Helper()
		read, err := Read(t.Context(), source)
		g.Expect(err).NotTo(HaveOccurred())
		want, err := image.ConfigName()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read.ConfigName()).To(Equal(want), source)
	}

	archive := filepath.Join(folder, "image.tar")
	g.Expect(tarball.WriteToFile(archive, name.MustParseReference("example.com/foo:v1"), image)).To(Succeed())
	same(archive)

	single := filepath.Join(folder, "single")
	_, err = layout.Write(single, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image}))
	g.Expect(err).NotTo(HaveOccurred())
	same(single)

	// As an index of an index, with another platform first.
	platform := here()
	inner := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	several := filepath.Join(folder, "several")
	_, err = layout.Write(several, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: inner}))
	g.Expect(err).NotTo(HaveOccurred())
	same(several)

	server := httptest.NewServer(registry.New())
	defer server.Close()
	reference := strings.TrimPrefix(server.URL, "http://") + "/foo/bar:v1"
	for _, pushed := range []bool{true, false} {
		digest, isNew, err := PushTag(t.Context(), reference, image)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(isNew).To(Equal(pushed))
		g.Expect(image.Digest()).To(HaveField("String()", digest))
	}
	same(reference)
	for range 2 {
		g.Expect(DeleteTag(t.Context(), reference)).To(Succeed(), "also when it is gone")
	}
	_, err = Read(t.Context(), reference)
	g.Expect(err).To(MatchError(ContainSubstring("pulling image " + reference)))
}

func TestSourcesThatAreNoImage(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	text := filepath.Join(folder, "text")
	g.Expect(os.WriteFile(text, []byte("text"), 0o600)).To(Succeed())
	foreign := filepath.Join(folder, "foreign")
	image, err := random.Image(64, 1)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = layout.Write(foreign, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}}))
	g.Expect(err).NotTo(HaveOccurred())
	for source, want := range map[string]string{
		"./no-such-file": "no such file",
		text:             "reading image " + text,
		folder:           "reading the image layout " + folder,
		foreign:          "it has no image for linux/",
		"Not A Name":     "is no file, no folder and no reference of an image",
	} {
		_, err := Read(t.Context(), source)
		g.Expect(err).To(MatchError(ContainSubstring(want)), source)
	}
}

func TestAnImageOfAProgramStartsIt(t *testing.T) {
	g := NewWithT(t)
	program := filepath.Join(t.TempDir(), "foo")
	g.Expect(os.WriteFile(program, []byte("program"), 0o600)).To(Succeed())
	image, err := FromProgram(t.Context(), program)
	g.Expect(err).NotTo(HaveOccurred())
	config, err := image.ConfigFile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Config.Entrypoint).To(Equal([]string{"/foo"}))
	g.Expect(config.Config.User).To(Equal("65532"))
}
