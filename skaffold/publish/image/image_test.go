// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/image"
	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
)

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	NewWithT(t).Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
	return file
}

func digestOf(t *testing.T, spec image.Spec) v1.Hash {
	t.Helper()
	g := NewWithT(t)
	img, err := image.Build(spec)
	g.Expect(err).NotTo(HaveOccurred())
	digest, err := img.Digest()
	g.Expect(err).NotTo(HaveOccurred())
	return digest
}

func TestTheSameFilesGiveTheSameDigest(t *testing.T) {
	g := NewWithT(t)
	one, two := write(t, "one", []byte("one")), write(t, "two", []byte("two"))
	spec := image.Spec{
		Files:  []image.File{{Source: one, Destination: "/bin/one"}, {Source: two, Destination: "/etc/two"}},
		Labels: map[string]string{"a": "1", "b": "2", "c": "3"},
	}
	first := digestOf(t, spec)

	g.Expect(os.Chtimes(one, time.Unix(1, 0), time.Unix(1, 0))).To(Succeed())
	g.Expect(os.Chmod(two, 0o400)).To(Succeed())
	spec.Files[0], spec.Files[1] = spec.Files[1], spec.Files[0]
	g.Expect(digestOf(t, spec)).To(Equal(first), "neither time, order nor permissions of the sources count")

	g.Expect(os.WriteFile(one, []byte("One"), 0o600)).To(Succeed())
	g.Expect(digestOf(t, spec)).NotTo(Equal(first))
}

func TestAnImageIsWhatItsSpecSays(t *testing.T) {
	g := NewWithT(t)
	img, err := image.Build(image.Spec{
		Files:        []image.File{{Source: write(t, "x", []byte("content")), Destination: "/usr/bin/x"}, {Source: write(t, "y", []byte("y")), Destination: "/usr/y"}},
		Entrypoint:   []string{"/usr/bin/x"},
		Labels:       map[string]string{"l": "m"},
		Architecture: "arm64",
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(img.MediaType()).To(Equal(types.OCIManifestSchema1))

	config, err := img.ConfigFile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.OS).To(Equal("linux"))
	g.Expect(config.Architecture).To(Equal("arm64"))
	g.Expect(config.Created.IsZero()).To(BeTrue())
	g.Expect(config.Config).To(Equal(v1.Config{
		Entrypoint: []string{"/usr/bin/x"}, User: "65532:65532", Labels: map[string]string{"l": "m"},
	}))

	found := map[string]string{}
	content := mutate.Extract(img)
	for files := tar.NewReader(content); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		g.Expect(err).NotTo(HaveOccurred())
		data, err := io.ReadAll(files)
		g.Expect(err).NotTo(HaveOccurred())
		found[header.Name] = header.FileInfo().Mode().String() + " " + string(data)
		g.Expect(header.Uid).To(BeZero())
	}
	g.Expect(content.Close()).To(Succeed())
	g.Expect(found).To(Equal(map[string]string{
		"usr":       "drwxr-xr-x ",
		"usr/bin":   "drwxr-xr-x ",
		"usr/bin/x": "-rwxr-xr-x content",
		"usr/y":     "-rwxr-xr-x y",
	}))
}

func TestAnImageWithoutAUserRunsAsNobody(t *testing.T) {
	g := NewWithT(t)
	img, err := image.Build(image.Spec{Files: []image.File{{Source: write(t, "x", nil), Destination: "/x"}}})
	g.Expect(err).NotTo(HaveOccurred())
	config, err := img.ConfigFile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Config.User).To(Equal("65532:65532"))
	g.Expect(config.Architecture).To(Equal(runtime.GOARCH))
}

func TestSpecsThatMakeNoImageAreRefused(t *testing.T) {
	file := write(t, "x", []byte("x"))
	for name, tc := range map[string]struct {
		spec image.Spec
		says string
	}{
		"nothing in it":            {image.Spec{}, "at least"},
		"a relative destination":   {image.Spec{Files: []image.File{{Source: file, Destination: "x"}}}, "absolute"},
		"a destination with ..":    {image.Spec{Files: []image.File{{Source: file, Destination: "/a/../../x"}}}, "clean"},
		"the root as destination":  {image.Spec{Files: []image.File{{Source: file, Destination: "/"}}}, "absolute"},
		"one destination twice":    {image.Spec{Files: []image.File{{Source: file, Destination: "/x"}, {Source: file, Destination: "/x"}}}, "same destination"},
		"a source that is missing": {image.Spec{Files: []image.File{{Source: file + "y", Destination: "/x"}}}, "no such file"},
		"a folder as source":       {image.Spec{Files: []image.File{{Source: filepath.Dir(file), Destination: "/x"}}}, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := image.Build(tc.spec)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.says)))
		})
	}
}

func anonymous() oci.Options {
	return oci.Options{Credentials: authn.NewMultiKeychain()}
}

func TestWhatIsPushedCanBePulled(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	ref := strings.TrimPrefix(server.URL, "http://") + "/a/b:c"

	spec := image.Spec{Files: []image.File{{Source: write(t, "x", bytes.Repeat([]byte("content "), 300_000)), Destination: "/x"}}}
	var pinned []string
	for range 2 {
		img, err := image.Build(spec)
		g.Expect(err).NotTo(HaveOccurred())
		one, err := image.Push(t.Context(), ref, img, anonymous())
		g.Expect(err).NotTo(HaveOccurred())
		pinned = append(pinned, one)
	}
	g.Expect(pinned[0]).To(Equal(pinned[1]))

	parsed, err := name.ParseReference(pinned[0])
	g.Expect(err).NotTo(HaveOccurred())
	pulled, err := remote.Image(parsed)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(validate.Image(pulled)).To(Succeed())
}

func TestALargeFileIsNotHeldInMemory(t *testing.T) {
	g := NewWithT(t)
	const size = 256 << 20
	file := write(t, "large", nil)
	g.Expect(os.Truncate(file, size)).To(Succeed())

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	img, err := image.Build(image.Spec{Files: []image.File{{Source: file, Destination: "/large"}}})
	g.Expect(err).NotTo(HaveOccurred())
	layers, err := img.Layers()
	g.Expect(err).NotTo(HaveOccurred())
	content, err := layers[0].Compressed()
	g.Expect(err).NotTo(HaveOccurred())
	_, err = io.Copy(io.Discard, content)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(content.Close()).To(Succeed())
	runtime.ReadMemStats(&after)

	g.Expect(after.TotalAlloc - before.TotalAlloc).To(BeNumerically("<", size/8))
}

func TestALayerThatIsClosedEarlyStopsReading(t *testing.T) {
	g := NewWithT(t)
	file := write(t, "large", nil)
	g.Expect(os.Truncate(file, 16<<20)).To(Succeed())
	img, err := image.Build(image.Spec{Files: []image.File{{Source: file, Destination: "/large"}}})
	g.Expect(err).NotTo(HaveOccurred())
	layers, err := img.Layers()
	g.Expect(err).NotTo(HaveOccurred())

	before := runtime.NumGoroutine()
	for range 20 {
		content, err := layers[0].Uncompressed()
		g.Expect(err).NotTo(HaveOccurred())
		_, err = io.ReadFull(content, make([]byte, 100))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(content.Close()).To(Succeed())
	}
	g.Eventually(runtime.NumGoroutine).Should(BeNumerically("<=", before+1), "each reader's goroutine ends soon after its close")
}
