// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package snapshot packs files into OCI artifacts and unpacks them again. An artifact has a layer, a compressed tar archive, for
// each part of the files, so that what is the same in two artifacts is stored and sent once.
package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"
)

const (
	artifactType = "application/vnd.gardener.provider-local.landscape.v1"
	layerType    = ocispec.MediaTypeImageLayerZstd
	// rootAnnotation of a layer names the folder that its files are below.
	rootAnnotation = "local.gardener.cloud/root"
	// pathsAnnotation of a layer has all its paths, one per line.
	pathsAnnotation = "local.gardener.cloud/paths"
)

// Root is the key of the folder that the layer's files are below.
func Root(layer ocispec.Descriptor) string { return layer.Annotations[rootAnnotation] }

// Title is the first path of the layer.
func Title(layer ocispec.Descriptor) string { return layer.Annotations[ocispec.AnnotationTitle] }

// Size is that of all layers in bytes, as they are stored and sent.
func Size(manifest ocispec.Manifest) (sum int64) {
	for _, layer := range manifest.Layers {
		sum += layer.Size
	}
	return sum
}

// Part is what one layer has.
type Part struct {
	// Root names the folder, a key of the map of folders.
	Root string
	// Paths are files and folders below it.
	Paths []string
	// Exclude are paths below it that are left out with all that is below them.
	Exclude []string
}

// Split makes a part of each path that a pattern matches below the folder, in the order of their names.
func Split(root, folder string, patterns ...string) ([]Part, error) {
	var parts []Part
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return nil, fmt.Errorf("looking below %s: %w", folder, err)
		}
		for _, path := range paths {
			name, err := filepath.Rel(folder, path)
			if err != nil {
				return nil, fmt.Errorf("looking below %s: %w", folder, err)
			}
			if name == unpacked {
				continue
			}
			parts = append(parts, Part{Root: root, Paths: []string{name}})
		}
	}
	return parts, nil
}

// Save packs the parts of the folders into an artifact of that tag. What the target has already is not sent again.
func Save(ctx context.Context, target oras.Target, tag string, folders map[string]string, parts []Part, annotations map[string]string) (ocispec.Descriptor, error) {
	layers := make([]ocispec.Descriptor, len(parts))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for i, part := range parts {
		group.Go(func() (err error) {
			layers[i], err = push(groupCtx, target, folders[part.Root], part)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return ocispec.Descriptor{}, err
	}
	// Two parts with the same content are one layer.
	seen := map[string]bool{}
	layers = slices.DeleteFunc(layers, func(layer ocispec.Descriptor) bool {
		key := Root(layer) + " " + layer.Digest.String()
		defer func() { seen[key] = true }()
		return seen[key]
	})
	manifest, err := oras.PackManifest(ctx, target, oras.PackManifestVersion1_1, artifactType, oras.PackManifestOptions{Layers: layers, ManifestAnnotations: annotations})
	if err == nil {
		err = target.Tag(ctx, manifest, tag)
	}
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("saving %s: %w", tag, err)
	}
	return manifest, nil
}

// push packs one part and sends it unless the target has it.
func push(ctx context.Context, target oras.Target, folder string, part Part) (ocispec.Descriptor, error) {
	fail := func(err error) (ocispec.Descriptor, error) {
		return ocispec.Descriptor{}, fmt.Errorf("saving %s: %w", filepath.Join(folder, strings.Join(part.Paths, " ")), err)
	}
	// /tmp may be in memory, and small.
	file, err := os.CreateTemp(cmp.Or(os.Getenv("TMPDIR"), "/var/tmp"), "landscape-layer-*")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = file.Close() }()
	errRemove := os.Remove(file.Name())
	digester := digest.Canonical.Digester()
	compressor, err := zstd.NewWriter(io.MultiWriter(file, digester.Hash()), zstd.WithEncoderConcurrency(1))
	if err := errors.Join(errRemove, err); err != nil {
		return fail(err)
	}
	if err := errors.Join(pack(ctx, compressor, folder, part), compressor.Close()); err != nil {
		return fail(err)
	}
	size, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return fail(err)
	}
	layer := ocispec.Descriptor{
		MediaType: layerType, Digest: digester.Digest(), Size: size,
		Annotations: map[string]string{rootAnnotation: part.Root, ocispec.AnnotationTitle: part.Paths[0], pathsAnnotation: strings.Join(part.Paths, "\n")},
	}
	exists, err := target.Exists(ctx, layer)
	if err == nil && !exists {
		if _, err = file.Seek(0, io.SeekStart); err == nil {
			err = target.Push(ctx, layer, file)
		}
	}
	if err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		return fail(err)
	}
	return layer, nil
}

// pack writes a tar archive that is the same as long as the files are. GNU tar knows extended attributes, devices, hard links and
// holes, all of which a machine's file system has. Its later formats for holes have the process's number in them.
func pack(ctx context.Context, to io.Writer, folder string, part Part) error {
	arguments := []string{
		"--create", "--file=-", "--directory=" + folder, "--sort=name", "--sparse", "--sparse-version=0.0", "--numeric-owner", "--xattrs", "--xattrs-include=*",
		"--format=posix", "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime", "--anchored", "--no-wildcards", "--warning=no-file-ignored",
	}
	for _, path := range part.Exclude {
		arguments = append(arguments, "--exclude="+path)
	}
	return runTar(ctx, append(append(arguments, "--"), part.Paths...), nil, to)
}

