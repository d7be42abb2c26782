// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

func TestParseRefusesAFieldThatItDoesNotKnow(t *testing.T) {
	_, err := Parse([]byte("fakes: []"))
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("fakes")))
}

func TestTheTableIsWithoutContradiction(t *testing.T) {
	g := NewWithT(t)
	table, err := Parse(defaultTable)
	g.Expect(err).NotTo(HaveOccurred())

	const why = "each entry says why it is there"
	bases := []string{""}
	for _, base := range table.Bases {
		bases = append(bases, base.Name)
		g.Expect(base.Packages).NotTo(BeEmpty(), base.Name)
		g.Expect(base.Why).NotTo(BeEmpty(), why)
		for program, links := range base.Links {
			g.Expect(append(links, program)).To(HaveEach(MatchRegexp(`^(/[A-Za-z0-9_.-]+)+$`)), "a shell makes the links of %s", base.Name)
		}
	}
	var names, repositories []string
	for _, image := range table.made() {
		names, repositories = append(names, image.Name), append(repositories, image.Repositories...)
		g.Expect(image.Repositories).NotTo(BeEmpty(), image.Name)
		g.Expect(image.Why).NotTo(BeEmpty(), why)
		g.Expect(bases).To(ContainElement(image.Base), image.Name)
		if image.Step != "" {
			g.Expect(image.Base+image.Binary).To(BeEmpty(), "%s is made by a step", image.Name)
			g.Expect(image.Versions).To(BeEmpty(), "%s is made by a step", image.Name)
		}
		sources := []bool{image.Binary != "", len(image.Files) > 0, image.Step != "" || image.Base != "" && image.Binary == "" && len(image.Files) == 0}
		g.Expect(sources).To(ConsistOf(true, false, false), "%s is made of one binary, of files, by a step, or of a base alone", image.Name)
		for _, version := range image.Versions {
			g.Expect(version).To(MatchRegexp(`^v[0-9]+\.[0-9]+\.[0-9]+$`), image.Name)
		}
		g.Expect(sets.New(image.Versions...)).To(HaveLen(len(image.Versions)), image.Name)
		paths := sets.New[string]()
		for _, file := range image.Files {
			g.Expect(file.Binary).NotTo(BeEmpty(), image.Name)
			g.Expect(file.Path).To(And(HavePrefix("/"), Equal(path.Clean(file.Path))), image.Name)
			paths.Insert(file.Path)
		}
		g.Expect(paths).To(HaveLen(len(image.Files)), image.Name)
	}
	for _, standIn := range table.StandIns {
		g.Expect(standIn.Repositories).NotTo(BeEmpty())
		g.Expect(standIn.Why).NotTo(BeEmpty(), why)
		repositories = append(repositories, standIn.Repositories...)
	}
	g.Expect(names).To(ContainElement(StubName))
	g.Expect(names).NotTo(ContainElement(BeEmpty()))
	g.Expect(sets.New(names...)).To(HaveLen(len(names)), "names are unique")
	g.Expect(sets.New(repositories...)).To(HaveLen(len(repositories)), "each repository is answered by one image")
}

