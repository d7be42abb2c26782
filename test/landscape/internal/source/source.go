// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package source has the sources of this repository in released programs, so that they bring a landscape up outside of a clone: Skaffold,
// charts and the extension itself are built from them. `make landscape` writes the archive and builds with the tag release.
package source

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// stamp is the file with the digest of the archive that a folder was made of, which is empty until it is whole, and below it the names of
// the files that came from it. Only these are ever removed.
const stamp = ".unpacked"

// Included reports whether this program has the sources.
func Included() bool { return len(archive) > 0 }

// Unpacked reports whether a folder has sources that Unpack wrote.
func Unpacked(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, stamp))
	return err == nil
}

// Unpack makes sure that a folder has the sources of this program: those of another version are replaced, and any other file there stays. A
// folder with files that is none of ours is refused. It returns the paths of the files and folders that it wrote.
func Unpack(folder string) ([]string, error) { return unpack(archive, folder) }

func unpack(archive []byte, folder string) ([]string, error) {
	sum := sha256.Sum256(archive)
	want := hex.EncodeToString(sum[:])
	content, errStamp := os.ReadFile(filepath.Join(folder, stamp)) // #nosec G304 -- the landscape's own folder.
	have, former, _ := strings.Cut(string(content), "\n")
	if have == want {
		return nil, nil
	}
	if there, err := os.ReadDir(folder); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("unpacking the sources: %w", err)
	} else if errStamp != nil && len(there) > 0 {
		return nil, fmt.Errorf("unpacking the sources: %s has files of others; choose another --folder", folder)
	}
	var written []string
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err == nil {
		written, err = replace(files, folder, want, strings.FieldsFunc(former, func(r rune) bool { return r == '\n' }))
	}
	if err != nil {
		return nil, fmt.Errorf("unpacking the sources: %w", err)
	}
	return written, nil
}

// replace removes the former files and writes those of the archive.
func replace(archive *zip.Reader, folder, digest string, former []string) ([]string, error) {
	var names []string
	written := []string{folder, filepath.Join(folder, stamp)}
	for _, file := range archive.File {
		written = append(written, filepath.Join(folder, file.Name))
		if !file.Mode().IsDir() {
			names = append(names, file.Name)
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { // #nosec G301 -- sources.
		return nil, err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	note := func(digest string, names []string) error {
		return root.WriteFile(stamp, []byte(digest+"\n"+strings.Join(names, "\n")), 0o644) // #nosec G306 -- sources.
	}
	// If this is interrupted, all of them go next time.
	if err := note("", append(names, former...)); err != nil {
		return nil, err
	}
	for _, name := range former {
		if err := root.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		// Folders go with their last file.
		for above := path.Dir(name); above != "." && root.Remove(above) == nil; above = path.Dir(above) {
		}
	}
	for _, file := range archive.File {
		if err := extract(root, archive, file); err != nil {
			return nil, err
		}
	}
	return written, note(digest, names)
}

func extract(root *os.Root, archive *zip.Reader, file *zip.File) error {
	if file.Mode().IsDir() {
		return root.MkdirAll(filepath.Clean(file.Name), 0o755) // #nosec G301 -- sources.
	}
	content, err := fs.ReadFile(archive, file.Name)
	switch {
	case err != nil:
		return err
	case file.Mode()&fs.ModeSymlink != 0:
		return root.Symlink(string(content), file.Name)
	}
	return root.WriteFile(file.Name, content, file.Mode().Perm()&^0o022)
}