func runTar(ctx context.Context, arguments []string, from io.Reader, to io.Writer) error {
	cmd := exec.CommandContext(ctx, "tar", arguments...) // #nosec G204 -- paths of the landscape.
	var output bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = from, to, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, strings.TrimSpace(output.String()))
	}
	return nil
}

// Manifest returns the manifest of an artifact. The error says so if it is another kind of artifact.
func Manifest(ctx context.Context, source oras.ReadOnlyTarget, tag string) (ocispec.Manifest, error) {
	var manifest ocispec.Manifest
	_, body, err := oras.FetchBytes(ctx, source, tag, oras.DefaultFetchBytesOptions)
	if err == nil {
		err = json.Unmarshal(body, &manifest)
	}
	if err != nil {
		return manifest, fmt.Errorf("reading %s: %w", tag, err)
	}
	if manifest.ArtifactType != artifactType {
		return manifest, fmt.Errorf("reading %s: it is of type %q, not %q", tag, manifest.ArtifactType, artifactType)
	}
	return manifest, nil
}

// Restore unpacks all layers of the manifest into the folders. A layer of which a single byte is not as it was saved is an error.
// Below folders other than that of the root named inPlace, a path is replaced as a whole once all of its layer is there, and is root's: users
// of the machine where it was saved are others here.
func Restore(ctx context.Context, source content.Fetcher, manifest ocispec.Manifest, folders map[string]string, inPlace string) (err error) {
	// What an interruption left goes before, and what is left now at the end.
	clean := func() (errs error) {
		for root, folder := range folders {
			if root != inPlace {
				errs = errors.Join(errs, os.RemoveAll(filepath.Join(folder, unpacked)))
			}
		}
		return errs
	}
	if err := clean(); err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	defer func() { err = errors.Join(err, clean()) }()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for _, layer := range manifest.Layers {
		group.Go(func() error {
			folder := folders[Root(layer)]
			if folder == "" {
				return nil
			}
			var err error
			if Root(layer) == inPlace {
				err = unpackInto(ctx, source, layer, folder, "--same-owner")
			} else {
				err = unpackWhole(ctx, source, layer, folder)
			}
			if err != nil {
				return fmt.Errorf("restoring %s: %w", filepath.Join(folder, Title(layer)), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// unpacked is the folder, below one to which files are restored, in which layers are unpacked.
const unpacked = ".unpacked"

// unpackWhole unpacks a layer elsewhere, and then puts each of its paths in its place.
func unpackWhole(ctx context.Context, source content.Fetcher, layer ocispec.Descriptor, folder string) error {
	temporary := filepath.Join(unpacked, layer.Digest.Encoded())
	if err := unpackInto(ctx, source, layer, filepath.Join(folder, temporary), "--no-same-owner"); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	paths := strings.Split(layer.Annotations[pathsAnnotation], "\n")
	// A stamp of what was there before must not stay beside a new program.
	for _, path := range paths {
		if err := errors.Join(root.RemoveAll(path), root.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
			return err
		}
	}
	for _, path := range paths {
		if err := root.Rename(filepath.Join(temporary, path), path); err != nil {
			return err
		}
	}
	return nil
}

func unpackInto(ctx context.Context, source content.Fetcher, layer ocispec.Descriptor, folder, owner string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { // #nosec G301 -- the archive has the permissions of what is in it.
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	// tar fails if another one makes the same folder at the same time.
	for path := range strings.Lines(layer.Annotations[pathsAnnotation]) {
		if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
	}
	reader, err := source.Fetch(ctx, layer)
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }()
	verified := content.NewVerifyReader(reader, layer)
	decompressor, err := zstd.NewReader(verified, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer decompressor.Close()
	arguments := []string{
		"--extract", "--file=-", "--directory=" + folder, "--preserve-permissions", owner, "--numeric-owner", "--xattrs", "--xattrs-include=*",
	}
	if err := runTar(ctx, arguments, decompressor, nil); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, decompressor); err != nil {
		return err
	}
	return verified.Verify()
}

// Open opens the folder of artifacts on this machine, an OCI image layout. With a slash or a colon in it, name is a reference of a
// registry instead, for which the credentials of Docker's configuration are used. It returns the tag within what it opened, too.
func Open(ctx context.Context, folder, name string) (oras.GraphTarget, string, error) {
	if !strings.ContainsAny(name, "/:") {
		store, err := oci.NewWithContext(ctx, folder)
		if err != nil {
			return nil, "", fmt.Errorf("opening %s: %w", folder, err)
		}
		return store, name, nil
	}
	repository, err := remote.NewRepository(name)
	if err != nil {
		return nil, "", fmt.Errorf("opening %s: %w", name, err)
	}
	if repository.Reference.Reference == "" {
		return nil, "", fmt.Errorf("opening %s: add a tag or a digest", name)
	}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("opening %s: %w", name, err)
	}
	host := repository.Reference.Host()
	repository.PlainHTTP = strings.HasPrefix(host, "127.0.0.1:") || strings.HasPrefix(host, "localhost:") || strings.HasPrefix(host, "[::1]:")
	repository.Client = &auth.Client{Client: retry.DefaultClient, Cache: auth.NewCache(), Credential: credentials.Credential(store)}
	return repository, repository.Reference.Reference, nil
}
