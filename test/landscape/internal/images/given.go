// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// FromProgram makes an image of a static program, which it starts: /NAME of the file.
func FromProgram(ctx context.Context, program string) (v1.Image, error) {
	pusher := Pusher{Binary: func(string) string { return program }}
	return pusher.build(ctx, Real{Name: filepath.Base(program), Binary: filepath.Base(program), User: nonroot})
}

// Read reads the image of this machine's architecture from a source: a folder that is an OCI image layout, a file that docker save
// wrote, or a reference to a registry, whose credentials are those of docker login.
func Read(ctx context.Context, source string) (v1.Image, error) {
	info, err := os.Stat(source)
	isPath := strings.HasPrefix(source, ".") || strings.HasPrefix(source, "/")
	switch {
	case err == nil && info.IsDir():
		return readLayout(source)
	case err == nil:
		image, err := tarball.ImageFromPath(source, nil)
		if err != nil {
			return nil, fmt.Errorf("reading image %s: %w", source, err)
		}
		return image, nil
	case isPath || !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("reading image: %w", err)
	}
	reference, err := name.ParseReference(source)
	if err != nil {
		return nil, fmt.Errorf("%q is no file, no folder and no reference of an image: %w", source, err)
	}
	image, err := remote.Image(reference, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithPlatform(here()))
	if err != nil {
		return nil, fmt.Errorf("pulling image %s: %w", source, err)
	}
	return image, nil
}

func here() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// readLayout takes the image of this platform, or the only one if that names none.
func readLayout(folder string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, fmt.Errorf("reading the image layout %s: %w", folder, err)
	}
	image, err := ofPlatform(index)
	if err != nil {
		return nil, fmt.Errorf("reading the image layout %s: %w", folder, err)
	}
	return image, nil
}

func ofPlatform(index v1.ImageIndex) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, descriptor := range manifest.Manifests {
		if descriptor.Platform != nil && !descriptor.Platform.Satisfies(here()) || descriptor.Platform == nil && len(manifest.Manifests) > 1 {
			continue
		}
		if descriptor.MediaType.IsIndex() {
			inner, err := index.ImageIndex(descriptor.Digest)
			if err != nil {
				return nil, err
			}
			return ofPlatform(inner)
		}
		return index.Image(descriptor.Digest)
	}
	return nil, fmt.Errorf("it has no image for %s", here())
}

// PushTag makes sure that a tag of a registry that speaks plain HTTP is the image, and reports whether it had to push.
func PushTag(ctx context.Context, reference string, image v1.Image) (pushedDigest string, pushed bool, err error) {
	tag, errTag := name.NewTag(reference, name.Insecure)
	want, errDigest := image.Digest()
	if err := errors.Join(errTag, errDigest); err != nil {
		return "", false, fmt.Errorf("pushing image %s: %w", reference, err)
	}
	have, err := digest(ctx, tag)
	if err != nil || have == want.String() {
		return want.String(), false, err
	}
	if err := remote.Write(tag, image, remote.WithContext(ctx)); err != nil {
		return "", false, fmt.Errorf("pushing image %s: %w", reference, err)
	}
	return want.String(), true, nil
}

// DeleteTag deletes a tag of a registry that speaks plain HTTP. One that is not there is no error.
func DeleteTag(ctx context.Context, reference string) error {
	tag, err := name.NewTag(reference, name.Insecure)
	if err != nil {
		return fmt.Errorf("deleting image %s: %w", reference, err)
	}
	if have, err := digest(ctx, tag); err != nil || have == "" {
		return err
	}
	if err := remote.Delete(tag, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("deleting image %s: %w", reference, err)
	}
	return nil
}
