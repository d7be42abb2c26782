// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

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

// unpack loads the chart from its packed archive.
func (p *pulled) unpack(packed []byte) error {
	loaded, err := load(packed, chartLimits())
	p.archive = &chart.Archive{Chart: loaded, Digest: p.Chart}
	return err
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
