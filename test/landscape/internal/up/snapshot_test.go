// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/snapshot"
)

// landscapeWith is a landscape that is no more than these files below its root.
func landscapeWith(t *testing.T, files map[string]string) (Landscape, *bytes.Buffer) {
	t.Helper()
	g := NewWithT(t)
	root, out := t.TempDir(), &bytes.Buffer{}
	for name, content := range files {
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(root, name), []byte(content), 0o600)).To(Succeed())
	}
	return Landscape{Layout: layout.Layout{Root: root}, Out: out, Now: time.Now}, out
}

// saved are the files of a landscape of which a snapshot can be made.
func saved(t *testing.T) map[string]string {
	files := map[string]string{
		".landscape/network": "172.30.0.0/16\n", ".landscape/etcd/db": "objects", ".landscape/volumes/one/data": "volume", ".landscape/pki/ca.key": "key",
		".landscape/before.json": "{}", ".landscape/containerd/root/meta.db": "containers", ".landscape/logs/etcd.log": "log",
		"bin/registry/sha256/aa": "layer", "bin/registry/manifests.jsonl": `{"repository":"saved"}` + "\n",
	}
	l, _ := landscapeWith(t, nil)
	for _, name := range l.hostPrograms() {
		files["bin/landscape/"+name], files["bin/landscape/.stamps/"+name] = name, "digest of "+name
	}
	return files
}

func TestASnapshotHasAllButWhatIsFleeting(t *testing.T) {
	g := NewWithT(t)
	from, _ := landscapeWith(t, saved(t))
	progress := func(string, ...any) {}
	g.Expect(from.save(t.Context(), "one", progress)).To(MatchRegexp(`^\d+ parts, 0.00 GB; 0.00 GB of it new$`))
	info, err := os.Stat(from.Layout.Snapshots())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o700)), "keys are in it")

	to, _ := landscapeWith(t, map[string]string{
		"bin/registry/manifests.jsonl": `{"repository":"own"}` + "\n", "bin/landscape/etcd": "newer", "bin/landscape/.stamps/etcd": "newer", ".landscape/network": "",
	})
	store, _, err := snapshot.Open(t.Context(), from.Layout.Snapshots(), "one")
	g.Expect(err).NotTo(HaveOccurred())
	manifest, err := snapshot.Manifest(t.Context(), store, "one")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = to.restore(t.Context(), store, manifest, progress)
	g.Expect(err).NotTo(HaveOccurred())
	got := map[string]string{}
	g.Expect(filepath.WalkDir(to.Layout.Root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		got[strings.TrimPrefix(path, to.Layout.Root+"/")] = string(content)
		return err
	})).To(Succeed())
	want := saved(t)
	for _, name := range []string{"before.json", "containerd/root/meta.db", "logs/etcd.log"} {
		delete(want, ".landscape/"+name)
	}
	want["bin/landscape/etcd"], want["bin/landscape/.stamps/etcd"] = "newer", "newer"
	want["bin/registry/manifests.jsonl"] = `{"repository":"own"}` + "\n" + `{"repository":"saved"}` + "\n"
	g.Expect(got).To(Equal(want))
}

func TestSnapshotsAreListedAndDeleted(t *testing.T) {
	g := NewWithT(t)
	l, out := landscapeWith(t, saved(t))
	g.Expect(l.Snapshots(t.Context())).To(Succeed())
	g.Expect(out.String()).To(Equal("NAME  SAVED  SIZE  NETWORK\n"))
	for _, name := range []string{"one", "two"} {
		_, err := l.save(t.Context(), name, func(string, ...any) {})
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(l.Snapshots(t.Context(), "three")).To(MatchError(ContainSubstring("deleting snapshot three")))
	g.Expect(l.Snapshots(t.Context(), "one")).To(Succeed())
	out.Reset()
	g.Expect(l.Snapshots(t.Context())).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`(?s)^NAME[^\n]+\ntwo +\S+ +0.00 GB +172.18.0.0/16\n$`))

	// Another one of the same name takes the place of the first.
	count := func() int {
		blobs, err := filepath.Glob(filepath.Join(l.Layout.Snapshots(), "blobs", "sha256", "*"))
		g.Expect(err).NotTo(HaveOccurred())
		return len(blobs)
	}
	before := count()
	g.Expect(os.WriteFile(l.Layout.State("etcd", "db"), []byte("other objects"), 0o600)).To(Succeed())
	_, err := l.save(t.Context(), "two", func(string, ...any) {})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(count()).To(Equal(before))
	g.Expect(l.Snapshots(t.Context(), "two")).To(Succeed())
	g.Expect(count()).To(BeZero(), "what no snapshot needs takes no room")
}

