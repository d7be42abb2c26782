// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package source has the sources of this repository in released programs, so that they bring a landscape up outside of a clone: Skaffold,
// charts and the extension itself are built from them. `make landscape` writes the archive and builds with the tag release.
package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// stamp is the file that tells which archive a folder has been made of.
const stamp = ".unpacked"

// kept are what the landscape makes in the folder.
var kept = map[string]bool{"bin": true, ".landscape": true, ".kind": true}

// Included reports whether this program has the sources.
func Included() bool { return len(archive) > 0 }

// Unpack makes sure that a folder has the sources of this program. What the landscape made there stays; the sources of another version are
// replaced. A folder with anything else is refused.
func Unpack(folder string) error { return unpack(archive, folder) }

func unpack(archive []byte, folder string) error {
	sum := sha256.Sum256(archive)
	want := hex.EncodeToString(sum[:])
	have, err := os.ReadFile(filepath.Join(folder, stamp)) // #nosec G304 -- the landscape's own folder.
	if err == nil && string(have) == want {
		return nil
	}
	there, errDir := os.ReadDir(folder)
	if errDir != nil && !errors.Is(errDir, os.ErrNotExist) {
		return fmt.Errorf("unpacking the sources: %w", errDir)
	}
	if err != nil && len(there) > 0 {
		return fmt.Errorf("unpacking the sources: %s has files of others; choose another --folder", folder)
	}
	for _, entry := range there {
		if !kept[entry.Name()] {
			if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
				return fmt.Errorf("unpacking the sources: %w", err)
			}
		}
	}
	// The stamp comes last: half of the sources are replaced next time. Before that, it only marks the folder as ours.
	err = os.MkdirAll(folder, 0o755) // #nosec G301 -- sources.
	for _, write := range []func() error{
		func() error { return os.WriteFile(filepath.Join(folder, stamp), nil, 0o644) }, // #nosec G306 -- sources.
		func() error { return extract(archive, folder) },
		func() error { return os.WriteFile(filepath.Join(folder, stamp), []byte(want), 0o644) }, // #nosec G306 -- sources.
	} {
		if err == nil {
			err = write()
		}
	}
	if err != nil {
		return fmt.Errorf("unpacking the sources: %w", err)
	}
	return nil
}

func extract(archive []byte, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	for files := tar.NewReader(zipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(filepath.Clean(header.Name), 0o755) // #nosec G301 -- sources.
		case tar.TypeReg:
			err = write(root, header, files)
		case tar.TypeSymlink:
			err = root.Symlink(header.Linkname, header.Name)
		}
		if err != nil {
			return err
		}
	}
}

func write(root *os.Root, header *tar.Header, content io.Reader) error {
	file, err := root.OpenFile(header.Name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, header.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content) // #nosec G110 -- the program's own archive.
	return errors.Join(err, file.Close())
}
