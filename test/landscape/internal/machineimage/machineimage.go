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
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// Name is the image's entry in the table of images.
	Name = "machine"
	// suite is the release of Debian that the image is made of.
	suite = "bookworm"
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
	// Repository is where the image goes, with the host:port of a registry that speaks plain HTTP.
	Repository string
}

// Push makes sure that the registry has the image as its inputs describe it, tagged latest, and tells whether it had to
// push. It says by report what takes long.
func (b Builder) Push(ctx context.Context, report func(format string, args ...any)) (bool, error) {
	packages, err := readPackages(filepath.Join(b.Source, "debian", "packages"))
	if err != nil {
		return false, fmt.Errorf("making the machine image: %w", err)
	}
	files, err := packTrees(filepath.Join(b.Source, "rootfs"), filepath.Join(b.Source, "debian", "rootfs"))
	if err != nil {
		return false, fmt.Errorf("making the machine image: %w", err)
	}
	key := baseKey(packages)
	repository, err := name.NewRepository(b.Repository, name.Insecure)
	if err != nil {
		return false, fmt.Errorf("making the machine image: %w", err)
	}
	inputs := repository.Tag("inputs-" + hash([]byte(key), files))
	if found, err := exists(ctx, inputs); found || err != nil {
		return false, err
	}
	base, err := b.base(ctx, key, packages, report)
	if err != nil {
		return false, err
	}
	image, err := compose(base, files)
	if err != nil {
		return false, fmt.Errorf("making the machine image: %w", err)
	}
	// The tag of the inputs comes last: it vouches for the other.
	for _, tag := range []name.Tag{repository.Tag("latest"), inputs} {
		if err := remote.Write(tag, image, remote.WithContext(ctx)); err != nil {
			return false, fmt.Errorf("pushing the machine image: %w", err)
		}
	}
	return true, nil
}

// exists tells whether the registry has a tag.
func exists(ctx context.Context, tag name.Tag) (bool, error) {
	_, err := remote.Head(tag, remote.WithContext(ctx))
	if err == nil {
		return true, nil
	}
	var response *transport.Error
	if errors.As(err, &response) && response.StatusCode == http.StatusNotFound {
		return false, nil
	}
	return false, fmt.Errorf("looking for the machine image: %w", err)
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

// baseKey names the inputs of the base layer.
func baseKey(packages []string) string {
	return hash([]byte(recipe), []byte(runtime.GOARCH), []byte(strings.Join(arguments(packages, ""), "\n")))
}

func hash(parts ...[]byte) string {
	sum := sha256.Sum256(bytes.Join(parts, []byte{0}))
	return hex.EncodeToString(sum[:8])
}

// arguments are those of mmdebstrap. Host keys of the SSH server, and the machine ID, come into being at each boot.
func arguments(packages []string, target string) []string {
	return []string{
		"--quiet", "--mode=root", "--variant=minbase",
		"--include=" + strings.Join(packages, ","),
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/info/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		`--customize-hook=rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname "$1"/etc/resolv.conf`,
		`--customize-hook=find "$1"/var/log "$1"/var/cache/ldconfig -type f -delete`,
		"--format=tar", suite, target,
	}
}

// base makes the base layer unless the cache has it, and removes those of other inputs.
func (b Builder) base(ctx context.Context, key string, packages []string, report func(string, ...any)) (v1.Layer, error) {
	path := filepath.Join(b.Cache, "debian-"+key+".tar")
	if _, err := os.Stat(path); err == nil {
		return newFileLayer(path)
	}
	if err := os.MkdirAll(b.Cache, 0o755); err != nil { // #nosec G301 -- build output.
		return nil, fmt.Errorf("making the machine image: %w", err)
	}
	stale, err := filepath.Glob(filepath.Join(b.Cache, "debian-*.tar*"))
	if err != nil {
		return nil, fmt.Errorf("making the machine image: %w", err)
	}
	for _, old := range stale {
		if err := os.Remove(old); err != nil {
			return nil, fmt.Errorf("making the machine image: %w", err)
		}
	}
	report("installing Debian %s with %d packages, which takes about a minute", suite, len(packages))
	half := path + ".part"
	if err := mmdebstrap(ctx, arguments(packages, half)); err != nil {
		_ = os.Remove(half)
		return nil, err
	}
	if err := os.Rename(half, path); err != nil {
		return nil, fmt.Errorf("making the machine image: %w", err)
	}
	return newFileLayer(path)
}

func mmdebstrap(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, "mmdebstrap", args...) // #nosec G204 -- arguments from this package and its files.
	// Times of files become the same in each run.
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=0", "DEBIAN_FRONTEND=noninteractive")
	// Interrupted, it has to remove its temporary folder.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("mmdebstrap: %w: %s", err, strings.Join(lines[max(0, len(lines)-10):], "\n"))
	}
	return nil
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
