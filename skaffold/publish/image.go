// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/image"
)

const (
	module          = "github.com/gardener/gardener-extension-provider-local"
	versionVariable = "k8s.io/component-base/version.gitVersion"
	// fallbackVersion is the version of what is built outside of a git repository.
	fallbackVersion = "v0.0.0-dev"
)

// artifact is an image of this repository.
type artifact struct {
	// name is what the image is called: the repository below a registry, the file in bin/images, and the key among the
	// images of the chart skaffold/extension.
	name string
	// module is the folder of the Go module that its programs are built in.
	module string
	// programs are what is in it, each at / and its name. The first one is the entrypoint.
	programs []program
}

// program is a Go program that becomes part of an image.
type program struct {
	name string
	// pkg is the package, which may be one that the module only pins.
	pkg string
}

// artifacts are the images of this repository, all of which the Extension names.
func artifacts() []artifact {
	return []artifact{
		{name: "operator-extension", module: ".", programs: []program{{name: "operator-extension", pkg: "./operator-extension"}}},
		{name: "gardenlet-extension", module: ".", programs: []program{{name: "gardenlet-extension", pkg: "./gardenlet-extension"}}},
		{name: "coredns", module: "skaffold/images/coredns", programs: []program{{name: "coredns", pkg: "."}}},
		{name: "local-path-provisioner", module: "skaffold/images/local-path-provisioner", programs: []program{
			{name: "local-path-provisioner", pkg: "github.com/rancher/local-path-provisioner"},
			{name: "local-path-helper", pkg: "./helper"},
		}},
	}
}

// artifactNames returns the names of all images, in the order of artifacts.
func artifactNames() (names []string) {
	for _, artifact := range artifacts() {
		names = append(names, artifact.name)
	}
	return names
}

func artifactNamed(name string) (artifact, error) {
	if i := slices.Index(artifactNames(), name); i >= 0 {
		return artifacts()[i], nil
	}
	return artifact{}, fmt.Errorf("--name %q: expected %s or %s", name, strings.Join(artifactNames(), ", "), strings.Join(chartNames(), ", "))
}

// build builds the programs of the image below bin and makes the image of them. The image reads the files again when it is
// pushed. All programs of a module are built at once: Go links them side by side, and finds the others up to date when the
// image of those is built.
func (a artifact) build(cmd *cobra.Command, root, version, arch string, compression int, debug bool) (v1.Image, error) {
	// A debugger needs symbols, and in this repository's packages variables and lines as they are written.
	arguments := []string{"build", "-trimpath", "-ldflags", "-s -w -X " + versionVariable + "=" + version}
	if debug {
		arguments = []string{"build", "-trimpath", "-gcflags", module + "/...=-N -l", "-ldflags", "-X " + versionVariable + "=" + version}
	}
	folder := filepath.Join(root, "bin", arch)
	arguments = append(arguments, "-o", folder+"/")
	for _, artifact := range artifacts() {
		for _, program := range artifact.programs {
			if artifact.module == a.module {
				arguments = append(arguments, program.pkg)
			}
		}
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "building %s %s for linux/%s\n", a.name, version, arch)
	// #nosec G204 G702 -- the arguments are this program's own
	build := exec.CommandContext(cmd.Context(), "go", arguments...)
	build.Dir = filepath.Join(root, a.module)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOWORK=off")
	build.Stdout, build.Stderr = cmd.ErrOrStderr(), cmd.ErrOrStderr()
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("building %s: %w", a.name, err)
	}
	spec := image.Spec{
		Entrypoint:   []string{"/" + a.programs[0].name},
		Labels:       map[string]string{"org.opencontainers.image.title": a.name},
		Architecture: arch,
		Compression:  compression,
	}
	for _, program := range a.programs {
		// Go names a program by the last part of its package's path.
		file := path.Base(path.Join(a.module, program.pkg))
		spec.Files = append(spec.Files, image.File{Source: filepath.Join(folder, file), Destination: "/" + program.name})
	}
	return image.Build(spec)
}

type imageOptions struct {
	registryFlags

	architectures []string
	registry      string
}

