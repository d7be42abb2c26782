// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	. "github.com/onsi/gomega"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
	"oras.land/oras-go/v2"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/snapshot"
)

// write writes files below a folder, each with its folders.
func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	g := NewWithT(t)
	for name, content := range files {
		path := filepath.Join(folder, name)
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}
}

// blobs counts the files of a store's blobs.
func blobs(t *testing.T, store string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "blobs", "sha256", "*"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return len(files)
}

func TestPartsOfOneFolderAreRestoredAtTheSameTime(t *testing.T) {
	g := NewWithT(t)
	from, to := t.TempDir(), t.TempDir()
	var parts []snapshot.Part
	for i := range 50 {
		// The second path is in a folder that both have, too.
		for _, name := range []string{"a", "b"} {
			first, second := fmt.Sprintf("first/%d/%s", i, name), fmt.Sprintf("second/%d/%s", i, name)
			write(t, from, map[string]string{first: first, second: second})
			parts = append(parts, snapshot.Part{Root: "state", Paths: []string{first, second}})
		}
	}
	store, tag, err := snapshot.Open(t.Context(), t.TempDir(), "one")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = snapshot.Save(t.Context(), store, tag, map[string]string{"state": from}, parts, nil)
	g.Expect(err).NotTo(HaveOccurred())
	manifest, err := snapshot.Manifest(t.Context(), store, tag)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(snapshot.Restore(t.Context(), store, manifest, map[string]string{"state": to}, "state")).To(Succeed())
	g.Expect(os.ReadFile(filepath.Join(to, "second/49/b"))).To(BeEquivalentTo("second/49/b"))
}