func TestLookup(t *testing.T) {
	table, err := Load(nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, test := range []struct {
		name, repository string
		want             Match
	}{
		{name: "finds a real image under its release name", repository: "gardener-project/releases/gardener/etcd-druid", want: Match{Image: "etcd-druid", Kind: KindReal}},
		{name: "finds a real image under its short name", repository: "etcd-druid", want: Match{Image: "etcd-druid", Kind: KindReal}},
		{name: "doesn't take the end of a word for a name", repository: "someone/not-etcd-druid"},
		{name: "finds a control plane's program", repository: "kube-apiserver", want: Match{Image: "kube-apiserver", Exact: true, Kind: KindReal}},
		{name: "finds what machines take the kubelet out of", repository: "gardener-project/releases/hyperkube", want: Match{Image: "kubelet", Exact: true, Kind: KindReal}},
		{name: "finds a functional stand-in", repository: "istio-release/proxyv2", want: Match{Image: "gateway", Kind: KindFunctional}},
		{name: "finds a stand-in", repository: "prometheus/prometheus", want: Match{Image: StubName, Kind: KindStandIn}},
		{name: "has nothing for what it doesn't know", repository: "someone/something"},
	} {
		t.Run(test.name, func(t *testing.T) {
			found, listed := table.Lookup(test.repository)
			NewWithT(t).Expect(found).To(Equal(test.want))
			NewWithT(t).Expect(listed).To(Equal(test.want != Match{}))
		})
	}
}

func TestWhatIsOfUpstreamIsNotAnswered(t *testing.T) {
	g := NewWithT(t)
	table, err := Load([]string{Upstream})
	g.Expect(err).NotTo(HaveOccurred())
	for _, repository := range []string{"credativ/vali", "prometheus/prometheus"} {
		_, listed := table.Lookup(repository)
		g.Expect(listed).To(BeFalse(), repository)
		g.Expect(repository + ":v1").NotTo(MatchRegexp(table.StandInPattern()))
	}
	for repository, kind := range map[string]Kind{"gardener/etcd-druid": KindReal, "istio-release/proxyv2": KindFunctional} {
		found, _ := table.Lookup(repository)
		g.Expect(found.Kind).To(Equal(kind))
	}
	g.Expect(Has(table.Optional, "observability")).To(BeTrue())
	g.Expect(Has([]string{"autoscaling"}, "observability")).To(BeFalse())
}

func TestPatternsAgreeWithLookup(t *testing.T) {
	g := NewWithT(t)
	table, err := Load(nil)
	g.Expect(err).NotTo(HaveOccurred())
	real, standIn := regexp.MustCompile(table.RealPattern()), regexp.MustCompile(table.StandInPattern())
	for _, suffix := range []string{"", ":v1.2.3", "@sha256:" + strings.Repeat("0", 64), ":v1@sha256:" + strings.Repeat("0", 64)} {
		g.Expect("example.com:5000/gardener/etcd-druid" + suffix).To(MatchRegexp(real.String()))
		g.Expect("example.com:5000/prometheus/prometheus" + suffix).To(MatchRegexp(standIn.String()))
		g.Expect("example.com:5000/prometheus/prometheus" + suffix).NotTo(MatchRegexp(real.String()))
	}
	g.Expect("example.com/etcd-druid/docs:v1").NotTo(MatchRegexp(real.String()))
	for _, entry := range table.made() {
		for _, repository := range entry.Repositories {
			found, _ := table.Lookup("example/" + repository)
			g.Expect(found.Image).To(Equal(entry.Name), repository)
		}
	}
}

func TestTheTableHasAllImagesThatGardenerDeploys(t *testing.T) {
	table, err := Load(nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, test := range []struct{ module, upstream, vector string }{
		{module: "programs", upstream: "github.com/gardener/gardener", vector: "imagevector/containers.yaml"},
		{module: "etcd-druid", upstream: "github.com/gardener/etcd-druid", vector: "internal/images/images.yaml"},
		{module: "networking-calico", upstream: "github.com/gardener/gardener-extension-networking-calico", vector: "imagevector/images.yaml"},
	} {
		t.Run(test.module, func(t *testing.T) {
			g := NewWithT(t)
			download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", test.upstream)
			download.Dir = filepath.Join("../../modules", test.module)
			out, err := download.Output()
			g.Expect(err).NotTo(HaveOccurred(), string(out))
			var module struct{ Dir string }
			g.Expect(json.Unmarshal(out, &module)).To(Succeed())
			content, err := os.ReadFile(filepath.Join(module.Dir, test.vector))
			g.Expect(err).NotTo(HaveOccurred())
			var vector struct {
				Images []struct{ Repository string } `json:"images"`
			}
			g.Expect(yaml.Unmarshal(content, &vector)).To(Succeed())
			g.Expect(vector.Images).NotTo(BeEmpty())
			for _, image := range vector.Images {
				_, repository, _ := strings.Cut(image.Repository, "/")
				_, listed := table.Lookup(repository)
				g.Expect(listed).To(BeTrue(), image.Repository)
			}
		})
	}
}

func TestPush(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New())
	defer server.Close()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	g.Expect(os.WriteFile(program, []byte("content"), 0o755)).To(Succeed())
	pusher := Pusher{Registry: strings.TrimPrefix(server.URL, "http://"), Binary: func(string) string { return program }}
	real := Real{Name: "x", Binary: "program", User: 65532}

	pushed, err := pusher.Push(t.Context(), real)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pushed).To(BeTrue())
	pushed, err = pusher.Push(t.Context(), real)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pushed).To(BeFalse(), "the registry has it")

	config, files := pull(t, pusher.Registry+"/real/x:latest")
	g.Expect(config.Entrypoint).To(Equal([]string{"/program"}))
	g.Expect(config.User).To(Equal("65532"))
	g.Expect(files).To(Equal(map[string]string{"tmp/": "", "home/": "", "home/nonroot/": "", "program": "content"}))

	g.Expect(os.WriteFile(program, []byte("another content"), 0o755)).To(Succeed())
	pushed, err = pusher.Push(t.Context(), real)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pushed).To(BeTrue(), "the program changed")
}

