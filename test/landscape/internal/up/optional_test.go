// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/binaries"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestFurtherVersionsOfKubernetes(t *testing.T) {
	g := NewWithT(t)
	found, err := layout.Find(".")
	g.Expect(err).NotTo(HaveOccurred())
	example, err := os.ReadFile(filepath.Join(found.Root, "example", "50-cloudprofile.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	table, err := images.Load(nil)
	g.Expect(err).NotTo(HaveOccurred())

	// A repository with nothing in it but the example.
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}}
	g.Expect(os.MkdirAll(filepath.Join(l.Layout.Root, "example"), 0o700)).To(Succeed())
	g.Expect(os.MkdirAll(l.Layout.State(), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(l.Layout.Root, "example", "50-cloudprofile.yaml"), example, 0o600)).To(Succeed())

	expect := func(versions ...string) {
		t.Helper()
		profile, err := l.cloudProfile()
		g.Expect(err).NotTo(HaveOccurred())
		offered, _, err := unstructured.NestedSlice(profile.Object, "spec", "kubernetes", "versions")
		g.Expect(err).NotTo(HaveOccurred())
		var names []string
		for _, version := range offered {
			names = append(names, "v"+version.(map[string]any)["version"].(string))
		}
		g.Expect(names).To(Equal(versions))
		for _, real := range table.Programs() {
			if len(real.Versions) > 0 {
				g.Expect(l.served(real).Versions).To(Equal(versions), real.Name)
			}
		}
		var built []string
		for _, program := range l.programs() {
			if strings.HasPrefix(program.Optional, "1.") {
				built = append(built, program.Name)
			}
		}
		g.Expect(built).To(HaveLen(5*(len(versions)-2)), "there are five programs of each further version")
	}
	expect("v1.36.3", "v1.36.2")

	err = l.Use([]string{"1.34", "1.2"})
	g.Expect(err).To(MatchError(And(ContainSubstring(`no "1.2"`), ContainSubstring("1.35, 1.34, 1.33, observability"))))

	for _, minor := range []string{"1.34", "1.35"} {
		g.Expect(l.Use([]string{minor})).To(Succeed())
		g.Expect(l.saveOptional()).To(Succeed())
	}
	expect("v1.36.3", "v1.36.2", "v1.35.4", "v1.34.4")

	g.Expect(l.Use(nil)).To(Succeed())
	g.Expect(l.saveOptional()).To(Succeed())
	expect("v1.36.3", "v1.36.2", "v1.35.4", "v1.34.4")
	expectStandIn := func(expected images.Kind) {
		t.Helper()
		table, err := images.Load(l.Layout.Optional())
		g.Expect(err).NotTo(HaveOccurred())
		found, _ := table.Lookup("quay.io/prometheus/prometheus")
		g.Expect(found.Kind).To(Equal(expected))
	}
	expectStandIn(images.KindStandIn)
	g.Expect(l.Use([]string{Observability})).To(Succeed())
	g.Expect(os.Mkdir(l.Layout.State("containerd"), 0o700)).To(Succeed())
	g.Expect(l.saveOptional()).To(MatchError(ContainSubstring("make down, then make up COMPONENTS=observability")))
	g.Expect(os.Remove(l.Layout.State("containerd"))).To(Succeed())
	g.Expect(l.saveOptional()).To(Succeed())
	g.Expect(l.profiles()).To(HaveSuffix(",observability"))
	expectStandIn(images.KindReal)
	expect("v1.36.3", "v1.36.2", "v1.35.4", "v1.34.4")

	g.Expect(l.isUnused(binaries.Program{Name: "kubelet-v1.33.13", Optional: "1.33"})).To(BeTrue())
}