func TestASnapshotIsRefusedWhereItDoesNotFit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root brings up a landscape")
	}
	g := NewWithT(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	reference := strings.TrimPrefix(server.URL, "http://") + "/snapshots:one"
	l, out := landscapeWith(t, saved(t))
	g.Expect(l.Save(t.Context(), "a/b")).To(MatchError(ContainSubstring("can't be the name of a snapshot")))
	_, err := l.save(t.Context(), "one", func(string, ...any) {})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(l.Push(t.Context(), "one", reference)).To(Succeed())
	g.Expect(out.String()).To(And(ContainSubstring("keys and passwords"), ContainSubstring("--from "+reference)))
	g.Expect(l.Restore(t.Context(), "one")).To(MatchError(ContainSubstring("there is a landscape already")))

	empty, _ := landscapeWith(t, nil)
	g.Expect(empty.Restore(t.Context(), "one")).To(MatchError(ContainSubstring("make snapshots lists what is on this machine")))
	g.Expect(empty.Layout.State()).NotTo(BeADirectory(), "nothing was made")
	store, _, err := snapshot.Open(t.Context(), empty.Layout.Snapshots(), "other")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = snapshot.Save(t.Context(), store, "other", nil, nil, map[string]string{architectureAnnotation: "riscv64"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(empty.Restore(t.Context(), "other")).To(MatchError(ContainSubstring("architecture riscv64")))
}

func TestAHalfSnapshotIsNoLandscape(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root brings up a landscape")
	}
	g := NewWithT(t)
	l, _ := landscapeWith(t, map[string]string{".landscape/restoring/manifests.jsonl": "", ".landscape/etcd/db": "half"})
	for _, act := range []func(context.Context) error{func(ctx context.Context) error { return l.Up(ctx, "") }, l.Start} {
		g.Expect(act(t.Context())).NotTo(Succeed())
	}
	g.Expect(l.Up(t.Context(), "")).To(MatchError(ContainSubstring("run that up with FROM again, or make down")))

	unlock, err := l.lock()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(l.Restore(t.Context(), "none")).To(MatchError(ContainSubstring("another up or down is at work")))
	g.Expect(l.Layout.State("etcd", "db")).To(BeARegularFile(), "the other one still unpacks")
	unlock()
	g.Expect(l.Restore(t.Context(), "none")).To(MatchError(ContainSubstring("make snapshots lists what is on this machine")))
	g.Expect(l.Layout.State()).NotTo(BeADirectory())
}

func TestUpRefusesToBeginWhileDownRemoves(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root brings up a landscape")
	}
	g := NewWithT(t)
	l, _ := landscapeWith(t, map[string]string{".landscape/network": "172.30.0.0/16\n"})
	unlock, err := l.lock()
	g.Expect(err).NotTo(HaveOccurred())
	defer unlock()
	g.Expect(os.RemoveAll(l.Layout.State())).To(Succeed())
	g.Expect(l.Up(t.Context(), "")).To(MatchError(ContainSubstring("another up or down is at work")))
	g.Expect(l.Layout.State()).NotTo(BeADirectory())
}

func TestARefusedMachineStaysClean(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root brings up a landscape")
	}
	g := NewWithT(t)
	// Whether the test has the port or another process, the machine is refused.
	if listener, err := net.Listen("tcp", "127.0.0.1:10259"); err == nil {
		t.Cleanup(func() { _ = listener.Close() })
	}
	l, out := landscapeWith(t, nil)
	store, _, err := snapshot.Open(t.Context(), l.Layout.Snapshots(), "one")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = snapshot.Save(t.Context(), store, "one", nil, nil, map[string]string{architectureAnnotation: runtime.GOARCH, networkAnnotation: "172.30.0.0/16"})
	g.Expect(err).NotTo(HaveOccurred())
	t.Setenv("GOROOT", "/nowhere")
	g.Expect(l.Restore(t.Context(), "one")).To(MatchError(And(
		ContainSubstring("this machine can't take the landscape as it is"), Not(ContainSubstring("there is no Go")))), out.String())
	g.Expect(l.Layout.State()).NotTo(BeADirectory(), "the network of the snapshot would be that of the next landscape")
}

