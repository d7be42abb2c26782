// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/registry"
)

func table(t *testing.T) images.Table {
	t.Helper()
	parsed, err := images.Parse([]byte(`
real:
- {name: stub, repositories: [stub], binary: stub, why: test}
- {name: druid, repositories: [gardener/etcd-druid], binary: druid, why: test}
- {name: apiserver, repositories: [kube-apiserver], binary: apiserver, versions: [v1.0.1, v1.0.0], why: test}
standIns:
- {repositories: [istio/proxy], why: test}
`))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return parsed
}

// serve opens the registry in dir and serves it on loopback.
func serve(t *testing.T, dir string) (address string, stop func()) {
	t.Helper()
	handler, err := registry.Open(dir, table(t), slog.New(slog.NewTextHandler(io.Discard, nil)))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	server := httptest.NewServer(handler)
	return strings.TrimPrefix(server.URL, "http://"), func() {
		server.Close()
		NewWithT(t).Expect(handler.Close()).To(Succeed())
	}
}

func push(t *testing.T, reference string) v1.Hash {
	t.Helper()
	g := NewWithT(t)
	ref, err := name.ParseReference(reference)
	g.Expect(err).NotTo(HaveOccurred())
	image, err := random.Image(64, 1)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(remote.Write(ref, image)).To(Succeed())
	digest, err := image.Digest()
	g.Expect(err).NotTo(HaveOccurred())
	return digest
}

// head asks for a manifest, as containerd does for another registry if ns isn't empty.
func head(t *testing.T, address, repository, reference, ns string) (int, string) {
	t.Helper()
	url := "http://" + address + "/v2/" + repository + "/manifests/" + reference
	if ns != "" {
		url += "?ns=" + ns
	}
	response, err := http.Head(url)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode, response.Header.Get("Docker-Content-Digest")
}

func TestManifests(t *testing.T) {
	address, stop := serve(t, t.TempDir())
	defer stop()
	stub := push(t, address+"/real/stub:latest").String()
	druid := push(t, address+"/real/druid:latest").String()
	former := push(t, address+"/real/apiserver:v1.0.0").String()
	apiserver := push(t, address+"/real/apiserver:v1.0.1").String()
	first := push(t, address+"/own/app:first").String()
	second := push(t, address+"/own/app:second").String()
	given := push(t, address+"/given/foo:latest").String()
	push(t, address+"/given/bar:latest")
	longer := push(t, address+"/given/foo/bar:latest").String()
	for _, test := range []struct {
		name, repository, reference, ns string
		status                          int
		digest                          string
	}{
		{name: "keeps each tag of a repository for itself", repository: "own/app", reference: "first", status: 200, digest: first},
		{name: "serves the other tag as well", repository: "own/app", reference: "second", status: 200, digest: second},
		{name: "serves by digest", repository: "own/app", reference: first, status: 200, digest: first},
		{name: "answers honestly for a tag that was not pushed", repository: "own/app", reference: "third", status: 404},
		{name: "answers containerd honestly for a repository that was pushed", repository: "own/app", reference: "third", ns: "172.18.255.1:5001", status: 404},
		{name: "answers its own clients honestly for an unknown repository", repository: "own/other", reference: "v1", status: 404},
		{name: "answers its own clients honestly for a name of the table", repository: "gardener/etcd-druid", reference: "v1", status: 404},
		{name: "serves the real image for any tag", repository: "p/gardener/etcd-druid", reference: "v0.37.9", ns: "example.com", status: 200, digest: druid},
		{name: "serves the real image by the digest it gave out", repository: "p/gardener/etcd-druid", reference: druid, ns: "example.com", status: 200, digest: druid},
		{name: "serves an exact version", repository: "kube-apiserver", reference: "v1.0.1", ns: "example.com", status: 200, digest: apiserver},
		{name: "serves another exact version", repository: "kube-apiserver", reference: "v1.0.0", ns: "example.com", status: 200, digest: former},
		{name: "serves an exact version by the digest it gave out", repository: "kube-apiserver", reference: former, ns: "example.com", status: 200, digest: former},
		{name: "doesn't serve a version that isn't there", repository: "kube-apiserver", reference: "v1.0.2", ns: "example.com", status: 404},
		{name: "serves the stub for a stand-in", repository: "istio/proxy", reference: "1.2", ns: "example.com", status: 200, digest: stub},
		{name: "doesn't serve another image for a digest", repository: "istio/proxy", reference: druid, ns: "example.com", status: 404},
		{name: "has nothing for what nobody knows", repository: "a/b", reference: "1.2", ns: "example.com", status: 404},
		{name: "serves what was given for any tag", repository: "p/extensions/foo", reference: "1.2", ns: "example.com", status: 200, digest: given},
		{name: "serves what was given under the longest name", repository: "p/extensions/foo/bar", reference: "1.2", ns: "example.com", status: 200, digest: longer},
		{name: "doesn't serve its own clients what was given", repository: "p/extensions/foo", reference: "1.2", status: 404},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			status, digest := head(t, address, test.repository, test.reference, test.ns)
			g.Expect(status).To(Equal(test.status))
			g.Expect(digest).To(Equal(test.digest))
		})
	}
}

