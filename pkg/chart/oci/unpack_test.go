// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
)

// load returns the chart in an archive.
func load(archive []byte) (*helmchart.Chart, error) {
	p := &pulled{}
	if err := p.unpack(archive); err != nil {
		return nil, err
	}
	return p.archive.Chart, nil
}

const chartYAML = "apiVersion: v2\nname: app\nversion: 1.0.0\n"

func tarOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	g := NewWithT(t)
	out := &bytes.Buffer{}
	writer := tar.NewWriter(out)
	for _, header := range headers {
		// The link name stands for the content of a file.
		content := ""
		if header.Typeflag == 0 || header.Typeflag == tar.TypeReg {
			content, header.Linkname = header.Linkname, ""
		}
		header.Size = int64(len(content))
		g.Expect(writer.WriteHeader(&header)).To(Succeed())
		_, err := io.WriteString(writer, content)
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(writer.Close()).To(Succeed())
	return out.Bytes()
}

func zip(t testing.TB, raw []byte) []byte {
	t.Helper()
	out := &bytes.Buffer{}
	writer := gzip.NewWriter(out)
	_, err := writer.Write(raw)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(writer.Close()).To(Succeed())
	return out.Bytes()
}

func file(name, content string) tar.Header { return tar.Header{Name: name, Linkname: content} }

func TestOnlyArchivesThatAreSafeAreUnpacked(t *testing.T) {
	many := []tar.Header{file("app/Chart.yaml", chartYAML)}
	for range maxFiles {
		many = append(many, file("app/files/"+strconv.Itoa(len(many)), ""))
	}
	var large []tar.Header
	for i := range maxUnpackedBytes/maxFileBytes + 1 {
		large = append(large, file("app/"+strconv.Itoa(i), strings.Repeat("x", maxFileBytes)))
	}
	for name, tt := range map[string]struct {
		headers []tar.Header
		reason  Reason
	}{
		"a name that leads up":                {[]tar.Header{file("app/../../etc/passwd", "")}, ReasonUnsafeArchive},
		"a name that leads up and comes back": {[]tar.Header{file("app/../app/Chart.yaml", "")}, ReasonUnsafeArchive},
		"a name that begins above":            {[]tar.Header{file("../app/Chart.yaml", "")}, ReasonUnsafeArchive},
		"an absolute name":                    {[]tar.Header{file("/etc/passwd", "")}, ReasonUnsafeArchive},
		"a name of Windows":                   {[]tar.Header{file(`app\..\..\x`, "")}, ReasonUnsafeArchive},
		"a drive of Windows":                  {[]tar.Header{file("app/c:/x", "")}, ReasonUnsafeArchive},
		"a folder above":                      {[]tar.Header{{Name: "../", Typeflag: tar.TypeDir}}, ReasonUnsafeArchive},
		"a symbolic link":                     {[]tar.Header{{Name: "app/x", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}, ReasonUnsafeArchive},
		"a hard link":                         {[]tar.Header{{Name: "app/x", Typeflag: tar.TypeLink, Linkname: "app/y"}}, ReasonUnsafeArchive},
		"a device":                            {[]tar.Header{{Name: "app/x", Typeflag: tar.TypeChar}}, ReasonUnsafeArchive},
		"a pipe":                              {[]tar.Header{{Name: "app/x", Typeflag: tar.TypeFifo}}, ReasonUnsafeArchive},
		"a file that is there twice":          {[]tar.Header{file("app/Chart.yaml", chartYAML), file("app/Chart.yaml", "")}, ReasonUnsafeArchive},
		"too many files":                      {many, ReasonTooLarge},
		"a file that is too large":            {[]tar.Header{file("app/x", strings.Repeat("x", maxFileBytes+1))}, ReasonTooLarge},
		"files that are too large together":   {large, ReasonTooLarge},
		"a bomb as the archive of a subchart": {[]tar.Header{
			file("app/Chart.yaml", chartYAML), file("app/charts/sub.tgz", string(zip(t, make([]byte, 1<<20)))),
		}, ReasonNotAChart},
		"a bomb in a file of a subchart": {[]tar.Header{
			file("app/Chart.yaml", chartYAML), file("app/charts/sub.tgz", string(zip(t, tarOf(t, file("sub/x", strings.Repeat("x", maxFileBytes+1)))))),
		}, ReasonTooLarge},
		"a file without a folder": {[]tar.Header{file("Chart.yaml", chartYAML)}, ReasonNotAChart},
		"files of two charts":     {[]tar.Header{file("app/Chart.yaml", chartYAML), file("other/Chart.yaml", chartYAML)}, ReasonNotAChart},
		"no file":                 {[]tar.Header{{Name: "app/", Typeflag: tar.TypeDir}}, ReasonNotAChart},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := load(zip(t, tarOf(t, tt.headers...)))
			g.Expect(err).To(HaveOccurred())
			g.Expect(classify(err)).To(Equal(tt.reason), err.Error())
		})
	}
}

