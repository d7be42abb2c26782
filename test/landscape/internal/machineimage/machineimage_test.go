// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machineimage

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

// source is the machine image's folder in this repository.
func source(t *testing.T) string {
	t.Helper()
	found, err := layout.Find(".")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return filepath.Join(found.Root, "skaffold", "images", "machine")
}

// entries reads a tar archive: what an entry is by its name.
func entries(t *testing.T, archive []byte) map[string]tar.Header {
	t.Helper()
	found := map[string]tar.Header{}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		found[header.Name] = *header
	}
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(path, []byte(content), mode)).To(Succeed())
}

// newBuilder has a small source, a base that is in the cache already, and a registry.
func newBuilder(t *testing.T) Builder {
	t.Helper()
	g := NewWithT(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	b := Builder{Source: t.TempDir(), Cache: t.TempDir(), Repository: strings.TrimPrefix(server.URL, "http://") + "/real/machine"}
	write(t, filepath.Join(b.Source, "debian", "packages"), "# comment\nsystemd\n\ncontainerd\n", 0o600)
	write(t, filepath.Join(b.Source, "rootfs", "etc", "a"), "a", 0o600)
	g.Expect(os.MkdirAll(filepath.Join(b.Source, "debian", "rootfs"), 0o700)).To(Succeed())
	write(t, filepath.Join(b.Cache, "debian-"+base([]string{"systemd", "containerd"}).Key()+".tar"), "base", 0o600)
	return b
}

func TestPushOnlyPushesWhatIsNew(t *testing.T) {
	g := NewWithT(t)
	b := newBuilder(t)
	quiet := func(string, ...any) { t.Error("the base should have come from the cache") }
	g.Expect(b.Push(t.Context(), quiet)).To(BeTrue())
	g.Expect(b.Push(t.Context(), quiet)).To(BeFalse())

	write(t, filepath.Join(b.Source, "rootfs", "etc", "a"), "another", 0o600)
	g.Expect(b.Push(t.Context(), quiet)).To(BeTrue())
	write(t, filepath.Join(b.Source, "rootfs", "etc", "a"), "a", 0o600)
	g.Expect(b.Push(t.Context(), quiet)).To(BeFalse(), "it is still there")
}

func TestTheLatestImagePullsFromTheRegistryOfTheLandscape(t *testing.T) {
	g := NewWithT(t)
	b := newBuilder(t)
	write(t, filepath.Join(b.Source, "debian", "rootfs", "hosts.toml"), "http://REGISTRY", 0o600)
	for _, network := range []layout.Network{{}, layout.Candidates()[0], {}} {
		b.Registry = network.Registry()
		_, err := b.Push(t.Context(), t.Logf)
		g.Expect(err).NotTo(HaveOccurred())
		tag, err := name.NewTag(b.Repository+":latest", name.Insecure)
		g.Expect(err).NotTo(HaveOccurred())
		image, err := remote.Image(tag)
		g.Expect(err).NotTo(HaveOccurred())
		layers, err := image.Layers()
		g.Expect(err).NotTo(HaveOccurred())
		content, err := layers[1].Uncompressed()
		g.Expect(err).NotTo(HaveOccurred())
		archive, err := io.ReadAll(content)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(archive)).To(ContainSubstring("http://" + network.Registry()))
	}
}

func TestTheImageStartsAndStopsSystemd(t *testing.T) {
	g := NewWithT(t)
	b := newBuilder(t)
	g.Expect(b.Push(t.Context(), t.Logf)).To(BeTrue())
	tag, err := name.NewTag(b.Repository+":latest", name.Insecure)
	g.Expect(err).NotTo(HaveOccurred())
	image, err := remote.Image(tag)
	g.Expect(err).NotTo(HaveOccurred())
	config, err := image.ConfigFile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Config.Entrypoint).To(Equal([]string{"/usr/local/lib/provider-local/entrypoint"}))
	g.Expect(config.Config.StopSignal).To(Equal("SIGRTMIN+3"))
	layers, err := image.Layers()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(layers).To(HaveLen(2))
	content, err := layers[0].Uncompressed()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(io.ReadAll(content)).To(Equal([]byte("base")))
}