func TestCachesAreAnsweredForAnyRegistry(t *testing.T) {
	g := NewWithT(t)
	handler, err := registry.Open(t.TempDir(), table(t), slog.New(slog.NewTextHandler(io.Discard, nil)))
	g.Expect(err).NotTo(HaveOccurred())
	own, caches := httptest.NewServer(handler), httptest.NewServer(handler.ForCaches())
	defer own.Close()
	defer caches.Close()
	stub := push(t, strings.TrimPrefix(own.URL, "http://")+"/real/stub:latest").String()
	status, digest := head(t, strings.TrimPrefix(caches.URL, "http://"), "istio/proxy", "1.2", "")
	g.Expect(status).To(Equal(200))
	g.Expect(digest).To(Equal(stub))
}

func TestWhatWasDeletedIsGone(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	address, stop := serve(t, dir)
	push(t, address+"/given/foo:latest")
	deleted, err := name.NewTag(address + "/given/foo:latest")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(remote.Delete(deleted)).To(Succeed())
	g.Expect(remote.Delete(deleted)).NotTo(Succeed())
	status, _ := head(t, address, "p/foo", "1.2", "example.com")
	g.Expect(status).To(Equal(404))
	stop()

	address, stop = serve(t, dir)
	status, _ = head(t, address, "p/foo", "1.2", "example.com")
	g.Expect(status).To(Equal(404), "after a restart")
	again := push(t, address+"/given/foo:latest").String()
	stop()

	address, stop = serve(t, dir)
	defer stop()
	status, digest := head(t, address, "p/foo", "1.2", "example.com")
	g.Expect(status).To(Equal(200))
	g.Expect(digest).To(Equal(again))
}

func TestRestartKeepsWhatWasPushed(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	address, stop := serve(t, dir)
	push(t, address+"/own/app:moving")
	moved := push(t, address+"/own/app:moving").String()
	ref, err := name.ParseReference(address + "/own/index:v1")
	g.Expect(err).NotTo(HaveOccurred())
	image, err := random.Image(64, 1)
	g.Expect(err).NotTo(HaveOccurred())
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image})
	g.Expect(remote.WriteIndex(ref, index)).To(Succeed())
	indexDigest, err := index.Digest()
	g.Expect(err).NotTo(HaveOccurred())
	stop()

	for range 2 {
		address, stop = serve(t, dir)
		_, digest := head(t, address, "own/app", "moving", "")
		g.Expect(digest).To(Equal(moved))
		_, digest = head(t, address, "own/index", "v1", "")
		g.Expect(digest).To(Equal(indexDigest.String()))
		status, _ := head(t, address, "own/app", "other", "example.com")
		g.Expect(status).To(Equal(http.StatusNotFound), "it still knows that the repository was pushed")
		stop()
	}
}

func TestAJournalCutOffInTheMiddleLosesItsLastEntryOnly(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	address, stop := serve(t, dir)
	kept := push(t, address+"/own/app:kept").String()
	push(t, address+"/own/app:lost")
	stop()
	path := filepath.Join(dir, "manifests.jsonl")
	content, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(path, content[:len(content)-20], 0o600)).To(Succeed())

	address, stop = serve(t, dir)
	defer stop()
	_, digest := head(t, address, "own/app", "kept", "")
	g.Expect(digest).To(Equal(kept))
	status, _ := head(t, address, "own/app", "lost", "")
	g.Expect(status).To(Equal(http.StatusNotFound))
}

