// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocidigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
)

// maxFile is the size in bytes that no file of an image may exceed: one that does is taken by mistake.
const maxFile = 4 << 30

// maxTar is the size in bytes, unpacked, that no root file system may exceed.
const maxTar = 16 << 30

// content writes an uncompressed tar; each call writes the same bytes.
type content func(w io.Writer) error

// layer is a v1.Layer that keeps its digests and makes its bytes anew each time they are read.
type layer struct {
	content        content
	digest, diffID v1.Hash
	size           int64
}

// newLayer reads the content once: both digests come from the same pass.
func newLayer(c content) (v1.Layer, error) {
	var (
		compressed   = &counter{hash: sha256.New()}
		uncompressed = sha256.New()
	)
	if err := compress(c, compressed, uncompressed); err != nil {
		return nil, err
	}
	return &layer{content: c, digest: hashOf(compressed.hash), diffID: hashOf(uncompressed), size: compressed.size}, nil
}

// compress writes the content gzipped to w, and as it is to uncompressed. Its level is the fastest: most images go to a
// registry on the same machine.
func compress(c content, w, uncompressed io.Writer) error {
	zipper, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := c(io.MultiWriter(zipper, uncompressed)); err != nil {
		return err
	}
	return zipper.Close()
}

// Digest implements v1.Layer.
func (l *layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID implements v1.Layer.
func (l *layer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// Size implements v1.Layer.
func (l *layer) Size() (int64, error) { return l.size, nil }

// MediaType implements v1.Layer.
func (l *layer) MediaType() (types.MediaType, error) { return types.OCILayer, nil }

// Uncompressed implements v1.Layer.
func (l *layer) Uncompressed() (io.ReadCloser, error) { return pipe(l.content), nil }

// Compressed implements v1.Layer.
func (l *layer) Compressed() (io.ReadCloser, error) {
	return pipe(func(w io.Writer) error { return compress(l.content, w, io.Discard) }), nil
}

// pipe returns what write writes. Closing it early ends the writing.
func pipe(write content) io.ReadCloser {
	reader, writer := io.Pipe()
	go func() {
		buffered := bufio.NewWriterSize(writer, 1<<20)
		err := write(buffered)
		writer.CloseWithError(errors.Join(err, buffered.Flush()))
	}()
	return reader
}

type counter struct {
	hash hash.Hash
	size int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	return c.hash.Write(p)
}

func hashOf(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}
}

// fromTar is the content of a tar file, which may be gzipped.
func fromTar(name string) content {
	return func(w io.Writer) error {
		file, err := os.Open(name) // #nosec G304 -- the caller's own file
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()

		var reader io.Reader = bufio.NewReaderSize(file, 1<<20)
		if magic, _ := reader.(*bufio.Reader).Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
			if reader, err = gzip.NewReader(reader); err != nil {
				return err
			}
		}
		n, err := io.Copy(w, io.LimitReader(reader, maxTar+1))
		if err == nil && n > maxTar {
			err = fmt.Errorf("more than %d bytes, unpacked", int64(maxTar))
		}
		return err
	}
}

// fromFiles is a tar of files sorted by destination, each folder before what is in it.
func fromFiles(files []File) content {
	return func(w io.Writer) error {
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
		Mode:     int64(file.Mode.Perm()),
		Size:     info.Size(),
		ModTime:  time.Unix(0, 0),
	}); err != nil {
		return err
	}
	_, err = io.Copy(out, source)
	return err
}

// artifactOf is an image in the form that is pushed.
func artifactOf(img v1.Image) (oci.Artifact, error) {
	manifest, err := img.Manifest()
	if err != nil {
		return oci.Artifact{}, err
	}
	raw, err := img.RawManifest()
	if err != nil {
		return oci.Artifact{}, err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return oci.Artifact{}, err
	}

	artifact := oci.Artifact{MediaType: string(manifest.MediaType), Manifest: raw, Blobs: []oci.Blob{{
		Descriptor: descriptorOf(manifest.Config),
		Open:       func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(config)), nil },
	}}}
	layers, err := img.Layers()
	if err != nil {
		return oci.Artifact{}, err
	}
	for i, layer := range layers {
		artifact.Blobs = append(artifact.Blobs, oci.Blob{Descriptor: descriptorOf(manifest.Layers[i]), Open: layer.Compressed})
	}
	return artifact, nil
}

// artifactOfIndex is an image index in the form that is pushed.
func artifactOfIndex(index v1.ImageIndex) (oci.Artifact, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return oci.Artifact{}, err
	}
	raw, err := index.RawManifest()
	if err != nil {
		return oci.Artifact{}, err
	}
	artifact := oci.Artifact{MediaType: string(manifest.MediaType), Manifest: raw}
	for _, descriptor := range manifest.Manifests {
		img, err := index.Image(descriptor.Digest)
		if err != nil {
			return oci.Artifact{}, err
		}
		child, err := artifactOf(img)
		if err != nil {
			return oci.Artifact{}, err
		}
		artifact.Manifests = append(artifact.Manifests, child)
	}
	return artifact, nil
}

func descriptorOf(descriptor v1.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{
		MediaType: string(descriptor.MediaType),
		Digest:    ocidigest.Digest(descriptor.Digest.String()),
		Size:      descriptor.Size,
	}
}
