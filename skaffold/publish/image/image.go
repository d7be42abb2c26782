// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package image makes container images of files without a container engine, and pushes them. The program publish uses it
// for the images of this repository, tests use it for programs of their own. The same files always give the same digest:
// there are no times in an image, and no order but the one of the names.
package image

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
)

// File is a file of an image. It belongs to root and can be executed.
type File struct {
	// Source is a file on this machine. It is read when the image is built and again when it is pushed, and must not change
	// in between.
	Source string
	// Destination is the absolute path in the image.
	Destination string
}

// Spec is what an image is made of.
type Spec struct {
	// Files are its only layer.
	Files []File
	// Entrypoint and Labels are those of the OCI image configuration.
	Entrypoint []string
	Labels     map[string]string
	// Architecture is Go's name of it. Default: the one of this machine.
	Architecture string
	// Compression is gzip's level. Default: none, which is the fastest for a registry on the same machine.
	Compression int
}

// NonRoot is the user of an image: one who is nobody, by number, so that runAsNonRoot can be checked.
const NonRoot = "65532:65532"

// Build makes an image. Nothing of its content is held in memory: the files are read here, for the digests, and once more
// when the image is pushed.
func Build(spec Spec) (v1.Image, error) {
	if len(spec.Files) == 0 {
		return nil, errors.New("an image needs a file at least")
	}
	files, err := sorted(spec.Files)
	if err != nil {
		return nil, err
	}
	layer, err := newLayer(files, spec.Compression)
	if err != nil {
		return nil, fmt.Errorf("making a layer of files: %w", err)
	}
	plain := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err := mutate.ConfigFile(plain, &v1.ConfigFile{
		OS: "linux", Architecture: cmp.Or(spec.Architecture, runtime.GOARCH), RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: spec.Entrypoint, User: NonRoot, Labels: maps.Clone(spec.Labels)},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the image configuration: %w", err)
	}
	return mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Comment: "files"}})
}

// sorted checks the files and sorts them by destination.
func sorted(files []File) ([]File, error) {
	sorted := slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Destination, b.Destination) })
	for i, file := range sorted {
		if !path.IsAbs(file.Destination) || path.Clean(file.Destination) != file.Destination || file.Destination == "/" {
			return nil, fmt.Errorf("file %s: destination %q must be an absolute, clean path", file.Source, file.Destination)
		}
		if i > 0 && sorted[i-1].Destination == file.Destination {
			return nil, fmt.Errorf("files %s and %s have the same destination %s", sorted[i-1].Source, file.Source, file.Destination)
		}
	}
	return sorted, nil
}

// Index returns the image index with these images, one for each architecture, in their order.
func Index(images []v1.Image) (v1.ImageIndex, error) {
	var adds []mutate.IndexAddendum
	for _, img := range images {
		config, err := img.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("reading image configuration: %w", err)
		}
		adds = append(adds, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	return mutate.AppendManifests(empty.Index, adds...), nil
}

// Push pushes an image or an index of images to ref (HOST[:PORT]/REPOSITORY:TAG) and returns its reference by digest.
func Push(ctx context.Context, ref string, artifact oci.Artifact, opts oci.Options) (string, error) {
	client, err := oci.NewClient(opts)
	if err != nil {
		return "", err
	}
	return client.Push(ctx, ref, artifact)
}

// maxFile is the size in bytes that no file of an image may exceed: one that does is taken by mistake.
const maxFile = 4 << 30

// newLayer reads the files for the digests. They are read again when the layer is pushed and never held in memory.
func newLayer(files []File, compression int) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		// Closing the reader early ends the writing.
		go func() {
			buffered := bufio.NewWriterSize(writer, 1<<20)
			err := writeTar(buffered, files)
			writer.CloseWithError(errors.Join(err, buffered.Flush()))
		}()
		return reader, nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(compression))
}

// writeTar writes a tar of files sorted by destination, each folder before what is in it.
func writeTar(w io.Writer, files []File) error {
	out := tar.NewWriter(w)
	folders := map[string]bool{"/": true}
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
	if written[folder] {
		return nil
	}
	written[folder] = true
	if err := writeFolders(out, path.Dir(folder), written); err != nil {
		return err
	}
	return out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder[1:] + "/", Mode: 0o755, ModTime: time.Unix(0, 0)})
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
	header := &tar.Header{Typeflag: tar.TypeReg, Name: file.Destination[1:], Mode: 0o755, Size: info.Size(), ModTime: time.Unix(0, 0)}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(out, source)
	return err
}