// TestAFullDiskLosesOnePushOnly bounds the size of files, which cuts off the journal's next line as a full disk would.
func TestAFullDiskLosesOnePushOnly(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	address, stop := serve(t, dir)
	push(t, address+"/own/app:before")
	journal, err := os.Stat(filepath.Join(dir, "manifests.jsonl"))
	g.Expect(err).NotTo(HaveOccurred())

	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	unlimited := syscall.Rlimit{}
	g.Expect(syscall.Getrlimit(syscall.RLIMIT_FSIZE, &unlimited)).To(Succeed())
	limited := syscall.Rlimit{Cur: uint64(journal.Size()) + 10, Max: unlimited.Max} // #nosec G115 -- a file's size
	g.Expect(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited)).To(Succeed())
	image, err := random.Image(64, 1)
	g.Expect(err).NotTo(HaveOccurred())
	ref, err := name.ParseReference(address + "/own/app:meanwhile")
	g.Expect(err).NotTo(HaveOccurred())
	failure := remote.Write(ref, image)
	g.Expect(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &unlimited)).To(Succeed())
	g.Expect(failure).To(HaveOccurred())
	push(t, address+"/own/app:after")
	stop()

	address, stop = serve(t, dir)
	defer stop()
	for _, tag := range []string{"before", "after"} {
		status, _ := head(t, address, "own/app", tag, "")
		g.Expect(status).To(Equal(http.StatusOK), tag)
	}
}

func TestABlobThatDoesNotMatchItsDigestIsNotKept(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	address, stop := serve(t, dir)
	defer stop()
	digest := "sha256:" + strings.Repeat("ab", 32)
	response, err := http.Post("http://"+address+"/v2/own/app/blobs/uploads/?digest="+digest, "application/octet-stream", strings.NewReader("something else"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
	g.Expect(response.StatusCode).NotTo(Equal(http.StatusCreated))
	response, err = http.Get("http://" + address + "/v2/own/app/blobs/" + digest)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
	g.Expect(response.StatusCode).To(Equal(http.StatusNotFound))
	left, err := filepath.Glob(filepath.Join(dir, "upload-*"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeEmpty())
}

func TestAReopenedRegistryHasWhatWasPushedLastAndNoMore(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	address, stop := serve(t, dir)
	var references []string
	for i := range 20 {
		reference := fmt.Sprintf("v%d", i)
		push(t, address+"/a/b:"+reference)
		references = append(references, reference)
	}
	push(t, address+"/c/d:latest")
	stop()
	g.Expect(os.WriteFile(filepath.Join(dir, "upload-1"), []byte("cut off"), 0o600)).To(Succeed())

	address, stop = serve(t, dir)
	defer stop()
	var found []string
	for _, reference := range references {
		if status, _ := head(t, address, "a/b", reference, ""); status == http.StatusOK {
			found = append(found, reference)
		}
	}
	g.Expect(found).To(Equal(references[4:]))
	status, _ := head(t, address, "c/d", "latest", "")
	g.Expect(status).To(Equal(http.StatusOK))
	// Each image has a layer and a configuration.
	g.Expect(filepath.Glob(filepath.Join(dir, "sha256", "*"))).To(HaveLen(2 * 17))
	g.Expect(filepath.Glob(filepath.Join(dir, "upload-*"))).To(BeEmpty())
	ref, err := name.ParseReference(address + "/a/b:v19")
	g.Expect(err).NotTo(HaveOccurred())
	image, err := remote.Image(ref)
	g.Expect(err).NotTo(HaveOccurred())
	layers, err := image.Layers()
	g.Expect(err).NotTo(HaveOccurred())
	content, err := layers[0].Compressed()
	g.Expect(err).NotTo(HaveOccurred())
	_, err = io.Copy(io.Discard, content)
	g.Expect(err).NotTo(HaveOccurred(), "its blobs are there")
}

func TestPruneRemovesWhatIsNotWantedAndKeepsTheRest(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	address, stop := serve(t, dir)
	want := push(t, address+"/a/b:new")
	push(t, address+"/a/b:old")
	push(t, address+"/c/d:latest")
	stop()
	g.Expect(registry.Prune(dir, func(repository, digest string) bool {
		return repository != "a/b" || digest == want.String()
	})).To(Succeed())

	address, stop = serve(t, dir)
	defer stop()
	for reference, status := range map[string]int{"new": http.StatusOK, want.String(): http.StatusOK, "old": http.StatusNotFound} {
		found, _ := head(t, address, "a/b", reference, "")
		g.Expect(found).To(Equal(status), reference)
	}
	status, _ := head(t, address, "c/d", "latest", "")
	g.Expect(status).To(Equal(http.StatusOK))
	g.Expect(filepath.Glob(filepath.Join(dir, "sha256", "*"))).To(HaveLen(2*2), "each image has a layer and a configuration")
}
