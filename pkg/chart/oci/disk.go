// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
)

// maxHeader bounds the first line of a file.
const maxHeader = 64 << 10

// pulled is what a reference led to. In JSON it is the first line of a file on the disk; the archive follows.
type pulled struct {
	// Ref is the reference as configured, for a person who looks into the file.
	Ref string `json:"ref"`
	// Manifest and Chart are the digests of the manifest and of the archive.
	Manifest string `json:"manifest"`
	Chart    string `json:"chart"`

	// checked is when a registry was asked about it last.
	checked time.Time
	archive *chart.Archive
}

// unpack loads the chart from its packed archive, which helm package made.
func (p *pulled) unpack(packed []byte) error {
	files, err := (&unpacker{}).unpack(packed, 0)
	if err != nil {
		return err
	}
	loaded, err := loader.LoadFiles(files)
	if err != nil {
		return problemf(ReasonNotAChart, "loading it: %w", err)
	}
	p.archive = &chart.Archive{Chart: loaded, Digest: p.Chart}
	return nil
}

// disk is a folder with one file for each configured chart. The modification time of a file is when a registry was last
// asked about it. Files are replaced by renaming and verified when they are read, so a crash leaves nothing that is used.
type disk struct {
	root     *os.Root
	maxBytes int64
	// lock keeps two writers from using the same room.
	lock sync.Mutex
}

func openDisk(dir string, maxBytes int64) (*disk, error) {
	d := &disk{maxBytes: maxBytes}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		d.root, err = os.OpenRoot(dir)
	}
	if err == nil {
		err = d.makeRoom("", 0)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the folder of pulled charts %s: %w: the instance's user must be able to write to it", dir, err)
	}
	return d, nil
}

// read returns a chart that is yet to be unpacked, and its packed archive. The error is fs.ErrNotExist if there is no file.
func (d *disk) read(name string) (*pulled, []byte, error) {
	info, err := d.root.Stat(name)
	if err == nil && info.Size() > archiveBytes+maxHeader {
		err = errors.New("it is larger than any chart")
	}
	if err != nil {
		return nil, nil, err
	}
	raw, err := d.root.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	header, packed, _ := bytes.Cut(raw, []byte("\n"))
	found := &pulled{checked: info.ModTime()}
	if err := json.Unmarshal(header, found); err != nil {
		return nil, nil, err
	}
	if digestOf(packed) != found.Chart {
		return nil, nil, errors.New("its content does not match its digest")
	}
	return found, packed, nil
}

// write keeps a packed archive and evicts others to make room for it.
func (d *disk) write(name string, of *pulled, packed []byte, now time.Time) error {
	header, err := json.Marshal(of)
	if err != nil {
		return err
	}
	content := slices.Concat(header, []byte("\n"), packed)

	d.lock.Lock()
	defer d.lock.Unlock()
	if err := d.makeRoom(name, int64(len(content))); err != nil {
		return err
	}
	if err := d.root.WriteFile(name+".new", content, 0o600); err != nil {
		return errors.Join(err, d.root.RemoveAll(name+".new"))
	}
	if err := d.root.Rename(name+".new", name); err != nil {
		return err
	}
	return d.root.Chtimes(name, now, now)
}

// makeRoom removes files other than the one called name, the least recently used first, until size bytes are free.
func (d *disk) makeRoom(name string, size int64) error {
	if size > d.maxBytes {
		return fmt.Errorf("it has %d bytes, all charts together may have %d", size, d.maxBytes)
	}
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return err
	}
	var others []fs.FileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Name() != name {
			others = append(others, info)
			size += info.Size()
		}
	}
	slices.SortStableFunc(others, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for ; size > d.maxBytes; others = others[1:] {
		if err := d.root.RemoveAll(others[0].Name()); err != nil {
			return err
		}
		size -= others[0].Size()
	}
	return nil
}

