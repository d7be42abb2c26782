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
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/debian"
)

// Pusher makes the real images and pushes them.
type Pusher struct {
	// Registry is host:port of a registry that speaks plain HTTP.
	Registry string
	// Binary returns a program's path.
	Binary func(name string) string
	// Bases are what images can stand on, and Cache is the folder that keeps them between runs.
	Bases []Base
	Cache string
	// Report is told what takes long.
	Report func(format string, args ...any)
}

// Repository is the name under which the registry keeps a real image.
func Repository(image string) string { return "real/" + image }

// Push makes sure that the registry has the image as it is built from the present programs, tagged latest and in all its
// versions, and reports whether it had to push.
func (p Pusher) Push(ctx context.Context, real Real) (bool, error) {
	repository, tags := Repository(real.Name), []string{"latest"}
	if len(real.Versions) > 0 {
		tags = append(tags, real.Versions[0])
	}
	_, changed, err := p.PushPinned(ctx, real, repository, tags...)
	for _, version := range real.Versions[len(tags)-1:] {
		if err != nil {
			break
		}
		var pushed bool
		_, pushed, err = p.PushPinned(ctx, real.version(version), repository, version)
		changed = changed || pushed
	}
	return changed, err
}

// PushPinned makes sure that a repository of the registry has the image as it is built from the present programs, with these tags. It returns
// the digest, which changes only with the content, and reports whether it had to push.
func (p Pusher) PushPinned(ctx context.Context, real Real, repository string, tags ...string) (pinned string, pushed bool, err error) {
	inputs, err := p.inputTag(real, tags)
	if err != nil {
		return "", false, err
	}
	return Ensure(ctx, p.Registry+"/"+repository, inputs, tags, func() (v1.Image, error) { return p.build(ctx, real) })
}

// Ensure makes sure that the repository has an image of the inputs, which are a tag themselves, and that the tags are that image:
// meanwhile they may have been those of other inputs. It returns the image's digest, and reports whether it had to be made and pushed.
func Ensure(ctx context.Context, repositoryName, inputs string, tags []string, build func() (v1.Image, error)) (pinned string, pushed bool, err error) {
	repository, err := name.NewRepository(repositoryName, name.Insecure)
	if err != nil {
		return "", false, fmt.Errorf("pushing image %s: %w", repositoryName, err)
	}
	want, err := digest(ctx, repository.Tag(inputs))
	if err != nil {
		return "", false, err
	}
	if want == "" {
		image, err := build()
		if err != nil {
			return "", false, fmt.Errorf("making image %s: %w", repositoryName, err)
		}
		// The tag of the inputs comes last: it vouches for the others.
		for _, tag := range append(tags, inputs) {
			if err := remote.Write(repository.Tag(tag), image, remote.WithContext(ctx)); err != nil {
				return "", false, fmt.Errorf("pushing image %s: %w", repositoryName, err)
			}
		}
		made, err := image.Digest()
		return made.String(), true, err
	}
	for _, tag := range tags {
		have, err := digest(ctx, repository.Tag(tag))
		if err != nil {
			return "", false, err
		}
		if have == want {
			continue
		}
		image, err := remote.Image(repository.Digest(want), remote.WithContext(ctx))
		if err != nil {
			return "", false, fmt.Errorf("reading %s: %w", repository.Digest(want), err)
		}
		if err := remote.Tag(repository.Tag(tag), image, remote.WithContext(ctx)); err != nil {
			return "", false, fmt.Errorf("tagging %s: %w", repository.Digest(want), err)
		}
	}
	return want, false, nil
}

// digest is that of a tag, "" if the registry doesn't have the tag.
func digest(ctx context.Context, tag name.Tag) (string, error) {
	descriptor, err := remote.Head(tag, remote.WithContext(ctx))
	var response *transport.Error
	if errors.As(err, &response) && response.StatusCode == http.StatusNotFound {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", tag, err)
	}
	return descriptor.Digest.String(), nil
}

// recipe goes up when code below changes what an image looks like.
const recipe = 4

// nonroot is the user of that name in the images of others, which tell its home in /etc/passwd: etcd-backup-restore writes
// there, and etcd-druid mounts the folder of the backups below it.
const (
	nonroot = 65532
	home    = "/home/nonroot"
)

