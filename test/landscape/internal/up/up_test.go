// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/binaries"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/preflight"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

func TestSteps(t *testing.T) {
	g := NewWithT(t)
	steps := Landscape{Layout: layout.Layout{Root: "/clone"}}.Steps()
	g.Expect(step.Names(steps)).To(Equal([]string{
		"preflight", "packages", "binaries", "network", "certificates", "registry", "images", "machine-image", "etcd", "containerd", "apiserver", "controllers",
		"base", "kubelet", "proxy", "node", "dns", "deploy", "garden", "gardenlet", "seed", "shoot",
	}), "these names are documented, and scripts use them with --until")
	for _, s := range steps {
		g.Expect(s.Title).NotTo(BeEmpty(), s.Name)
		g.Expect(s.Remedy).NotTo(BeEmpty(), s.Name)
		g.Expect(s.Execute).NotTo(BeNil(), s.Name)
	}
}

func TestTheNetworkIsChosenOnceUntilDown(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(root, "go.mod"), []byte("module github.com/gardener/gardener-extension-provider-local\n"), 0o600)).To(Succeed())
	// open is what each call of the program does.
	open := func() *Landscape {
		found, err := layout.Find(root)
		g.Expect(err).NotTo(HaveOccurred())
		return &Landscape{Layout: found}
	}
	first, err := layout.ParseNetwork("172.30.0.0/16")
	g.Expect(err).NotTo(HaveOccurred())
	second, err := layout.ParseNetwork("10.77.0.0/16")
	g.Expect(err).NotTo(HaveOccurred())

	l := open()
	g.Expect(l.Layout.Network).To(Equal(layout.Network{}))
	g.Expect(os.MkdirAll(l.Layout.State(), 0o700)).To(Succeed())
	g.Expect(l.UseNetwork(first)).To(Succeed())
	g.Expect(l.Layout.SaveNetwork()).To(Succeed())

	l = open()
	g.Expect(l.Layout.Network).To(Equal(first), "a later up need not say it again")
	g.Expect(l.UseNetwork(second)).To(Succeed(), "nothing is on the machine yet")
	g.Expect(l.Layout.SaveNetwork()).To(Succeed())

	g.Expect(os.WriteFile(l.snapshotPath(), []byte("{}"), 0o600)).To(Succeed())
	l = open()
	g.Expect(l.UseNetwork(second)).To(Succeed())
	g.Expect(l.UseNetwork(layout.Network{})).To(MatchError("the landscape uses 10.77.0.0/16; run make down first, or leave NETWORK out"))
	g.Expect(l.Layout.Network).To(Equal(second))
}

func TestUpRefusesAFolderWhosePathContainersCannotHave(t *testing.T) {
	for name, message := range map[string]string{
		"my clone":               `my clone" has a blank, colon, comma or backslash`,
		"a:b":                    "move the clone to a path without",
		`a\b`:                    "move the clone to a path without",
		strings.Repeat("x", 100): "move the clone to a shorter path",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := Landscape{Layout: layout.Layout{Root: filepath.Join("/", name)}}
			_, err := l.prepare()
			g.Expect(err).To(MatchError(ContainSubstring(message)))
			g.Expect(l.Layout.Root).NotTo(BeADirectory())
		})
	}
}

func TestSkaffoldIsToldOfAnotherNetwork(t *testing.T) {
	for cidr, profiles := range map[string]string{layout.DefaultNetwork: "landscape", "172.30.0.0/16": "landscape,network"} {
		t.Run(cidr, func(t *testing.T) {
			g := NewWithT(t)
			network, err := layout.ParseNetwork(cidr)
			g.Expect(err).NotTo(HaveOccurred())
			l := Landscape{Layout: layout.Layout{Root: "/clone", Network: network}}
			g.Expect(l.profiles()).To(Equal(profiles))
			start := strings.TrimSuffix(cidr, ".0.0/16")
			g.Expect(l.deployEnv("/gardener", "/kubeconfig")).To(ContainElements("NETWORK_START="+start, "SKAFFOLD_DEFAULT_REPO="+start+".255.1:5001/local-skaffold"))
		})
	}
}

func TestEveryImageHasItsPrograms(t *testing.T) {
	g := NewWithT(t)
	table, err := images.Load(nil)
	g.Expect(err).NotTo(HaveOccurred())
	found, err := layout.Find(".")
	g.Expect(err).NotTo(HaveOccurred())
	// make builds this one.
	programs := map[string]binaries.Program{"landscape": {}}
	for _, program := range binaries.Programs(found.Root) {
		programs[program.Name] = program
	}
	for _, image := range table.Programs() {
		files := image.Files
		if image.Binary != "" {
			files = []images.File{{Binary: image.Binary}}
		}
		var names []string
		for _, file := range files {
			names = append(names, file.Binary)
			for _, version := range image.Versions[min(1, len(image.Versions)):] {
				if !file.Shared {
					names = append(names, file.Binary+"-"+version)
				}
			}
		}
		for _, name := range names {
			g.Expect(programs).To(HaveKey(name), image.Name)
		}
		if len(image.Versions) > 0 {
			names = slices.DeleteFunc(names, func(name string) bool { return programs[name].Module != "k8s.io/kubernetes" })
			pinned, err := programs[names[0]].Version()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(image.Versions[0]).To(Equal(pinned), image.Name)
		}
	}
}

