// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// maxHeader bounds the first line of a file in the cache.
const maxHeader = 64 << 10

// entry is what a reference led to. It is the first line of a file in the cache, in JSON; the archive follows.
type entry struct {
	// Ref is the reference as configured, for a person who looks into the file.
	Ref string `json:"ref"`
	// Manifest and Chart are the digests of the manifest and of the archive.
	Manifest string `json:"manifest"`
	Chart    string `json:"chart"`
}

// disk is a folder with one file for each configured chart. The modification time of a file is when the registry was last
// asked about it. Files are replaced by renaming and verified when they are read, so a crash leaves nothing that is used.
type disk struct {
	root     *os.Root
	maxBytes int64
	lock     sync.Mutex
}

func openDisk(dir string, maxBytes int64) (*disk, error) {
	fail := func(err error) (*disk, error) {
		return nil, fmt.Errorf("opening the folder of pulled charts %s: %w: the instance's user must be able to write to it", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fail(err)
	}
	d := &disk{root: root, maxBytes: maxBytes}
	if err := d.makeRoom("", 0); err != nil {
		return fail(errors.Join(err, root.Close()))
	}
	return d, nil
}

// fileName returns the name of the file for what these inputs lead to.
func fileName(inputs ...any) (string, error) {
	raw, err := json.Marshal(inputs)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), err
}

// read returns what is in a file, and when the registry was asked about it. The error is fs.ErrNotExist if there is no file.
func (d *disk) read(name string) (found entry, archive []byte, checked time.Time, err error) {
	file, err := d.root.Open(name)
	if err != nil {
		return found, nil, checked, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return found, nil, checked, err
	}
	raw, err := io.ReadAll(io.LimitReader(file, archiveBytes+maxHeader))
	if err != nil {
		return found, nil, checked, err
	}
	header, archive, _ := bytes.Cut(raw, []byte("\n"))
	if err := json.Unmarshal(header, &found); err != nil {
		return found, nil, checked, err
	}
	if digestOf(archive) != found.Chart {
		return found, nil, checked, errors.New("its content does not match its digest")
	}
	return found, archive, info.ModTime(), nil
}

// write keeps an archive and removes what must go to make room for it.
func (d *disk) write(name string, e entry, archive []byte, now time.Time) error {
	header, err := json.Marshal(e)
	if err != nil {
		return err
	}
	content := slices.Concat(header, []byte("\n"), archive)

	d.lock.Lock()
	defer d.lock.Unlock()
	if int64(len(content)) > d.maxBytes {
		return fmt.Errorf("it has %d bytes, all charts together may have %d", len(content), d.maxBytes)
	}
	if err := d.makeRoom(name, int64(len(content))); err != nil {
		return err
	}
	if err := d.root.WriteFile(name+".new", content, 0o600); err != nil {
		return errors.Join(err, d.remove(name+".new"))
	}
	if err := d.root.Rename(name+".new", name); err != nil {
		return err
	}
	return d.touch(name, now)
}

// makeRoom removes files other than the one called name, those used longest ago first, until size bytes are free.
func (d *disk) makeRoom(name string, size int64) error {
	files, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return err
	}
	var others []fs.FileInfo
	for _, file := range files {
		info, err := file.Info()
		if err != nil {
			return err
		}
		if info.Name() != name {
			others = append(others, info)
			size += info.Size()
		}
	}
	slices.SortStableFunc(others, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range others {
		if size <= d.maxBytes {
			break
		}
		if err := d.remove(info.Name()); err != nil {
			return err
		}
		size -= info.Size()
	}
	return nil
}

func (d *disk) touch(name string, now time.Time) error { return d.root.Chtimes(name, now, now) }

func (d *disk) remove(name string) error { return d.root.RemoveAll(name) }
