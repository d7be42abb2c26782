// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package machineimage makes the container image that a machine of the landscape runs: a minimal Debian by mmdebstrap, and
// on top of it the files in skaffold/images/machine. It is the stand-in for the image that the Dockerfile there describes,
// whose base is on a registry that the landscape does without.
package machineimage

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"

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
	_, pushed, err := images.Ensure(ctx, b.Repository, "inputs-"+hash([]byte(tree.Key()), files), []string{"latest"}, func() (v1.Image, error) {
		layer, err := debian.Layer(ctx, b.Cache, tree, report)
		if err != nil {
			return nil, err
		}
		return images.Compose(v1.Config{
			Entrypoint: []string{entrypoint}, StopSignal: stopSignal,
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		}, layer, static.NewLayer(files, debian.LayerType))
	})
	return pushed, err
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
			// As in the Dockerfile: they find nothing in a container, and each daemon-reload runs all of them.
			"--dpkgopt=path-exclude=/lib/systemd/system-generators/*", "--dpkgopt=path-exclude=/usr/lib/systemd/system-generators/*",
			`--customize-hook=rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname "$1"/etc/resolv.conf`,
			`--customize-hook=find "$1"/var/log "$1"/var/cache/ldconfig -type f -delete`,
			// As in the Dockerfile: Gardener calls update-ca-certificates before the kubelet starts.
			`--customize-hook=cat "$1"/usr/share/ca-certificates/mozilla/*.crt >"$1"/usr/share/ca-certificates/all.crt`,
			`--customize-hook=echo all.crt >"$1"/etc/ca-certificates.conf && chroot "$1" update-ca-certificates --fresh`,
		},
	}
}

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
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
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
