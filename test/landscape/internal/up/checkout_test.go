// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestACheckoutReplacesTheProgramsOfGardenerAlone(t *testing.T) {
	g := NewWithT(t)
	pinned := Landscape{Layout: layout.Layout{Root: "/root"}}
	checkout := pinned
	checkout.Gardener = "/gardener"
	g.Expect(pinned.checkoutPrograms()).To(BeEmpty())
	g.Expect(pinned.programs()).To(HaveLen(len(checkout.programs()) + len(checkout.checkoutPrograms())))
	g.Expect(checkout.isFromCheckout("gardenlet")).To(BeTrue())
	g.Expect(checkout.isFromCheckout("etcd-druid")).To(BeFalse())
	g.Expect(checkout.isFromCheckout("")).To(BeFalse(), "an image of several programs has none of its own")

	table, err := images.Load(nil)
	g.Expect(err).NotTo(HaveOccurred())
	var named []string
	for deployer, deploys := range deployers {
		named = append(append(named, deployer), deploys...)
	}
	for _, program := range checkout.checkoutPrograms() {
		g.Expect(slices.ContainsFunc(table.Real, func(r images.Real) bool { return r.Binary == program.Name })).To(BeTrue(), program.Name)
		g.Expect(named).To(ContainElement(program.Name), "somebody deploys it")
		named = slices.DeleteFunc(named, func(name string) bool { return name == program.Name })
	}
	g.Expect(named).To(BeEmpty())
}

func TestImagesOfACheckoutAreNamedByDigest(t *testing.T) {
	g := NewWithT(t)
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}}
	content, err := valuesOf("gardenlet", []string{"gardener-node-agent", "gardener-resource-manager"}, map[string]image{
		"gardenlet":                 {Repository: "r:5001/checkout/gardenlet", Tag: "sha256:1"},
		"gardener-node-agent":       {Repository: "r:5001/checkout/gardener-node-agent", Tag: "sha256:2"},
		"gardener-resource-manager": {Repository: "r:5001/checkout/gardener-resource-manager", Tag: "sha256:3"},
		"gardener-apiserver":        {Repository: "r:5001/checkout/gardener-apiserver", Tag: "sha256:4"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(Equal(`image:
  repository: r:5001/checkout/gardenlet
  tag: sha256:1
imageVectorOverwrite: |
  images:
  - name: gardener-node-agent
    repository: r:5001/checkout/gardener-node-agent
    tag: sha256:2
  - name: gardener-resource-manager
    repository: r:5001/checkout/gardener-resource-manager
    tag: sha256:3
`), "what it doesn't deploy must not restart it")

	_, err = l.checkoutImages("gardenlet")
	g.Expect(err).To(MatchError(ContainSubstring("reading the images of gardenlet")))
	g.Expect(os.MkdirAll(filepath.Dir(l.imageValues("gardenlet")), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(l.imageValues("gardenlet"), content, 0o600)).To(Succeed())
	g.Expect(l.checkoutImages("gardenlet")).To(Equal([]string{"r:5001/checkout/gardenlet@sha256:1", "r:5001/checkout/gardener-resource-manager@sha256:3"}))
}

func TestProfiles(t *testing.T) {
	other := layout.Network{}
	NewWithT(t).Expect(other.UnmarshalText([]byte("172.30.0.0/16"))).To(Succeed())
	for _, test := range []struct {
		name, want string
		landscape  Landscape
	}{
		{name: "the landscape's", want: "landscape"},
		{name: "and one for a checkout", want: "landscape,checkout", landscape: Landscape{Gardener: "/gardener"}},
		{name: "and one for a debugger", want: "landscape,debug", landscape: Landscape{debug: true}},
		{name: "over that for another network", want: "landscape,network,checkout", landscape: Landscape{Gardener: "/gardener", Layout: layout.Layout{Network: other}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			NewWithT(t).Expect(test.landscape.profiles()).To(Equal(test.want))
		})
	}
}

func TestRuns(t *testing.T) {
	const reference = "r:5001/a:tag@sha256:new"
	deployment := func(namespace, image string, change func(status map[string]any)) unstructured.Unstructured {
		status := map[string]any{"observedGeneration": int64(2), "replicas": int64(1), "updatedReplicas": int64(1), "availableReplicas": int64(1)}
		if change != nil {
			change(status)
		}
		return unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"namespace": namespace, "name": "d", "generation": int64(2)},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
				map[string]any{"name": "other", "image": "r:5001/b@sha256:1"}, map[string]any{"name": "it", "image": image},
			}}}},
			"status": status,
		}}
	}
	for _, test := range []struct {
		name, says  string
		deployments []unstructured.Unstructured
		want        bool
	}{
		{name: "all of them", says: "1 images", want: true, deployments: []unstructured.Unstructured{deployment("garden", reference, nil), deployment("x", reference, nil)}},
		{name: "none of the image", says: "no Deployment has " + reference, deployments: []unstructured.Unstructured{deployment("garden", "r:5001/c@sha256:2", nil)}},
		{name: "one of another version", says: "Deployment x/d has r:5001/a:tag@sha256:old", deployments: []unstructured.Unstructured{
			deployment("garden", reference, nil), deployment("x", "r:5001/a:tag@sha256:old", nil),
		}},
		{name: "a Shoot's of another version", says: "1 images", want: true, deployments: []unstructured.Unstructured{
			deployment("garden", reference, nil), deployment("shoot--local--local", "r:5001/a@sha256:old", nil),
		}},
		{name: "one that its controller hasn't seen", says: "has 1 of 1 new replicas", deployments: []unstructured.Unstructured{
			deployment("garden", reference, func(status map[string]any) { status["observedGeneration"] = int64(1) }),
		}},
		{name: "one with a Pod of before", says: "has 1 of 1 new replicas available, and 2 in all", deployments: []unstructured.Unstructured{
			deployment("garden", reference, func(status map[string]any) { status["replicas"] = int64(2) }),
		}},
		{name: "one that isn't available", says: "has 0 of 1 new replicas available", deployments: []unstructured.Unstructured{
			deployment("garden", reference, func(status map[string]any) { delete(status, "availableReplicas") }),
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			got, says := runs(reference)(test.deployments)
			g.Expect(got).To(Equal(test.want), says)
			g.Expect(says).To(ContainSubstring(test.says))
		})
	}
}

