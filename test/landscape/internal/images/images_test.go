// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/gomega"
)

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ name, content, want string }{
		{name: "a field it doesn't know", content: "fakes: []", want: "fakes"},
		{name: "a table without the stub", content: "real: []", want: `no image "stub"`},
		{name: "an entry without reason", content: "real: [{name: stub, repositories: [stub], binary: stub}]", want: "no why"},
		{name: "an entry without binary", content: "real: [{name: stub, repositories: [stub], why: x}]", want: "one of binary and step"},
		{name: "an entry with both a binary and a step", content: "real: [{name: stub, binary: a, step: b, repositories: [stub], why: x}]", want: "one of binary and step"},
		{
			name:    "a repository in both lists",
			content: "real: [{name: stub, repositories: [stub, a], binary: stub, why: x}]\nstandIns: [{repositories: [a], why: x}]",
			want:    "a is listed twice",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse([]byte(test.content))
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.want)))
		})
	}
}

func TestLookup(t *testing.T) {
	table, err := Load()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, test := range []struct {
		name, repository string
		want             Match
	}{
		{name: "finds a real image under its release name", repository: "gardener-project/releases/gardener/etcd-druid", want: Match{Image: "etcd-druid", Listed: true}},
		{name: "finds a real image under its short name", repository: "etcd-druid", want: Match{Image: "etcd-druid", Listed: true}},
		{name: "doesn't take the end of a word for a name", repository: "someone/not-etcd-druid", want: Match{Image: StubName}},
		{name: "finds a stand-in", repository: "istio-release/proxyv2", want: Match{Image: StubName, Listed: true}},
		{name: "stands in for what it doesn't know", repository: "someone/something", want: Match{Image: StubName}},
	} {
		t.Run(test.name, func(t *testing.T) {
			NewWithT(t).Expect(table.Lookup(test.repository)).To(Equal(test.want))
		})
	}
}

func TestPatternsAgreeWithLookup(t *testing.T) {
	g := NewWithT(t)
	table, err := Load()
	g.Expect(err).NotTo(HaveOccurred())
	real, standIn := regexp.MustCompile(table.RealPattern()), regexp.MustCompile(table.StandInPattern())
	for _, suffix := range []string{"", ":v1.2.3", "@sha256:" + strings.Repeat("0", 64), ":v1@sha256:" + strings.Repeat("0", 64)} {
		g.Expect("example.com:5000/gardener/etcd-druid" + suffix).To(MatchRegexp(real.String()))
		g.Expect("example.com:5000/istio-release/proxyv2" + suffix).To(MatchRegexp(standIn.String()))
		g.Expect("example.com:5000/istio-release/proxyv2" + suffix).NotTo(MatchRegexp(real.String()))
	}
	g.Expect("example.com/etcd-druid/docs:v1").NotTo(MatchRegexp(real.String()))
	for _, entry := range table.Real {
		for _, repository := range entry.Repositories {
			g.Expect(table.Lookup("example/"+repository).Image).To(Equal(entry.Name), repository)
		}
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

	ref, err := name.ParseReference(pusher.Registry + "/real/x:latest")
	g.Expect(err).NotTo(HaveOccurred())
	image, err := remote.Image(ref)
	g.Expect(err).NotTo(HaveOccurred())
	config, err := image.ConfigFile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Config.Entrypoint).To(Equal([]string{"/program"}))
	g.Expect(config.Config.User).To(Equal("65532"))
	layers, err := image.Layers()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(layers).To(HaveLen(1))
	content, err := layers[0].Uncompressed()
	g.Expect(err).NotTo(HaveOccurred())
	files := map[string]string{}
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
	g.Expect(files).To(Equal(map[string]string{"tmp/": "", "program": "content"}))

	g.Expect(os.WriteFile(program, []byte("another content"), 0o755)).To(Succeed())
	pushed, err = pusher.Push(t.Context(), real)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pushed).To(BeTrue(), "the program changed")
}
