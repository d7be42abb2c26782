// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package image makes container images of files without a container engine, and pushes them. The program publish uses it
// for the images of this repository, tests use it for programs of their own. The same files always give the same digest:
// there are no times in an image, and no order but the one of the names.
package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
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
	layer, err := newLayer(files)
	if err != nil {
		return nil, fmt.Errorf("making a layer of files: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Comment: "files"}})
	if err != nil {
		return nil, fmt.Errorf("appending the layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading image configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", cmp.Or(spec.Architecture, runtime.GOARCH)
	config.Config = v1.Config{Entrypoint: spec.Entrypoint, User: NonRoot, Labels: maps.Clone(spec.Labels)}
	return mutate.ConfigFile(img, config)
}

// sorted checks the files and sorts them by destination.
func sorted(files []File) ([]File, error) {
	sorted := slices.Clone(files)
	for _, file := range sorted {
		if !path.IsAbs(file.Destination) || path.Clean(file.Destination) != file.Destination || file.Destination == "/" {
			return nil, fmt.Errorf("file %s: destination %q must be an absolute, clean path", file.Source, file.Destination)
		}
	}
	slices.SortFunc(sorted, func(a, b File) int { return strings.Compare(a.Destination, b.Destination) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Destination == sorted[i-1].Destination {
			return nil, fmt.Errorf("files %s and %s have the same destination %s", sorted[i-1].Source, sorted[i].Source, sorted[i].Destination)
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
