// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
)

func load(t *testing.T, fsys fs.FS, dir string) *chart.Archive {
	t.Helper()
	archive, err := chart.Embedded(fsys, dir).Load(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return archive
}

func TestTheDigestIsOverNamesAndContentsOfAllFiles(t *testing.T) {
	g := NewWithT(t)
	base := load(t, files(), "charts/app")
	g.Expect(base.Chart.Name()).To(Equal("app"))
	g.Expect(base.Digest).To(MatchRegexp("^sha256:[0-9a-f]{64}$"))
	g.Expect(load(t, files(), "charts/app").Digest).To(Equal(base.Digest))

	moved := fstest.MapFS{}
	for name, file := range files() {
		moved[strings.Replace(name, "charts/app", "elsewhere", 1)] = file
	}
	g.Expect(load(t, moved, "elsewhere").Digest).To(Equal(base.Digest), "the folder's own name does not count")

	for name, more := range map[string]map[string]string{
		"another file":    {"templates/c.yaml": ""},
		"another content": {"templates/b.yaml": "{{- if .Values.off }}\napiVersion: v2\n{{- end }}\n"},
	} {
		g.Expect(load(t, files(more), "charts/app").Digest).NotTo(Equal(base.Digest), name)
	}
	g.Expect(load(t, files(map[string]string{"x": "ab"}), "charts/app").Digest).
		NotTo(Equal(load(t, files(map[string]string{"xa": "b"}), "charts/app").Digest))
}

func TestFilesAreReadOnce(t *testing.T) {
	g := NewWithT(t)
	fsys := files()
	source := chart.Embedded(fsys, "charts/app")
	first, err := source.Load(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	clear(fsys)
	g.Expect(source.Load(t.Context())).To(BeIdenticalTo(first))
}

func TestFoldersThatAreNoChartAreAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		fsys         fstest.MapFS
		dir, message string
	}{
		"a folder that is not there":  {files(), "charts/other", "reading chart in charts/other: "},
		"a name that is not valid":    {files(), "../charts", "reading chart in ../charts: "},
		"a folder without Chart.yaml": {files(), "charts/app/templates", "loading chart in charts/app/templates: Chart.yaml file is missing"},
		"a broken values.yaml":        {files(map[string]string{"values.yaml": "\t"}), "charts/app", "cannot load values.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := chart.Embedded(tt.fsys, tt.dir).Load(t.Context())
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tt.message)))
		})
	}
}

func TestACancelledContextEndsALoad(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := embedded().Load(ctx)
	NewWithT(t).Expect(err).To(MatchError(context.Canceled))
}
