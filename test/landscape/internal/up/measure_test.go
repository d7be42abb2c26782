// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestMeasureNeedsProgramsAndNoLandscape(t *testing.T) {
	g := NewWithT(t)
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}, Out: io.Discard, Now: time.Now}
	if os.Geteuid() != 0 {
		g.Expect(l.Measure(t.Context(), false)).To(MatchError(ContainSubstring("run sudo make times")))
		return
	}
	g.Expect(l.Measure(t.Context(), false)).To(MatchError(ContainSubstring("run make up and make down first")))
	store, err := oci.New(l.Layout.Snapshots())
	g.Expect(err).NotTo(HaveOccurred())
	saved, err := oras.PackManifest(t.Context(), store, oras.PackManifestVersion1_1, "application/x", oras.PackManifestOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(store.Tag(t.Context(), saved, "times")).To(Succeed())
	g.Expect(l.Measure(t.Context(), false)).To(MatchError(ContainSubstring(`there is a snapshot "times"`)))
	g.Expect(os.Mkdir(l.Layout.State(), 0o700)).To(Succeed())
	g.Expect(l.Measure(t.Context(), false)).To(MatchError(ContainSubstring("run make down first")))
}

func TestTheEditIsThereOnlyMeanwhile(t *testing.T) {
	g := NewWithT(t)
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}, Now: time.Now}
	path := filepath.Join(l.Layout.Root, edited)
	g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	failure := errors.New("interrupted")
	err := l.withEdit(func(context.Context) error {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.AllErrors)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(file.Name.Name).To(Equal("reconciler"))
		return failure
	})(t.Context())
	g.Expect(err).To(MatchError(failure))
	g.Expect(path).NotTo(BeAnExistingFile())
}
