// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// LayerType says that layers aren't compressed: they only ever cross the loopback device.
const LayerType = types.OCIUncompressedLayer

// fileLayer is a tar archive on disk, too large to be held in memory.
type fileLayer struct {
	path   string
	digest v1.Hash
	size   int64
}

func newFileLayer(path string) (v1.Layer, error) {
	file, err := os.Open(path) // #nosec G304 -- in the landscape's own cache.
	if err != nil {
		return nil, fmt.Errorf("reading the layer %s: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	digest, size, err := v1.SHA256(file)
	if err != nil {
		return nil, fmt.Errorf("reading the layer %s: %w", path, err)
	}
	return fileLayer{path: path, digest: digest, size: size}, nil
}

func (l fileLayer) Digest() (v1.Hash, error)             { return l.digest, nil }
func (l fileLayer) DiffID() (v1.Hash, error)             { return l.digest, nil }
func (l fileLayer) Compressed() (io.ReadCloser, error)   { return os.Open(l.path) }
func (l fileLayer) Uncompressed() (io.ReadCloser, error) { return os.Open(l.path) }
func (l fileLayer) Size() (int64, error)                 { return l.size, nil }
func (l fileLayer) MediaType() (types.MediaType, error)  { return LayerType, nil }
