// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package debian makes image layers of Debian's packages by mmdebstrap, and keeps them between runs, as that takes long. The
// machine image stands on one, and so do images whose programs call others.
package debian

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// suite is the release of Debian that layers are made of.
const suite = "bookworm"

// keyring has the keys that Debian's packages are signed with, which apt does not trust by itself on Ubuntu. The package
// debian-archive-keyring is among those that `up` installs.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Tree describes a file system.
type Tree struct {
	// Recipe goes up when the same description is to give another tree.
	Recipe string
	// Variant is mmdebstrap's: what is installed beside Packages.
	Variant string
	// Packages are installed with what they depend on.
	Packages []string
	// Options are further ones of mmdebstrap.
	Options []string
}

// arguments are those of mmdebstrap.
func (t Tree) arguments(target string) []string {
	return slices.Concat(
		[]string{"--quiet", "--mode=root", "--variant=" + t.Variant, "--include=" + strings.Join(t.Packages, ",")},
		t.Options,
		[]string{"--format=tar", suite, target},
	)
}

// Key names what the tree is made of, in 16 characters.
func (t Tree) Key() string {
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(t.Recipe), []byte(runtime.GOARCH), []byte(strings.Join(t.arguments(""), "\n"))}, []byte{0}))
	return hex.EncodeToString(sum[:8])
}

// Layer returns the tree as a layer. Unless the folder, which is for this layer alone, has it, Layer makes it, which it says by
// report, and removes that of the tree as it was described before.
func Layer(ctx context.Context, folder string, tree Tree, report func(format string, args ...any)) (v1.Layer, error) {
	path := filepath.Join(folder, "debian-"+tree.Key()+".tar")
	if _, err := os.Stat(path); err == nil {
		return newFileLayer(path)
	}
	errs := []error{os.MkdirAll(folder, 0o755)} // #nosec G301 -- build output.
	stale, err := filepath.Glob(filepath.Join(folder, "debian-*.tar*"))
	for _, old := range stale {
		errs = append(errs, os.Remove(old))
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("making a layer of Debian: %w", err)
	}
	report("installing %d packages of Debian %s into a folder, which takes up to two minutes", len(tree.Packages), suite)
	half := path + ".part"
	if err := mmdebstrap(ctx, tree.arguments(half)); err != nil {
		_ = os.Remove(half)
		return nil, err
	}
	if err := os.Rename(half, path); err != nil {
		return nil, fmt.Errorf("making a layer of Debian: %w", err)
	}
	return newFileLayer(path)
}

func mmdebstrap(ctx context.Context, args []string) error {
	args = append([]string{"--keyring=" + keyring}, args...)
	cmd := exec.CommandContext(ctx, "mmdebstrap", args...) // #nosec G204 -- arguments from files of this repository.
	// Times of files become the same in each run. Some machines mount /tmp with noexec, and
	// mmdebstrap runs programs of the system that it makes.
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=0", "DEBIAN_FRONTEND=noninteractive", "TMPDIR="+filepath.Dir(args[len(args)-1]))
	// Interrupted, it has to remove its temporary folder.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("mmdebstrap: %w: %s", err, strings.Join(lines[max(0, len(lines)-10):], "\n"))
	}
	return nil
}

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
