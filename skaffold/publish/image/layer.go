// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// maxFile is the size in bytes that no file of an image may exceed: one that does is taken by mistake.
const maxFile = 4 << 30

// newLayer reads the files for the digests. They are read again when the layer is pushed and never held in memory. The
// compression is the fastest: most images go to a registry on the same machine.
func newLayer(files []File) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		// Closing the reader early ends the writing.
		go func() {
			buffered := bufio.NewWriterSize(writer, 1<<20)
			err := writeTar(buffered, files)
			writer.CloseWithError(errors.Join(err, buffered.Flush()))
		}()
		return reader, nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed))
}

// writeTar writes a tar of files sorted by destination, each folder before what is in it.
func writeTar(w io.Writer, files []File) error {
	out := tar.NewWriter(w)
	folders := map[string]bool{}
	for _, file := range files {
		if err := writeFolders(out, path.Dir(file.Destination), folders); err != nil {
			return err
		}
		if err := writeFile(out, file); err != nil {
			return fmt.Errorf("adding %s as %s: %w", file.Source, file.Destination, err)
		}
	}
	return out.Close()
}

func writeFolders(out *tar.Writer, folder string, written map[string]bool) error {
	if folder == "/" || written[folder] {
		return nil
	}
	if err := writeFolders(out, path.Dir(folder), written); err != nil {
		return err
	}
	written[folder] = true
	header := &tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(folder, "/") + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}
	if folder == "/tmp" {
		header.Mode = 0o1777
	}
	return out.WriteHeader(header)
}

func writeFile(out *tar.Writer, file File) error {
	source, err := os.Open(file.Source)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()

	info, err := source.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Size() > maxFile:
		return fmt.Errorf("%d bytes are more than the %d that a file may have", info.Size(), int64(maxFile))
	}
	if err := out.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg,
		Name:     strings.TrimPrefix(file.Destination, "/"),
		Mode:     0o755,
		Size:     info.Size(),
		ModTime:  time.Unix(0, 0),
	}); err != nil {
		return err
	}
	_, err = io.Copy(out, source)
	return err
}
