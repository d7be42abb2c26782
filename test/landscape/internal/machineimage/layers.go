// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machineimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/debian"
)

func newBytesLayer(content []byte) v1.Layer { return static.NewLayer(content, debian.LayerType) }

// packTrees packs folders into one tar archive, the same for the same content: in the order of their names, of root, with
// no times, and with no other permissions than that to execute. A path may be in several folders as a folder only. Files name
// the registry as REGISTRY.
func packTrees(registry string, roots ...string) ([]byte, error) {
	entries := map[string]string{}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || path == root {
				return err
			}
			name := strings.TrimPrefix(path, root+string(filepath.Separator))
			if other, found := entries[name]; found && !entry.IsDir() {
				return fmt.Errorf("%s and %s are the same file of the image", other, path)
			}
			entries[name] = path
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names)

	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, name := range names {
		if err := pack(writer, name, entries[name], registry); err != nil {
			return nil, err
		}
	}
	return buffer.Bytes(), writer.Close()
}

func pack(writer *tar.Writer, name, path, registry string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	header := tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	var content []byte
	switch {
	case info.IsDir():
		header.Typeflag, header.Mode = tar.TypeDir, 0o755
		header.Name += "/"
	case info.Mode()&fs.ModeSymlink != 0:
		header.Typeflag, header.Mode = tar.TypeSymlink, 0o777
		if header.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
	case info.Mode().IsRegular():
		header.Typeflag = tar.TypeReg
		if info.Mode()&0o111 != 0 {
			header.Mode = 0o755
		}
		if content, err = os.ReadFile(path); err != nil { // #nosec G304 -- a file of this repository.
			return err
		}
		content = bytes.ReplaceAll(content, []byte("REGISTRY"), []byte(registry))
		header.Size = int64(len(content))
	default:
		return fmt.Errorf("%s is neither a file nor a folder nor a link", path)
	}
	if err := writer.WriteHeader(&header); err != nil {
		return err
	}
	_, err = writer.Write(content)
	return err
}