func record(class, state string) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"kind": "DNSRecord", "metadata": map[string]any{"name": "x", "generation": int64(1)}, "spec": map[string]any{"class": class},
		"status": map[string]any{"observedGeneration": int64(1), "lastOperation": map[string]any{"state": state}},
	}}
}

func TestSucceeded(t *testing.T) {
	for _, test := range []struct {
		name    string
		objects []unstructured.Unstructured
		want    bool
	}{
		{name: "is not reached without objects"},
		{name: "is reached with enough of them", objects: []unstructured.Unstructured{record("garden", "Succeeded"), record("garden", "Succeeded")}, want: true},
		{name: "is not reached with too few", objects: []unstructured.Unstructured{record("garden", "Succeeded")}},
		{name: "is not reached while one is at work", objects: []unstructured.Unstructured{record("garden", "Succeeded"), record("garden", "Succeeded"), record("garden", "Processing")}},
		{name: "doesn't count those of other classes", objects: []unstructured.Unstructured{record("garden", "Succeeded"), record("seed", "Succeeded")}},
		{name: "doesn't wait for those of other classes", objects: []unstructured.Unstructured{record("garden", "Succeeded"), record("garden", "Succeeded"), record("seed", "Error")}, want: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, why := succeeded(2)(test.objects)
			NewWithT(t).Expect(got).To(Equal(test.want), why)
		})
	}
}

func TestNeedsGrowWithTheSteps(t *testing.T) {
	g := NewWithT(t)
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}}
	var last uint64
	for _, until := range []string{"dns", "garden", "shoot"} {
		needs, err := l.needs(until)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(needs.Memory).To(BeNumerically(">", last), until)
		last = needs.Memory
	}
	needs, err := l.needs("dns")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(needs.Disks).To(HaveLen(4), "nothing is built yet")
	g.Expect(needs.Network).To(Equal(l.Layout.Network))
}

func TestAStartNeedsTheMemoryOfWhatCameUp(t *testing.T) {
	g := NewWithT(t)
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}, Now: time.Now}
	g.Expect(os.MkdirAll(l.Layout.State(), 0o700)).To(Succeed())
	for _, came := range []string{"dns", "garden", "shoot"} {
		g.Expect(os.WriteFile(l.Layout.Milestones(), []byte(`{"steps":{"node":1,"`+came+`":2}}`), 0o600)).To(Succeed())
		_, err := l.startSteps()
		g.Expect(err).NotTo(HaveOccurred())
		needs, err := l.needs(l.until)
		g.Expect(err).NotTo(HaveOccurred())
		expected, err := l.needs(came)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(needs.Memory).To(Equal(expected.Memory), came)
	}
}

func TestWhatGosCachesHoldIsNotNeededOnceMore(t *testing.T) {
	g := NewWithT(t)
	caches := t.TempDir()
	t.Setenv("GOCACHE", filepath.Join(caches, "build"))
	t.Setenv("GOMODCACHE", filepath.Join(caches, "modules"))
	need := func() uint64 {
		needs, err := Landscape{Layout: layout.Layout{Root: t.TempDir()}}.needs("dns")
		g.Expect(err).NotTo(HaveOccurred())
		return needs.Disks[3].Need
	}
	fill := func(folder string, bytes int64) {
		folder = filepath.Join(caches, folder, "a")
		g.Expect(os.MkdirAll(folder, 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(folder, "sparse"), nil, 0o600)).To(Succeed())
		g.Expect(os.Truncate(filepath.Join(folder, "sparse"), bytes)).To(Succeed())
	}
	g.Expect(need()).To(BeEquivalentTo(diskCaches))
	fill("build", 6e9)
	fill("modules", 3e9)
	g.Expect(need()).To(BeEquivalentTo(diskCaches - 9e9))
	fill("build", 60e9)
	g.Expect(need()).To(BeEquivalentTo(diskRebuild))
}

func TestARefusalNamesEveryProblemWithItsRemedy(t *testing.T) {
	g := NewWithT(t)
	g.Expect(refuse([]preflight.Check{{Name: "ok"}})).To(Succeed())
	err := refuse([]preflight.Check{{Problems: []preflight.Problem{{Cause: "a is taken", Remedy: "free a"}, {Cause: "b is small", Remedy: "enlarge b"}}}})
	g.Expect(err).To(MatchError(And(ContainSubstring("- a is taken\n  what to do: free a\n"), ContainSubstring("- b is small\n  what to do: enlarge b"))))
}

func TestLogsAreListedWhereThereIsNone(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}, Out: &out}
	g.Expect(l.Logs("etcd")).To(MatchError(ContainSubstring("make up")))
	g.Expect(os.MkdirAll(l.Layout.State("logs"), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(l.Layout.State("logs", "etcd.log"), []byte("ready\n"), 0o600)).To(Succeed())
	g.Expect(l.Logs("etcd")).To(Succeed())
	g.Expect(out.String()).To(Equal("ready\n"))
	g.Expect(l.Logs("kubelet")).To(MatchError(ContainSubstring("the logs are: etcd")))
	g.Expect(l.Logs("../logs/etcd")).NotTo(Succeed(), "it is a name, not a path")
}

func TestWhatOnlyBuildsProgramsMakesNoLandscape(t *testing.T) {
	g := NewWithT(t)
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}}
	g.Expect(l.handOver()).To(Succeed())
	g.Expect(l.Layout.State()).NotTo(BeADirectory())
}