func TestWhatIsRestoredIsWhatWasSaved(t *testing.T) {
	g := NewWithT(t)
	from, to, folder := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, from, map[string]string{"etcd/db": "data", "pods/a/file": "a", "pods/b/file": "b", "run/pid": "1"})
	g.Expect(os.Symlink("/nowhere", filepath.Join(from, "pods/a/link"))).To(Succeed())
	g.Expect(os.Link(filepath.Join(from, "pods/a/file"), filepath.Join(from, "pods/a/same"))).To(Succeed())
	g.Expect(os.Chmod(filepath.Join(from, "pods/a/file"), 0o751|os.ModeSetuid)).To(Succeed())
	g.Expect(unix.Setxattr(filepath.Join(from, "etcd/db"), "user.test", []byte("value"), 0)).To(Succeed())
	hole, err := os.Create(filepath.Join(from, "etcd/hole"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hole.Truncate(1 << 30)).To(Succeed())
	g.Expect(hole.Close()).To(Succeed())
	// Sockets are of whoever listens on them.
	socket, err := net.Listen("unix", filepath.Join(from, "etcd", "socket"))
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = socket.Close() }()
	if os.Geteuid() == 0 {
		// This is how overlayfs marks what was deleted.
		g.Expect(unix.Mknod(filepath.Join(from, "pods/b/deleted"), unix.S_IFCHR, 0)).To(Succeed())
		g.Expect(unix.Setxattr(filepath.Join(from, "pods/b"), "trusted.overlay.opaque", []byte("y"), 0)).To(Succeed())
		g.Expect(os.Chown(filepath.Join(from, "pods/b/file"), 65532, 65531)).To(Succeed())
		g.Expect(os.Chown(filepath.Join(from, "etcd/db"), 65532, 65531)).To(Succeed())
	}

	parts, err := snapshot.Split("state", from, "pods/*")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parts).To(HaveExactElements(snapshot.Part{Root: "state", Paths: []string{"pods/a"}}, snapshot.Part{Root: "state", Paths: []string{"pods/b"}}))
	parts = append(parts, snapshot.Part{Root: "state", Paths: []string{"etcd", "pods"}, Exclude: []string{"pods/a", "pods/b"}})
	store, tag, err := snapshot.Open(t.Context(), folder, "first")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = snapshot.Save(t.Context(), store, tag, map[string]string{"state": from}, parts, map[string]string{"key": "value"})
	g.Expect(err).NotTo(HaveOccurred())

	manifest, err := snapshot.Manifest(t.Context(), store, "first")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manifest.Annotations).To(HaveKeyWithValue("key", "value"))
	g.Expect(manifest.Layers).To(HaveLen(3))
	g.Expect(snapshot.Size(manifest)).To(BeNumerically("<", 1<<20), "holes take no room")
	g.Expect(snapshot.Restore(t.Context(), store, manifest, map[string]string{"state": to}, "state")).To(Succeed())

	g.Expect(filepath.Join(to, "run")).NotTo(BeAnExistingFile())
	g.Expect(filepath.Join(to, "etcd/socket")).NotTo(BeAnExistingFile())
	g.Expect(os.ReadFile(filepath.Join(to, "etcd/db"))).To(BeEquivalentTo("data"))
	g.Expect(os.Readlink(filepath.Join(to, "pods/a/link"))).To(Equal("/nowhere"))
	file, err := os.Stat(filepath.Join(to, "pods/a/file"))
	g.Expect(err).NotTo(HaveOccurred())
	same, err := os.Stat(filepath.Join(to, "pods/a/same"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.SameFile(file, same)).To(BeTrue(), "a hard link stays one")
	g.Expect(file.Mode()).To(Equal(os.FileMode(0o751) | os.ModeSetuid))
	value := make([]byte, 16)
	n, err := unix.Getxattr(filepath.Join(to, "etcd/db"), "user.test", value)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(value[:n])).To(Equal("value"))
	sparse, err := os.Stat(filepath.Join(to, "etcd/hole"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(sparse.Size()).To(BeEquivalentTo(1 << 30))
	g.Expect(sparse.Sys().(*syscall.Stat_t).Blocks).To(BeNumerically("<", 100))
	if os.Geteuid() == 0 {
		deleted, err := os.Stat(filepath.Join(to, "pods/b/deleted"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(deleted.Mode().Type()).To(Equal(os.ModeDevice | os.ModeCharDevice))
		n, err := unix.Getxattr(filepath.Join(to, "pods/b"), "trusted.overlay.opaque", value)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(value[:n])).To(Equal("y"))
		owned, err := os.Stat(filepath.Join(to, "pods/b/file"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(owned.Sys().(*syscall.Stat_t)).To(And(HaveField("Uid", BeEquivalentTo(65532)), HaveField("Gid", BeEquivalentTo(65531))))
	}

	elsewhere := t.TempDir()
	g.Expect(snapshot.Restore(t.Context(), store, manifest, map[string]string{"state": elsewhere}, "")).To(Succeed())
	ours, err := os.Stat(filepath.Join(elsewhere, "etcd/db"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ours.Sys().(*syscall.Stat_t).Uid).To(BeEquivalentTo(os.Geteuid()), "users of another machine are others here")

	// Only what is different is stored once more, beside the manifest.
	before := blobs(t, folder)
	write(t, from, map[string]string{"pods/b/file": "B"})
	_, err = snapshot.Save(t.Context(), store, "second", map[string]string{"state": from}, parts, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(blobs(t, folder)).To(Equal(before + 2))
}

func TestASnapshotOfARegistryIsVerified(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	reference := strings.TrimPrefix(server.URL, "http://") + "/snapshots:one"
	from, folder := t.TempDir(), t.TempDir()
	write(t, from, map[string]string{"a": strings.Repeat("text", 100)})
	store, _, err := snapshot.Open(t.Context(), folder, "one")
	g.Expect(err).NotTo(HaveOccurred())
	parts := []snapshot.Part{{Root: "state", Paths: []string{"a"}}}
	_, err = snapshot.Save(t.Context(), store, "one", map[string]string{"state": from}, parts, nil)
	g.Expect(err).NotTo(HaveOccurred())
	remote, tag, err := snapshot.Open(t.Context(), "", reference)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(oras.Copy(t.Context(), store, "one", remote, tag, oras.DefaultCopyOptions)).To(HaveField("Size", BeNumerically(">", 0)))

	manifest, err := snapshot.Manifest(t.Context(), remote, tag)
	g.Expect(err).NotTo(HaveOccurred())
	to := t.TempDir()
	g.Expect(snapshot.Restore(t.Context(), remote, manifest, map[string]string{"state": to}, "state")).To(Succeed())
	g.Expect(os.ReadFile(filepath.Join(to, "a"))).To(HaveLen(400))

	// What is there is replaced as a whole.
	write(t, to, map[string]string{"a": "old", "b": "stays"})
	g.Expect(snapshot.Restore(t.Context(), remote, manifest, map[string]string{"state": to}, "")).To(Succeed())
	g.Expect(os.ReadFile(filepath.Join(to, "a"))).To(HaveLen(400))
	g.Expect(os.ReadDir(to)).To(HaveLen(2))

	// A folder that nobody asked for is left out.
	g.Expect(snapshot.Restore(t.Context(), remote, manifest, nil, "")).To(Succeed())

	blob := filepath.Join(folder, "blobs", "sha256", manifest.Layers[0].Digest.Encoded())
	content, err := os.ReadFile(blob)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.Chmod(blob, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(blob, append(bytes.Clone(content[:len(content)-1]), content[len(content)-1]^1), 0o600)).To(Succeed())
	g.Expect(snapshot.Restore(t.Context(), store, manifest, map[string]string{"state": to}, "")).To(MatchError(ContainSubstring("restoring")))
	g.Expect(os.ReadFile(filepath.Join(to, "a"))).To(HaveLen(400), "what is there stays until all of a layer is")
	g.Expect(filepath.Join(to, ".unpacked")).NotTo(BeAnExistingFile())
}

func TestOtherArtifactsAreRefused(t *testing.T) {
	g := NewWithT(t)
	store, _, err := snapshot.Open(t.Context(), t.TempDir(), "image")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = snapshot.Manifest(t.Context(), store, "image")
	g.Expect(err).To(MatchError(ContainSubstring("reading image: ")))
	image, err := oras.PackManifest(t.Context(), store, oras.PackManifestVersion1_1, "application/another", oras.PackManifestOptions{Layers: []ocispec.Descriptor{}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(store.Tag(t.Context(), image, "image")).To(Succeed())
	_, err = snapshot.Manifest(t.Context(), store, "image")
	g.Expect(err).To(MatchError(ContainSubstring(`it is of type "application/another"`)))
	_, _, err = snapshot.Open(t.Context(), "", "registry.example.com/snapshots")
	g.Expect(err).To(MatchError(ContainSubstring("add a tag or a digest")))
	_, _, err = snapshot.Open(t.Context(), "", "no reference/x:y:z")
	g.Expect(err).To(HaveOccurred())
}

func TestAFileThatIsMissingIsAnError(t *testing.T) {
	g := NewWithT(t)
	store, _, err := snapshot.Open(t.Context(), t.TempDir(), "x")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = snapshot.Save(t.Context(), store, "x", map[string]string{"state": t.TempDir()}, []snapshot.Part{{Root: "state", Paths: []string{"gone"}}}, nil)
	g.Expect(err).To(MatchError(And(ContainSubstring("saving"), ContainSubstring("gone"))))
}