func TestArtifact(t *testing.T) {
	g := NewWithT(t)
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}}
	_, err := l.artifact(seedInstance)
	g.Expect(err).To(MatchError(os.ErrNotExist))
	g.Expect(os.MkdirAll(filepath.Dir(l.artifacts()), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(l.artifacts(), []byte(`{"builds":[{"imageName":"gardener-extension-provider-local","tag":"r/a:1@sha256:2"}]}`), 0o600)).To(Succeed())
	g.Expect(l.artifact(gardenInstance)).To(Equal("r/a:1@sha256:2"))
	_, err = l.artifact(seedInstance)
	g.Expect(err).To(MatchError(HaveSuffix("has no " + seedInstance)))
}

func TestAReleaseIsBuiltWithWhatIsPinned(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("GOPROXY", "off")
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}}
	pins := l.Layout.Module("modules", "programs")
	g.Expect(os.MkdirAll(pins, 0o750)).To(Succeed())
	for _, name := range []string{"go.mod", "go.sum"} {
		g.Expect(os.WriteFile(filepath.Join(pins, name), []byte("module example.com/programs\n"), 0o600)).To(Succeed())
	}
	g.Expect(l.UseGardener(t.Context(), "v99.0.0")).To(MatchError(And(ContainSubstring("getting Gardener v99.0.0: "), ContainSubstring("GOPROXY=off"))))
	g.Expect(os.ReadFile(filepath.Join(l.Layout.Root, "bin/gardener/v99.0.0-programs.mod"))).To(BeEquivalentTo("module example.com/programs\n"))

	for gardener, expected := range map[string][2]string{
		"":                                {pins, ""},
		"/clones/gardener":                {"/clones/gardener", ""},
		"/clones/gardener@fix":            {"/clones/gardener@fix", ""},
		"/mod/gardener/gardener@v1.150.0": {pins, filepath.Join(l.Layout.Root, "bin/gardener/v1.150.0-programs.mod")},
	} {
		l.Gardener = gardener
		folder, modFile := l.gardenerModFile()
		g.Expect([2]string{folder, modFile}).To(Equal(expected), gardener)
	}
}
