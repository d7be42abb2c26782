// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
)

// maxNesting is how deep archives of subcharts may be in each other.
const maxNesting = 4

// limits bound an archive.
type limits struct {
	// unpackedBytes bounds the archive when it is decompressed, together with archives of subcharts in it.
	unpackedBytes int64
	// fileBytes bounds each file in it, and files is how many there may be.
	fileBytes int64
	files     int
}

// chartLimits returns the limits of charts. Helm has the same one for a file.
func chartLimits() limits { return limits{unpackedBytes: 32 << 20, fileBytes: 5 << 20, files: 2000} }

// unpacker unpacks an archive, and those of subcharts in it, within one set of limits. Helm's loader would give each of
// them limits of its own, 100 MiB.
type unpacker struct {
	limits limits
	// bytes is how much was decompressed.
	bytes int64
	files int
}

// load returns the chart in an archive as helm package makes it.
func load(archive []byte, limits limits) (*helmchart.Chart, error) {
	u := &unpacker{limits: limits}
	files, err := u.unpack(archive, 0)
	if err != nil {
		return nil, err
	}
	loaded, err := loader.LoadFiles(files)
	if err != nil {
		return nil, problemf(ReasonNotAChart, "loading it: %w", err)
	}
	return loaded, nil
}

func (u *unpacker) unpack(archive []byte, depth int) ([]*loader.BufferedFile, error) {
	if depth > maxNesting {
		return nil, problemf(ReasonUnsafeArchive, "there are archives of subcharts in each other, more than %d deep", maxNesting)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, problemf(ReasonNotAChart, "decompressing it: %w", err)
	}

	var (
		reader = tar.NewReader(&bounded{reader: unzipped, unpacker: u})
		seen   = make(map[string]bool)
		files  []*loader.BufferedFile
		top    string
	)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, unpackError(err)
		}
		if header.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		folder, name, err := u.check(header)
		if err != nil {
			return nil, err
		}
		if top == "" {
			top = folder
		}
		if folder != top {
			return nil, problemf(ReasonNotAChart, "file %q is not in the folder %q, as all others", header.Name, top)
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		if seen[name] {
			return nil, problemf(ReasonUnsafeArchive, "file %q is there twice", header.Name)
		}
		seen[name] = true

		more, err := u.file(reader, header, name, depth)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	if len(files) == 0 {
		return nil, problemf(ReasonNotAChart, "there are no files in it")
	}
	return files, nil
}

// check returns the top folder, which Helm calls like the chart, and the name in it.
func (u *unpacker) check(header *tar.Header) (folder, name string, err error) {
	u.files++
	if u.files > u.limits.files {
		return "", "", problemf(ReasonTooLarge, "there are more than %d files in it", u.limits.files)
	}
	if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeDir {
		return "", "", problemf(ReasonUnsafeArchive, "%q is neither a file nor a folder but of tar's type %q", header.Name, header.Typeflag)
	}
	for record := range header.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return "", "", problemf(ReasonUnsafeArchive, "file %q is sparse", header.Name)
		}
	}

	full := header.Name
	if header.Typeflag == tar.TypeDir {
		full = strings.TrimSuffix(full, "/")
	}
	if !fs.ValidPath(full) || full == "." || strings.ContainsAny(full, "\\\x00") {
		return "", "", problemf(ReasonUnsafeArchive, "the name %q is absolute, leads out of the archive, or is not clean", header.Name)
	}
	folder, name, inside := strings.Cut(full, "/")
	if !inside && header.Typeflag != tar.TypeDir {
		return "", "", problemf(ReasonNotAChart, "file %q is not in a folder", header.Name)
	}
	if len(name) > 1 && name[1] == ':' {
		return "", "", problemf(ReasonUnsafeArchive, "the name %q is absolute on some systems", header.Name)
	}
	return folder, name, nil
}

// file returns the file that the reader is at. The archive of a subchart becomes a folder with its files.
func (u *unpacker) file(reader io.Reader, header *tar.Header, name string, depth int) ([]*loader.BufferedFile, error) {
	if header.Size > u.limits.fileBytes {
		return nil, problemf(ReasonTooLarge, "file %q has %d bytes, more than %d", header.Name, header.Size, u.limits.fileBytes)
	}
	data, err := io.ReadAll(io.LimitReader(reader, u.limits.fileBytes))
	if err != nil {
		return nil, unpackError(err)
	}

	if !isSubchartArchive(name) {
		return []*loader.BufferedFile{{Name: name, Data: bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))}}, nil
	}
	files, err := u.unpack(data, depth+1)
	if err != nil {
		return nil, fmt.Errorf("subchart %q: %w", header.Name, err)
	}
	for _, file := range files {
		// Not the name alone: a folder of that name may be there as well.
		file.Name = name + ".d/" + file.Name
	}
	return files, nil
}

// isSubchartArchive tells what Helm would unpack: charts/NAME.tgz, in the chart or in the folder of a subchart.
func isSubchartArchive(name string) bool {
	parts := strings.Split(name, "/")
	if len(parts)%2 != 0 || path.Ext(name) != ".tgz" {
		return false
	}
	for i, part := range parts {
		if i%2 == 0 && part != "charts" || i%2 == 1 && (part[0] == '_' || part[0] == '.') {
			return false
		}
	}
	return true
}

func (u *unpacker) count(n int64) error {
	if u.bytes += n; u.bytes > u.limits.unpackedBytes {
		return problemf(ReasonTooLarge, "decompressed it has more than %d bytes", u.limits.unpackedBytes)
	}
	return nil
}

// bounded counts what is decompressed, also what is between the files.
type bounded struct {
	reader   io.Reader
	unpacker *unpacker
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.reader.Read(p)
	if tooLarge := b.unpacker.count(int64(n)); tooLarge != nil {
		return 0, tooLarge
	}
	return n, err
}

func unpackError(err error) error {
	var known *problem
	if errors.As(err, &known) {
		return err
	}
	return problemf(ReasonNotAChart, "unpacking it: %w", err)
}