func TestABaseOfOtherInputsIsRemovedAndAHalfOneIsNotUsed(t *testing.T) {
	g := NewWithT(t)
	b := newBuilder(t)
	t.Setenv("PATH", t.TempDir())
	write(t, filepath.Join(b.Source, "debian", "packages"), "systemd\n", 0o600)
	write(t, filepath.Join(b.Cache, "debian-"+base([]string{"systemd"}).Key()+".tar.part"), "half", 0o600)
	_, err := b.Push(t.Context(), t.Logf)
	g.Expect(err).To(MatchError(ContainSubstring("mmdebstrap")), "it isn't in this PATH")
	g.Expect(os.ReadDir(b.Cache)).To(BeEmpty())
}

func TestMmdebstrapMakesTheBase(t *testing.T) {
	g := NewWithT(t)
	b := newBuilder(t)
	bin := t.TempDir()
	write(t, filepath.Join(bin, "mmdebstrap"), "#!/bin/sh\nfor target; do :; done\necho \"$SOURCE_DATE_EPOCH $*\" >\"$target\"\n", 0o700)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	write(t, filepath.Join(b.Source, "debian", "packages"), "systemd\nsudo\n", 0o600)
	g.Expect(b.Push(t.Context(), t.Logf)).To(BeTrue())
	made, err := os.ReadFile(filepath.Join(b.Cache, "debian-"+base([]string{"systemd", "sudo"}).Key()+".tar"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(made)).To(And(HavePrefix("0 "), ContainSubstring("--include=systemd,sudo"), ContainSubstring("bookworm")))

	write(t, filepath.Join(bin, "mmdebstrap"), "#!/bin/sh\necho E: no such package\nexit 1\n", 0o700)
	write(t, filepath.Join(b.Source, "debian", "packages"), "nonsense\n", 0o600)
	_, err = b.Push(t.Context(), t.Logf)
	g.Expect(err).To(MatchError(ContainSubstring("no such package")))
}

func TestPackTreesIsTheSameForTheSameFiles(t *testing.T) {
	g := NewWithT(t)
	one, two := t.TempDir(), t.TempDir()
	write(t, filepath.Join(one, "etc", "plain"), "p", 0o600)
	write(t, filepath.Join(one, "usr", "script"), "s", 0o700)
	g.Expect(os.MkdirAll(filepath.Join(two, "etc"), 0o700)).To(Succeed())
	g.Expect(os.Symlink("/dev/null", filepath.Join(two, "etc", "masked"))).To(Succeed())

	archive, err := packTrees("", one, two)
	g.Expect(err).NotTo(HaveOccurred())
	found := entries(t, archive)
	g.Expect(found).To(HaveLen(5))
	g.Expect(found["etc/plain"].Mode).To(BeEquivalentTo(0o644))
	g.Expect(found["usr/script"].Mode).To(BeEquivalentTo(0o755))
	g.Expect(found["etc/masked"].Linkname).To(Equal("/dev/null"))

	g.Expect(os.Chtimes(filepath.Join(one, "etc", "plain"), time.Unix(1, 0), time.Unix(1, 0))).To(Succeed())
	g.Expect(packTrees("", one, two)).To(Equal(archive))

	write(t, filepath.Join(two, "etc", "plain"), "q", 0o600)
	_, err = packTrees("", one, two)
	g.Expect(err).To(MatchError(ContainSubstring("are the same file of the image")))
}

func TestTheFilesOfTheMachineImage(t *testing.T) {
	g := NewWithT(t)
	dir := source(t)
	archive, err := packTrees("172.30.255.1:5001", filepath.Join(dir, "rootfs"), filepath.Join(dir, "debian", "rootfs"))
	g.Expect(err).NotTo(HaveOccurred())
	found := entries(t, archive)
	g.Expect(found["usr/local/lib/provider-local/entrypoint"].Mode).To(BeEquivalentTo(0o755))
	g.Expect(found["usr/local/lib/provider-local/os-version"].Mode).To(BeEquivalentTo(0o755))
	g.Expect(found["etc/systemd/system/multi-user.target.wants/run-userdata.service"].Linkname).To(Equal("../run-userdata.service"))
	g.Expect(found["opt/cni/bin"].Linkname).To(Equal("../../usr/lib/cni"))
	for name := range found {
		g.Expect(name).NotTo(ContainSubstring(":"), "no Go module can contain it")
	}

	packages, err := readPackages(filepath.Join(dir, "debian", "packages"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(slices.Compact(slices.Sorted(slices.Values(packages)))).To(HaveLen(len(packages)), "one is there twice")

	g.Expect(string(archive)).To(ContainSubstring("[host.\"http://172.30.255.1:5001\"]\n"))
	g.Expect(string(archive)).NotTo(ContainSubstring("REGISTRY"))

	table, err := images.Load(nil)
	g.Expect(err).NotTo(HaveOccurred())
	match, _ := table.Lookup("gardener-extension-provider-local/machine")
	g.Expect(match).To(Equal(images.Match{Image: Name, Kind: images.KindReal}))
}

func TestOSVersion(t *testing.T) {
	program := filepath.Join(source(t), "rootfs", "usr", "local", "lib", "provider-local", "os-version")
	for _, test := range []struct {
		name  string
		args  []string
		valid bool
	}{
		{"a version", []string{"1.2.3"}, true},
		{"a number", []string{"7"}, true},
		{"a pre-release", []string{"1.2.3-rc.1"}, true},
		{"a build", []string{"1.2.3+b5"}, true},
		{"nothing", nil, false},
		{"an empty version", []string{""}, false},
		{"two versions", []string{"1.0", "2.0"}, false},
		{"what isn't a number", []string{"latest"}, false},
		{"a v before the number", []string{"v1.2.3"}, false},
		{"a command", []string{"1.0; id"}, false},
		{"a quote", []string{`1.0"`}, false},
		{"a second line", []string{"1.0\nID=other"}, false},
		{"a line feed at the end", []string{"1.0\n"}, false},
		{"too much", []string{strings.Repeat("1", 65)}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			root := t.TempDir()
			const debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nID=debian\n"
			write(t, filepath.Join(root, "usr", "lib", "os-release"), debian, 0o600)
			g.Expect(os.Mkdir(filepath.Join(root, "etc"), 0o700)).To(Succeed())
			g.Expect(os.Symlink("../usr/lib/os-release", filepath.Join(root, "etc", "os-release"))).To(Succeed())
			cmd := exec.CommandContext(t.Context(), program, test.args...) // #nosec G204 -- of this repository.
			cmd.Env = append(os.Environ(), "ROOT="+root)
			out, err := cmd.CombinedOutput()
			content, readErr := os.ReadFile(filepath.Join(root, "etc", "os-release"))
			g.Expect(readErr).NotTo(HaveOccurred())
			if !test.valid {
				g.Expect(err).To(HaveOccurred())
				g.Expect(string(out)).To(ContainSubstring("usage:"))
				g.Expect(string(content)).To(Equal(debian))
				return
			}
			g.Expect(err).NotTo(HaveOccurred(), string(out))
			version := test.args[0]
			g.Expect(string(content)).To(Equal("PRETTY_NAME=\"provider-local machine " + version + " on Debian GNU/Linux 12 (bookworm)\"\n" +
				"VERSION_ID=\"12\"\nID=debian\nIMAGE_ID=provider-local-machine\nIMAGE_VERSION=" + version + "\n"))
			g.Expect(os.ReadDir(filepath.Join(root, "etc"))).To(HaveLen(1), "no temporary file is left")
		})
	}
}