func TestProgramsArePulledOnce(t *testing.T) {
	g := NewWithT(t)
	reports := 0
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	reference := strings.TrimPrefix(server.URL, "http://") + "/programs:v1"
	from, _ := landscapeWith(t, map[string]string{"bin/landscape/a": "program", "bin/landscape/.stamps/a": "digest", "bin/machine-image/debian.tar": "tar"})
	target, tag, err := snapshot.Open(t.Context(), "", reference)
	g.Expect(err).NotTo(HaveOccurred())
	parts, err := snapshot.Split(machineRoot, from.Layout.MachineImages(), "*")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = snapshot.Save(t.Context(), target, tag, from.snapshotFolders(), append(parts, programPart("a")), map[string]string{architectureAnnotation: runtime.GOARCH})
	g.Expect(err).NotTo(HaveOccurred())

	to, _ := landscapeWith(t, map[string]string{"bin/landscape/a": "old", "bin/landscape/.stamps/a": "old"})
	to.Programs = reference
	pull := func() error { return to.pullPrograms(t.Context(), func(string, ...any) { reports++ }) }
	g.Expect(pull()).To(Succeed())
	g.Expect(os.ReadFile(to.Layout.Binary("a"))).To(BeEquivalentTo("program"))
	g.Expect(os.ReadFile(to.Layout.Binary(".stamps/a"))).To(BeEquivalentTo("digest"))
	g.Expect(os.ReadFile(filepath.Join(to.Layout.MachineImages(), "debian.tar"))).To(BeEquivalentTo("tar"))
	g.Expect(pull()).To(Succeed())
	g.Expect(reports).To(Equal(1), "the second time all is here")
}

func TestASnapshotHasNoImagesOfFormerBuilds(t *testing.T) {
	var journal strings.Builder
	digestOf := map[string]string{}
	for _, image := range []string{"local-skaffold/x:old", "local-skaffold/x:new", "checkout/gardenlet:old", "checkout/gardenlet:new", "real/etcd:latest", "charts/theirs:1"} {
		repository, tag, _ := strings.Cut(image, ":")
		line, err := json.Marshal(map[string]any{"repository": repository, "reference": tag, "body": []byte(image)})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		journal.Write(append(line, '\n'))
		digestOf[image] = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(image)))
	}
	artifacts := fmt.Sprintf(`{"builds": [{"imageName": "x", "tag": "127.0.0.1:5001/local-skaffold/x:t@%s"}]}`, digestOf["local-skaffold/x:new"])
	values := "image:\n  repository: 127.0.0.1:5001/checkout/gardenlet\n  tag: " + digestOf["checkout/gardenlet:new"]

	for _, test := range []struct {
		name  string
		files map[string]string
		kept  []string
	}{
		{"of this repository", map[string]string{".landscape/skaffold/artifacts.json": artifacts, ".landscape/gardener": ""},
			[]string{"local-skaffold/x:new", "real/etcd:latest", "charts/theirs:1"}},
		{"of a checkout of Gardener", map[string]string{".landscape/skaffold/artifacts.json": artifacts, ".landscape/gardener": "/gardener", ".landscape/skaffold/gardenlet-images.yaml": values},
			[]string{"local-skaffold/x:new", "checkout/gardenlet:new", "real/etcd:latest", "charts/theirs:1"}},
		{"of a checkout that a snapshot has brought", map[string]string{".landscape/skaffold/artifacts.json": artifacts, ".landscape/gardener": "", ".landscape/skaffold/gardenlet-images.yaml": values},
			[]string{"local-skaffold/x:new", "checkout/gardenlet:new", "real/etcd:latest", "charts/theirs:1"}},
		{"but those that run, if the last build was not deployed", map[string]string{".landscape/skaffold/artifacts.json": artifacts, ".landscape/deployed-runtime.json": `{"x":"127.0.0.1:5001/local-skaffold/x:t@` + digestOf["local-skaffold/x:old"] + `"}`},
			[]string{"local-skaffold/x:old", "local-skaffold/x:new", "real/etcd:latest", "charts/theirs:1"}},
		{"unless nothing was deployed", map[string]string{".landscape/gardener": ""}, slices.Collect(maps.Keys(digestOf))},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			test.files["bin/registry/manifests.jsonl"] = journal.String()
			l, _ := landscapeWith(t, test.files)
			g.Expect(l.pruneRegistry()).To(Succeed())
			content, err := os.ReadFile(filepath.Join(l.Layout.Registry(), "manifests.jsonl"))
			g.Expect(err).NotTo(HaveOccurred())
			var kept []string
			for line := range strings.Lines(string(content)) {
				var push struct{ Body []byte }
				g.Expect(json.Unmarshal([]byte(line), &push)).To(Succeed())
				kept = append(kept, string(push.Body))
			}
			g.Expect(kept).To(ConsistOf(test.kept))
		})
	}
}
