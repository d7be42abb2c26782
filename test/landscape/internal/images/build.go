// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Pusher makes the real images and pushes them.
type Pusher struct {
	// Registry is host:port of a registry that speaks plain HTTP.
	Registry string
	// Binary returns a program's path.
	Binary func(name string) string
}

// Repository is the name under which the registry keeps a real image.
func Repository(image string) string { return "real/" + image }

// Push makes sure that the registry has the image as it is built from the present program, tagged latest, and tells
// whether it had to push.
func (p Pusher) Push(ctx context.Context, real Real) (bool, error) {
	tag, err := p.inputTag(real)
	if err != nil {
		return false, err
	}
	repository, err := name.NewRepository(p.Registry+"/"+Repository(real.Name), name.Insecure)
	if err != nil {
		return false, fmt.Errorf("pushing image %s: %w", real.Name, err)
	}
	_, err = remote.Head(repository.Tag(tag), remote.WithContext(ctx))
	if err == nil {
		return false, nil
	}
	var response *transport.Error
	if !errors.As(err, &response) || response.StatusCode != http.StatusNotFound {
		return false, fmt.Errorf("pushing image %s: %w", real.Name, err)
	}
	image, err := build(real, p.Binary(real.Binary))
	if err != nil {
		return false, fmt.Errorf("making image %s: %w", real.Name, err)
	}
	// The tag of the inputs comes last: it vouches for the other.
	for _, t := range []string{"latest", tag} {
		if err := remote.Write(repository.Tag(t), image, remote.WithContext(ctx)); err != nil {
			return false, fmt.Errorf("pushing image %s: %w", real.Name, err)
		}
	}
	return true, nil
}

// inputTag names the inputs of an image. Size and time of the program have to do: hashing all of them would take longer
// than everything else that a warm run does here.
func (p Pusher) inputTag(real Real) (string, error) {
	info, err := os.Stat(p.Binary(real.Binary))
	if err != nil {
		return "", fmt.Errorf("making image %s: %w", real.Name, err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %d", real.Binary, real.User, info.Size(), info.ModTime().UnixNano()))
	return "inputs-" + hex.EncodeToString(sum[:8]), nil
}

// build makes an image of one static program. The layer is not compressed: it only ever crosses the loopback device.
func build(real Real, path string) (v1.Image, error) {
	content, err := os.ReadFile(path) // #nosec G304 -- one of the landscape's own programs.
	if err != nil {
		return nil, err
	}
	entrypoint := "/" + filepath.Base(path)
	layer, err := layerOf(entrypoint[1:], content)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layer)
	if err != nil {
		return nil, err
	}
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = []string{entrypoint}
	config.Config.User = strconv.Itoa(real.User)
	config.Config.Env = []string{"PATH=/"}
	return mutate.ConfigFile(image, config)
}

// layerOf packs the program, and /tmp for those that write there.
func layerOf(name string, content []byte) (v1.Layer, error) {
	var buffer bytes.Buffer
	buffer.Grow(len(content) + 4096)
	writer := tar.NewWriter(&buffer)
	entries := []tar.Header{
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))},
	}
	for _, header := range entries {
		if err := writer.WriteHeader(&header); err != nil {
			return nil, err
		}
	}
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return static.NewLayer(buffer.Bytes(), types.OCIUncompressedLayer), nil
}