func TestArchivesInEachOtherAreBounded(t *testing.T) {
	g := NewWithT(t)
	archive := zip(t, tarOf(t, file("app/Chart.yaml", chartYAML)))
	for range maxNesting {
		archive = zip(t, tarOf(t, file("app/Chart.yaml", chartYAML), file("app/charts/sub.tgz", string(archive))))
	}
	_, err := load(archive)
	g.Expect(err).NotTo(HaveOccurred())

	archive = zip(t, tarOf(t, file("app/Chart.yaml", chartYAML), file("app/charts/sub.tgz", string(archive))))
	_, err = load(archive)
	g.Expect(err).To(MatchError(ContainSubstring("more than 4 deep")))
}

func TestAChartWithSubchartsIsLoadedAsHelmDoes(t *testing.T) {
	g := NewWithT(t)
	sub := zip(t, tarOf(t, file("sub/Chart.yaml", "apiVersion: v2\nname: sub\nversion: 2.0.0\n"), file("sub/templates/x.yaml", "a: b\n")))
	archive := zip(t, tarOf(t,
		tar.Header{Name: "pax_global_header", Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "of git archive"}},
		tar.Header{Name: "app/", Typeflag: tar.TypeDir},
		file("app/Chart.yaml", "\xef\xbb\xbf"+chartYAML), file("app/values.yaml", "a: 1\n"), file("app/charts/sub.tgz", string(sub)),
		file("app/charts/_off.tgz", "no archive"), file("app/files/charts/x.tgz", "no subchart"),
		file("app/charts/dir/Chart.yaml", "apiVersion: v2\nname: dir\nversion: 3.0.0\n"), file("app/charts/dir/charts/sub.tgz", string(sub)),
	))
	ours, err := load(archive)
	g.Expect(err).NotTo(HaveOccurred())
	helms, err := loader.LoadArchive(bytes.NewReader(archive))
	g.Expect(err).NotTo(HaveOccurred())

	names := func(of []string, add ...string) []string { return append(of, add...) }
	var got, want []string
	for _, c := range ours.Dependencies() {
		got = names(got, c.Name(), c.Metadata.Version)
		for _, d := range c.Dependencies() {
			got = names(got, d.ChartFullPath())
		}
	}
	for _, c := range helms.Dependencies() {
		want = names(want, c.Name(), c.Metadata.Version)
		for _, d := range c.Dependencies() {
			want = names(want, d.ChartFullPath())
		}
	}
	g.Expect(got).To(ConsistOf(want))
	g.Expect(ours.Values).To(Equal(helms.Values))
	g.Expect(ours.Files).To(Equal(helms.Files))
	g.Expect(ours.Metadata).To(Equal(helms.Metadata))
}

// FuzzLoad feeds the unpacker with archives that nobody packed, and with tars that nobody wrote.
func FuzzLoad(f *testing.F) {
	sub := zip(f, tarOf(f, file("sub/Chart.yaml", "apiVersion: v2\nname: sub\nversion: 2.0.0\n")))
	good := tarOf(f, file("app/Chart.yaml", chartYAML), file("app/charts/sub.tgz", string(sub)), file("app/templates/a.yaml", "a: b"))
	for _, raw := range [][]byte{good, tarOf(f, file("app/../x", "")), tarOf(f, tar.Header{Name: "app/x", Typeflag: tar.TypeSymlink, Linkname: "/"}), nil} {
		f.Add(raw)
		f.Add(zip(f, raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 64<<10 {
			return
		}
		for _, archive := range [][]byte{raw, zip(t, raw)} {
			u := &unpacker{}
			files, err := u.unpack(archive, 0)
			if err != nil {
				continue
			}
			if u.files > maxFiles || u.bytes > maxUnpackedBytes {
				t.Errorf("%d files with %d bytes", u.files, u.bytes)
			}
			total := 0
			for _, file := range files {
				total += len(file.Data)
				if len(file.Data) > maxFileBytes || strings.HasPrefix(file.Name, "/") || strings.Contains("/"+file.Name+"/", "/../") {
					t.Errorf("%q with %d bytes", file.Name, len(file.Data))
				}
			}
			if total > u.bytes {
				t.Errorf("%d bytes were counted, there are %d", u.bytes, total)
			}
			_, _ = load(archive)
		}
	})
}
