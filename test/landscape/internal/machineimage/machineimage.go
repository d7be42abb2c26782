// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package machineimage makes the container image that a machine of the landscape runs: a minimal Debian by mmdebstrap, and
// on top of it the files in skaffold/images/machine. It is the stand-in for the image that the Dockerfile there describes,
// whose base is on a registry that the landscape does without.
package machineimage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/debian"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
)

const (
	// Name is the image's entry in the table of images.
	Name = "machine"
	// recipe goes up when code below changes what an image looks like.
	recipe = "1"
	// stopSignal makes systemd power off; on SIGTERM it would execute itself anew.
	stopSignal = "SIGRTMIN+3"
	entrypoint = "/usr/local/lib/provider-local/entrypoint"
)

// Builder makes the image and pushes it.
type Builder struct {
	// Source is the folder skaffold/images/machine.
	Source string
	// Cache is a folder for the base layer, which takes most of the time. It stays between runs.
	Cache string
	// Registry is the host:port of the registry that machines pull from.
	Registry string
	// Repository is where the image goes, with the host:port of a registry that speaks plain HTTP.
	Repository string
}

// Push makes sure that the registry has the image as its inputs describe it, tagged latest, and reports whether it had to
// push. It says by report what takes long.
func (b Builder) Push(ctx context.Context, report func(format string, args ...any)) (bool, error) {
	packages, err := readPackages(filepath.Join(b.Source, "debian", "packages"))
	if err != nil {
		return false, fmt.Errorf("making the machine image: %w", err)
	}
	files, err := packTrees(b.Registry, filepath.Join(b.Source, "rootfs"), filepath.Join(b.Source, "debian", "rootfs"))
	if err != nil {
		return false, fmt.Errorf("making the machine image: %w", err)
	}
	tree := base(packages)
	repository, err := name.NewRepository(b.Repository, name.Insecure)
	if err != nil {
		return false, fmt.Errorf("making the machine image: %w", err)
	}
	inputs := "inputs-" + hash([]byte(tree.Key()), files)
	if found, err := images.Current(ctx, repository, inputs, "latest"); found || err != nil {
		return false, err
	}
	layer, err := debian.Cache{Folder: b.Cache}.Layer(ctx, tree, report)
	if err != nil {
		return false, fmt.Errorf("making the machine image: %w", err)
	}
	image, err := compose(layer, files)
	if err != nil {
		return false, fmt.Errorf("making the machine image: %w", err)
	}
	// The tag of the inputs comes last: it vouches for the other.
	for _, tag := range []string{"latest", inputs} {
		if err := remote.Write(repository.Tag(tag), image, remote.WithContext(ctx)); err != nil {
			return false, fmt.Errorf("pushing the machine image: %w", err)
		}
	}
	return true, nil
}

// readPackages reads one package per line; a line that starts with # is a comment.
func readPackages(path string) ([]string, error) {
	content, err := os.ReadFile(path) // #nosec G304 -- a file of this repository.
	if err != nil {
		return nil, err
	}
	var packages []string
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			packages = append(packages, line)
		}
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("%s names no packages", path)
	}
	return packages, nil
}

func hash(parts ...[]byte) string {
	sum := sha256.Sum256(bytes.Join(parts, []byte{0}))
	return hex.EncodeToString(sum[:8])
}

// base describes the base layer. Host keys of the SSH server, and the machine ID, come into being at each boot.
func base(packages []string) debian.Tree {
	return debian.Tree{
		Recipe: recipe, Variant: "minbase", Packages: packages,
		Options: []string{
			"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
			"--dpkgopt=path-exclude=/usr/share/info/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
			`--customize-hook=rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname "$1"/etc/resolv.conf`,
			`--customize-hook=find "$1"/var/log "$1"/var/cache/ldconfig -type f -delete`,
		},
	}
}

// compose makes the image of the base and the files on top of it.
func compose(base v1.Layer, files []byte) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, base, newBytesLayer(files))
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = []string{entrypoint}
	config.Config.StopSignal = stopSignal
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return mutate.ConfigFile(image, config)
}