func newImageCommand() *cobra.Command {
	opts := &imageOptions{}
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Build the images of this repository",
		Long: `Build the programs of this repository into bin/ARCHITECTURE and write their images to
bin/images/NAME-ARCHITECTURE.tar, for ` + "`docker load`, `kind load` or `ctr images import`" + `. If a registry is given, push an
index of each image's architectures to REGISTRY/NAME:VERSION.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return opts.run(cmd) },
	}
	opts.add(cmd)
	opts.addLayout(cmd)
	cmd.Flags().StringSliceVar(&opts.architectures, "architecture", architectures(), "Go's names of the architectures")
	cmd.Flags().StringVar(&opts.registry, "registry", os.Getenv("REGISTRY"), "where to push to: HOST[:PORT][/PATH] (environment: REGISTRY)")
	return cmd
}

// architectures are those that this repository's images are released for.
func architectures() []string { return []string{"amd64", "arm64"} }

func (o *imageOptions) run(cmd *cobra.Command) error {
	if o.layout != "" && o.registry == "" {
		return errors.New("--layout needs --registry: it says where `push` is to push what is in the layout")
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	folder := filepath.Join(root, "bin", "images")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return fmt.Errorf("making output folder: %w", err)
	}

	// Once for all, as the tree may change while the first is built.
	version := versionOf(gitDescription(cmd.Context(), root))
	for _, artifact := range artifacts() {
		ref := path.Join(o.registry, artifact.name) + ":" + tagOf(version)
		var images []v1.Image
		for _, architecture := range o.architectures {
			img, err := artifact.build(cmd, root, version, architecture, gzip.DefaultCompression, false)
			if err != nil {
				return err
			}
			file := filepath.Join(folder, artifact.name+"-"+architecture+".tar")
			if err := writeTar(file, ref, img); err != nil {
				return fmt.Errorf("writing image %s to %s: %w", artifact.name, file, err)
			}
			images = append(images, img)
		}
		if err := o.deliverIndex(cmd, ref, images); err != nil {
			return fmt.Errorf("image %s: %w", artifact.name, err)
		}
	}
	return nil
}

// deliverIndex pushes the index of an image's architectures if there is a registry, and prints its reference by digest.
func (o *imageOptions) deliverIndex(cmd *cobra.Command, ref string, images []v1.Image) error {
	index, err := image.Index(images)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	pinned := ref[:strings.LastIndex(ref, ":")] + "@" + digest.String()
	if o.registry != "" {
		if pinned, err = image.Push(cmd.Context(), ref, index, o.options(cmd)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), pinned)
	return err
}

// writeTar writes an image as `docker save` does.
func writeTar(file, ref string, img v1.Image) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, tag, img)
}

// findRoot returns the folder of this repository, looking upwards from the working directory.
func findRoot() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for {
		content, _ := os.ReadFile(filepath.Join(folder, "go.mod"))
		if bytes.HasPrefix(content, []byte("module "+module+"\n")) {
			return folder, nil
		}
		if folder == filepath.Dir(folder) {
			return "", fmt.Errorf("finding the repository: no folder above has the go.mod of %s: run this inside of it", module)
		}
		folder = filepath.Dir(folder)
	}
}

// gitDescription returns what git calls the working tree, nothing if there is no git or no repository. --tags makes it see
// lightweight tags too: actions/checkout turns annotated ones into those.
func gitDescription(ctx context.Context, root string) string {
	// #nosec G204 -- the argument is the repository's own folder
	out, _ := exec.CommandContext(ctx, "git", "-C", root, "describe", "--tags", "--always", "--dirty").Output()
	return strings.TrimSpace(string(out))
}

var (
	semanticVersion = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+([-+][A-Za-z0-9.+-]*)?$`)
	notInVersion    = regexp.MustCompile(`[^A-Za-z0-9.-]+`)
	notInTag        = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
)

// versionOf turns git's description into a semantic version, since Kubernetes' libraries panic over any other.
func versionOf(description string) string {
	if semanticVersion.MatchString(description) {
		return description
	}
	return strings.TrimSuffix(fallbackVersion+"+"+notInVersion.ReplaceAllString(description, "-"), "+")
}

// tagOf turns a version into a tag, which has at most 128 characters and no plus sign.
func tagOf(version string) string {
	tag := strings.TrimLeft(notInTag.ReplaceAllString(version, "_"), ".-")
	return tag[:min(len(tag), 128)]
}