func digestOf(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

// An archive is bounded together with the archives of subcharts in it.
const (
	// maxUnpackedBytes bounds what is decompressed, and maxFiles the number of files.
	maxUnpackedBytes, maxFiles = 32 << 20, 2000
	// maxFileBytes bounds each file. Helm has the same limit.
	maxFileBytes = 5 << 20
	// maxNesting is how deep archives of subcharts may be nested.
	maxNesting = 4
)

// unpacker unpacks an archive and those of its subcharts. Helm's loader would allow 100 MiB for each of them.
type unpacker struct {
	// bytes and files are how much was decompressed so far.
	bytes, files int
}

// countingReader counts what is decompressed, also between the files.
type countingReader struct {
	io.Reader
	unpacker *unpacker
}

// Read implements io.Reader.
func (r countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.unpacker.bytes += n; r.unpacker.bytes > maxUnpackedBytes {
		return 0, problemf(ReasonTooLarge, "decompressed it has more than %d bytes", maxUnpackedBytes)
	}
	return n, err
}

func (u *unpacker) unpack(archive []byte, depth int) (files []*loader.BufferedFile, err error) {
	if depth > maxNesting {
		return nil, problemf(ReasonUnsafeArchive, "archives of subcharts are nested more than %d deep", maxNesting)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, problemf(ReasonNotAChart, "decompressing it: %w", err)
	}

	reader, seen, top := tar.NewReader(countingReader{unzipped, u}), map[string]bool{}, ""
	for {
		header, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF) && len(files) > 0:
			return files, nil
		case errors.Is(err, io.EOF):
			return nil, problemf(ReasonNotAChart, "there are no files in it")
		case err != nil:
			return nil, problemf(ReasonNotAChart, "unpacking it: %w", err)
		case header.Typeflag == tar.TypeXGlobalHeader:
			continue
		}
		if u.files++; u.files > maxFiles {
			return nil, problemf(ReasonTooLarge, "there are more than %d files in it", maxFiles)
		}
		folder, name, err := safeName(header)
		if err != nil {
			return nil, err
		}
		top = cmp.Or(top, folder)
		switch {
		case folder != top:
			return nil, problemf(ReasonNotAChart, "file %q is not in the folder %q, as all others", header.Name, top)
		case header.Typeflag == tar.TypeDir:
			continue
		case seen[name]:
			return nil, problemf(ReasonUnsafeArchive, "file %q is there twice", header.Name)
		case header.Size > maxFileBytes:
			return nil, problemf(ReasonTooLarge, "file %q has %d bytes, more than %d", header.Name, header.Size, maxFileBytes)
		}
		seen[name] = true

		data, err := io.ReadAll(reader)
		if err != nil {
			return nil, problemf(ReasonNotAChart, "unpacking it: %w", err)
		}
		if !subchartArchive.MatchString(name) {
			files = append(files, &loader.BufferedFile{Name: name, Data: bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))})
			continue
		}
		subchart, err := u.unpack(data, depth+1)
		if err != nil {
			return nil, fmt.Errorf("subchart %q: %w", header.Name, err)
		}
		for _, file := range subchart {
			// The suffix keeps it apart from a folder of the same name.
			file.Name = name + ".d/" + file.Name
			files = append(files, file)
		}
	}
}

// subchartArchive matches the archives that Helm unpacks: charts/NAME.tgz, in the chart or in the folder of a subchart.
var subchartArchive = regexp.MustCompile(`^(charts/[^/_.][^/]*/)*charts/[^/_.][^/]*\.tgz$`)

// safeName splits the name of a file or folder into the top folder, which Helm calls like the chart, and the name in it. It
// rejects everything that is neither file nor folder, and names that lead elsewhere.
func safeName(header *tar.Header) (folder, name string, err error) {
	full, isFolder, sparse := header.Name, header.Typeflag == tar.TypeDir, false
	for record := range header.PAXRecords {
		sparse = sparse || strings.HasPrefix(record, "GNU.sparse.")
	}
	if isFolder {
		full = strings.TrimSuffix(full, "/")
	}
	folder, name, inside := strings.Cut(full, "/")
	switch {
	case header.Typeflag != tar.TypeReg && !isFolder, sparse:
		err = problemf(ReasonUnsafeArchive, "%q is neither a plain file nor a folder but of tar's type %q", header.Name, header.Typeflag)
	case !fs.ValidPath(full), full == ".", strings.ContainsAny(full, "\\\x00"), len(name) > 1 && name[1] == ':':
		err = problemf(ReasonUnsafeArchive, "the name %q is absolute, leads out of the archive, or is not clean", header.Name)
	case !inside && !isFolder:
		err = problemf(ReasonNotAChart, "file %q is not in a folder", header.Name)
	}
	return folder, name, err
}