// searchPath is where images look for programs: some charts name them without their folder.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/"

// inputTag names the inputs of an image. Size and time of the programs have to do: hashing all of them would take longer
// than everything else that a warm run does here.
func (p Pusher) inputTag(real Real, tags []string) (string, error) {
	inputs := sha256.New()
	_, _ = fmt.Fprintf(inputs, "%d %d %s %v\n", recipe, real.User, p.tree(real.Base).Key(), tags)
	for _, file := range real.programs() {
		info, err := os.Stat(p.Binary(file.Binary))
		if err != nil {
			return "", fmt.Errorf("making image %s: %w", real.Name, err)
		}
		_, _ = fmt.Fprintf(inputs, "%s %d %d\n", file.Path, info.Size(), info.ModTime().UnixNano())
	}
	return "inputs-" + hex.EncodeToString(inputs.Sum(nil)[:8]), nil
}

// tree describes the base of that name to mmdebstrap; that of no name is empty.
func (p Pusher) tree(name string) debian.Tree {
	i := slices.IndexFunc(p.Bases, func(b Base) bool { return b.Name == name })
	if i < 0 {
		return debian.Tree{}
	}
	base := p.Bases[i]
	// Documentation, translations, and conversions of character sets are most of what isn't needed.
	options := []string{"--dpkgopt=path-exclude=/usr/share/*", "--dpkgopt=path-exclude=/usr/lib/*/gconv/*"}
	for _, program := range slices.Sorted(maps.Keys(base.Links)) {
		for _, link := range base.Links[program] {
			options = append(options, fmt.Sprintf(`--extract-hook=ln -s %s "$1"%s`, program, link))
		}
	}
	return debian.Tree{Variant: "extract", Packages: base.Packages, Options: options}
}

// build makes an image of static programs, and of what they stand on.
func (p Pusher) build(ctx context.Context, real Real) (v1.Image, error) {
	programs := real.programs()
	layer, err := p.layer(programs)
	if err != nil {
		return nil, err
	}
	layers := []v1.Layer{layer}
	if real.Base != "" {
		base, err := debian.Layer(ctx, filepath.Join(p.Cache, real.Base), p.tree(real.Base), p.Report)
		if err != nil {
			return nil, err
		}
		layers = []v1.Layer{base, layer}
	}
	config := v1.Config{User: strconv.Itoa(real.User), Env: []string{searchPath}}
	if len(programs) > 0 {
		config.Entrypoint = []string{programs[0].Path}
	}
	if real.User == nonroot {
		config.Env = append(config.Env, "HOME="+home)
	}
	return Compose(config, layers...)
}

// Compose makes an image for this machine's architecture. Its layers are not compressed: they only ever cross the loopback device.
func Compose(config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	file := &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: config, RootFS: v1.RootFS{Type: "layers"}}
	image, err := mutate.ConfigFile(image, file)
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, layers...)
}

// layer packs the programs, the folders above them, and those where some write: /tmp and a home.
func (p Pusher) layer(files []File) (v1.Layer, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	var errs []error
	add := func(header tar.Header, content []byte) {
		errs = append(errs, writer.WriteHeader(&header))
		_, err := writer.Write(content)
		errs = append(errs, err)
	}
	add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	add(tar.Header{Name: "home/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	add(tar.Header{Name: home[1:] + "/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: nonroot, Gid: nonroot}, nil)
	for _, folder := range folders(files) {
		add(tar.Header{Name: folder[1:] + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	for _, file := range files {
		content, err := os.ReadFile(p.Binary(file.Binary)) // #nosec G304 -- one of the landscape's own programs.
		errs = append(errs, err)
		buffer.Grow(len(content) + 4096)
		add(tar.Header{Name: file.Path[1:], Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}, content)
	}
	if err := errors.Join(append(errs, writer.Close())...); err != nil {
		return nil, err
	}
	return static.NewLayer(buffer.Bytes(), debian.LayerType), nil
}

// folders are all folders above files, upper ones first.
func folders(files []File) []string {
	seen := map[string]bool{}
	for _, file := range files {
		for folder := path.Dir(file.Path); folder != "/"; folder = path.Dir(folder) {
			seen[folder] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