func TestPushTagsAnImageAnewThatTheRegistryHasHad(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New())
	defer server.Close()
	program := filepath.Join(t.TempDir(), "program")
	pusher := Pusher{Registry: strings.TrimPrefix(server.URL, "http://"), Binary: func(string) string { return program }}
	built := time.Unix(1, 0)
	for i, content := range []string{"one", "another", "one"} {
		g.Expect(os.WriteFile(program, []byte(content), 0o755)).To(Succeed())
		g.Expect(os.Chtimes(program, built, built)).To(Succeed())
		pushed, err := pusher.Push(t.Context(), Real{Name: "x", Binary: "program"})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pushed).To(Equal(i < 2))
		_, files := pull(t, pusher.Registry+"/real/x:latest")
		g.Expect(files).To(HaveKeyWithValue("program", content))
	}
}

func TestPushPinnedNamesTheContent(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New())
	defer server.Close()
	program := filepath.Join(t.TempDir(), "program")
	pusher := Pusher{Registry: strings.TrimPrefix(server.URL, "http://"), Binary: func(string) string { return program }}
	digests := map[string]string{}
	for i, content := range []string{"one", "another", "one"} {
		g.Expect(os.WriteFile(program, []byte(content), 0o755)).To(Succeed())
		time := time.Unix(int64(i), 0)
		g.Expect(os.Chtimes(program, time, time)).To(Succeed())
		digest, pushed, err := pusher.PushPinned(t.Context(), Real{Name: "x", Binary: "program"}, "checkout/x")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pushed).To(BeTrue())
		_, files := pull(t, pusher.Registry+"/checkout/x@"+digest)
		g.Expect(files).To(HaveKeyWithValue("program", content))
		if former := digests[content]; former != "" {
			g.Expect(digest).To(Equal(former), "another time doesn't make another image")
		}
		digests[content] = digest
	}
	_, pushed, err := pusher.PushPinned(t.Context(), Real{Name: "x", Binary: "program"}, "checkout/x")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pushed).To(BeFalse())
}

func TestPushPutsFilesWhereTheTableSays(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New())
	defer server.Close()
	dir := t.TempDir()
	for _, program := range []string{"a", "b"} {
		g.Expect(os.WriteFile(filepath.Join(dir, program), []byte("content of "+program), 0o755)).To(Succeed())
	}
	pusher := Pusher{
		Registry: strings.TrimPrefix(server.URL, "http://"),
		Binary:   func(name string) string { return filepath.Join(dir, name) },
	}
	real := Real{Name: "x", Files: []File{{Path: "/usr/local/bin/x", Binary: "b"}, {Path: "/usr/bin/y", Binary: "a"}, {Path: "/z", Binary: "a"}}}

	_, err := pusher.Push(t.Context(), real)
	g.Expect(err).NotTo(HaveOccurred())
	config, files := pull(t, pusher.Registry+"/real/x:latest")
	g.Expect(config.Entrypoint).To(Equal([]string{"/usr/local/bin/x"}))
	g.Expect(files).To(Equal(map[string]string{
		"tmp/": "", "home/": "", "home/nonroot/": "", "usr/": "", "usr/bin/": "", "usr/local/": "", "usr/local/bin/": "",
		"usr/local/bin/x": "content of b", "usr/bin/y": "content of a", "z": "content of a",
	}))

	real.Files[2].Path = "/zz"
	pushed, err := pusher.Push(t.Context(), real)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pushed).To(BeTrue(), "a file moved")
}

