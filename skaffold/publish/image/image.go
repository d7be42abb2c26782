// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package image makes container images of files without a container engine, and pushes them. The program publish uses it
// for the images of this repository, the landscape (test/landscape) for those of everything else that it runs. The same
// files always give the same digest: there are no times in an image, and no order but the one of the names.
package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// File is a file of an image.
type File struct {
	// Source is a file on this machine. It is read when the image is built and again when it is pushed, and must not change
	// in between.
	Source string
	// Destination is the absolute path in the image.
	Destination string
	// Mode are the permissions in the image. Default: 0755.
	Mode fs.FileMode
}

// Spec is what an image is made of.
type Spec struct {
	// Tars are tar files (gzipped or not) with a root file system, a layer each, the lowest first.
	Tars []string
	// Files are in one layer on top of them. They belong to root.
	Files []File
	// Entrypoint, Cmd, Env (NAME=VALUE), User (user or uid, default "65532:65532"), WorkingDir, StopSignal and Labels are
	// those of the OCI image configuration.
	Entrypoint []string
	Cmd        []string
	Env        []string
	User       string
	WorkingDir string
	StopSignal string
	Labels     map[string]string
	// Architecture is Go's name of it. Default: the one of this machine.
	Architecture string
}

// NonRoot is the user of an image whose Spec names none: one who is nobody, by number, so that runAsNonRoot can be checked.
const NonRoot = "65532:65532"

// Build makes an image. Nothing of its content is held in memory: each layer is read once here, for its digest, and once
// more when it is pushed.
func Build(spec Spec) (v1.Image, error) {
	var adds []mutate.Addendum
	for _, tarFile := range spec.Tars {
		layer, err := newLayer(fromTar(tarFile))
		if err != nil {
			return nil, fmt.Errorf("making a layer of %s: %w", tarFile, err)
		}
		adds = append(adds, mutate.Addendum{Layer: layer, History: v1.History{Comment: "root file system"}})
	}

	if len(spec.Files) > 0 {
		files, err := normalized(spec.Files)
		if err != nil {
			return nil, err
		}
		layer, err := newLayer(fromFiles(files))
		if err != nil {
			return nil, fmt.Errorf("making a layer of files: %w", err)
		}
		adds = append(adds, mutate.Addendum{Layer: layer, History: v1.History{Comment: "files"}})
	}
	if len(adds) == 0 {
		return nil, errors.New("an image needs a file or a tar file at least")
	}

	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, adds...)
	if err != nil {
		return nil, fmt.Errorf("appending layers: %w", err)
	}
	return withConfig(img, spec)
}

func withConfig(img v1.Image, spec Spec) (v1.Image, error) {
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading image configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", spec.Architecture
	if config.Architecture == "" {
		config.Architecture = runtime.GOARCH
	}
	config.Config = v1.Config{
		Entrypoint: spec.Entrypoint,
		Cmd:        spec.Cmd,
		Env:        spec.Env,
		User:       spec.User,
		WorkingDir: spec.WorkingDir,
		StopSignal: spec.StopSignal,
		Labels:     maps.Clone(spec.Labels),
	}
	if config.Config.User == "" {
		config.Config.User = NonRoot
	}
	return mutate.ConfigFile(img, config)
}

// normalized checks the files and sorts them by destination.
func normalized(files []File) ([]File, error) {
	sorted := slices.Clone(files)
	for i, file := range sorted {
		if !path.IsAbs(file.Destination) || path.Clean(file.Destination) != file.Destination || file.Destination == "/" {
			return nil, fmt.Errorf("file %s: destination %q must be an absolute, clean path", file.Source, file.Destination)
		}
		if file.Mode == 0 {
			sorted[i].Mode = 0o755
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

// Push pushes an image to ref (HOST[:PORT]/REPOSITORY:TAG) and returns its reference by digest.
func Push(ctx context.Context, ref string, img v1.Image, opts oci.Options) (string, error) {
	artifact, err := artifactOf(img)
	if err != nil {
		return "", fmt.Errorf("reading image for %s: %w", ref, err)
	}
	return push(ctx, ref, artifact, opts)
}

// PushIndex pushes an image index and its images to ref, and returns the index' reference by digest.
func PushIndex(ctx context.Context, ref string, index v1.ImageIndex, opts oci.Options) (string, error) {
	artifact, err := artifactOfIndex(index)
	if err != nil {
		return "", fmt.Errorf("reading image index for %s: %w", ref, err)
	}
	return push(ctx, ref, artifact, opts)
}

func push(ctx context.Context, ref string, artifact oci.Artifact, opts oci.Options) (string, error) {
	client, err := oci.NewClient(opts)
	if err != nil {
		return "", err
	}
	return client.Push(ctx, ref, artifact)
}