func TestPushTagsVersions(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New())
	defer server.Close()
	dir := t.TempDir()
	for _, program := range []string{"x", "x-v1.0.0"} {
		g.Expect(os.WriteFile(filepath.Join(dir, program), []byte("content of "+program), 0o755)).To(Succeed())
	}
	pusher := Pusher{
		Registry: strings.TrimPrefix(server.URL, "http://"),
		Binary:   func(name string) string { return filepath.Join(dir, name) },
	}
	real := Real{Name: "x", Binary: "x", Versions: []string{"v1.0.1", "v1.0.0"}}

	g.Expect(pusher.Push(t.Context(), real)).To(BeTrue())
	for tag, content := range map[string]string{"latest": "content of x", "v1.0.1": "content of x", "v1.0.0": "content of x-v1.0.0"} {
		config, files := pull(t, pusher.Registry+"/real/x:"+tag)
		g.Expect(config.Entrypoint).To(Equal([]string{"/x"}), tag)
		g.Expect(files).To(HaveKeyWithValue("x", content), tag)
	}
	g.Expect(pusher.Push(t.Context(), real)).To(BeFalse())

	g.Expect(os.WriteFile(filepath.Join(dir, "x-v1.0.0"), []byte("another content"), 0o755)).To(Succeed())
	g.Expect(pusher.Push(t.Context(), real)).To(BeTrue(), "one of the versions changed")

	g.Expect(os.Remove(filepath.Join(dir, "x-v1.0.0"))).To(Succeed())
	_, err := pusher.Push(t.Context(), real)
	g.Expect(err).To(MatchError(os.ErrNotExist))
}

func TestPushPutsProgramsOnTheirBase(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New())
	defer server.Close()
	dir := t.TempDir()
	// It makes an archive of its arguments.
	mmdebstrap := "#!/bin/sh\nfor target; do :; done\nprintf '%s\\n' \"$@\" >\"${target%/*}/arguments\"\ntar -C \"${target%/*}\" -cf \"$target\" arguments\n"
	g.Expect(os.WriteFile(filepath.Join(dir, "mmdebstrap"), []byte(mmdebstrap), 0o755)).To(Succeed())
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	program := filepath.Join(dir, "program")
	g.Expect(os.WriteFile(program, []byte("content"), 0o755)).To(Succeed())
	pusher := Pusher{
		Registry: strings.TrimPrefix(server.URL, "http://"), Binary: func(string) string { return program }, Cache: t.TempDir(), Report: t.Logf,
		Bases: []Base{{Name: "tools", Packages: []string{"a", "b"}, Links: map[string][]string{"/bin/a": {"/bin/c"}}}},
	}

	_, err := pusher.Push(t.Context(), Real{Name: "x", Binary: "program", Base: "tools"})
	g.Expect(err).NotTo(HaveOccurred())
	_, files := pull(t, pusher.Registry+"/real/x:latest")
	g.Expect(files).To(HaveKeyWithValue("program", "content"))
	g.Expect(strings.Split(files["arguments"], "\n")).To(ContainElements("--variant=extract", "--include=a,b", `--extract-hook=ln -s /bin/a "$1"/bin/c`))

	_, err = pusher.Push(t.Context(), Real{Name: "y", Base: "tools"})
	g.Expect(err).NotTo(HaveOccurred())
	config, files := pull(t, pusher.Registry+"/real/y:latest")
	g.Expect(config.Entrypoint).To(BeEmpty())
	g.Expect(files).To(HaveKey("arguments"))

	pusher.Bases[0].Packages = []string{"a"}
	pushed, err := pusher.Push(t.Context(), Real{Name: "x", Binary: "program", Base: "tools"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pushed).To(BeTrue(), "the base changed")
	_, files = pull(t, pusher.Registry+"/real/x:latest")
	g.Expect(files["arguments"]).NotTo(ContainSubstring("a,b"))
	g.Expect(filepath.Glob(filepath.Join(pusher.Cache, "tools", "*.tar"))).To(HaveLen(1), "that of the former packages is gone")
}

// pull returns an image's configuration and the content of all its files.
func pull(t *testing.T, reference string) (v1.Config, map[string]string) {
	t.Helper()
	g := NewWithT(t)
	ref, err := name.ParseReference(reference)
	g.Expect(err).NotTo(HaveOccurred())
	image, err := remote.Image(ref)
	g.Expect(err).NotTo(HaveOccurred())
	config, err := image.ConfigFile()
	g.Expect(err).NotTo(HaveOccurred())
	layers, err := image.Layers()
	g.Expect(err).NotTo(HaveOccurred())
	files := map[string]string{}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		g.Expect(err).NotTo(HaveOccurred())
		for reader := tar.NewReader(content); ; {
			header, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			g.Expect(err).NotTo(HaveOccurred())
			body, err := io.ReadAll(reader)
			g.Expect(err).NotTo(HaveOccurred())
			files[header.Name] = string(body)
		}
	}
	return config.Config, files
}
