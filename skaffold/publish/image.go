// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/image"
)

type imageOptions struct {
	registryFlags

	name          string
	binaries      []string
	tars          []string
	entrypoint    []string
	env           []string
	labels        []string
	user          string
	architectures []string
	registry      string
	ref           string
	output        string
	push          bool
}

func newImageCommand() *cobra.Command {
	opts := &imageOptions{}
	cmd := &cobra.Command{
		Use:   "image [--name NAME --binary PATH[:DEST] ... --ref REF]",
		Short: "Make an image of static binaries, or the images of this repository",
		Long: `Make an image of the static binaries that --binary names.

Without --binary, build the programs of this repository into bin/ARCHITECTURE and write their images to
bin/images/NAME-ARCHITECTURE.tar. If a registry is given, push an index of each image's architectures to
REGISTRY/NAME:VERSION.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(opts.binaries) == 0 {
				return opts.runAll(cmd)
			}
			return opts.run(cmd)
		},
	}
	opts.add(cmd)
	opts.addLayout(cmd)
	flags := cmd.Flags()
	flags.StringVar(&opts.name, "name", "", "name of the image, for its label and for the messages")
	flags.StringArrayVar(&opts.binaries, "binary", nil, "PATH[:DEST] of a binary; DEST defaults to / and the binary's name; the first one is the entrypoint")
	flags.StringArrayVar(&opts.tars, "tar", nil, "tar file with a root file system, below the binaries")
	flags.StringSliceVar(&opts.entrypoint, "entrypoint", nil, "entrypoint, if it is not the first binary alone")
	flags.StringArrayVar(&opts.env, "env", nil, "NAME=VALUE in the environment of the image")
	flags.StringArrayVar(&opts.labels, "label", nil, "NAME=VALUE among the labels of the image")
	flags.StringVar(&opts.user, "user", image.NonRoot, "user of the image")
	flags.StringSliceVar(&opts.architectures, "architecture", nil, "Go's name of the architecture (default: this machine's); without --binary several (default: "+strings.Join(architectures(), ",")+")")
	flags.StringVar(&opts.ref, "ref", "", "HOST[:PORT]/REPOSITORY:TAG")
	flags.BoolVar(&opts.push, "push", false, "push the image to --ref")
	flags.StringVar(&opts.output, "output", "", "write the image to this tar file, for `docker load`, `kind load` or `ctr images import`")
	flags.StringVar(&opts.registry, "registry", os.Getenv("REGISTRY"), "without --binary: where to push to, HOST[:PORT][/PATH] (environment: REGISTRY)")
	cmd.MarkFlagsRequiredTogether("name", "binary", "ref")
	return cmd
}

// architectures are those that this repository's images are released for.
func architectures() []string { return []string{"amd64", "arm64"} }

// runAll makes the images of this repository.
func (o *imageOptions) runAll(cmd *cobra.Command) error {
	root, err := findRoot()
	if err != nil {
		return err
	}
	if len(o.architectures) == 0 {
		o.architectures = architectures()
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
			img, err := artifact.build(cmd, root, version, architecture, filepath.Join(root, "bin", architecture))
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
	pinned := strings.TrimSuffix(ref, ":"+tagIn(ref)) + "@" + digest.String()
	if o.registry != "" {
		if pinned, err = image.PushIndex(cmd.Context(), ref, index, o.options(cmd)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), pinned)
	return err
}

func (o *imageOptions) run(cmd *cobra.Command) error {
	spec, err := o.spec()
	if err != nil {
		return err
	}
	img, err := image.Build(spec)
	if err != nil {
		return fmt.Errorf("building image %s: %w", o.name, err)
	}
	return o.deliver(cmd, img)
}

// deliver writes and pushes the image, as asked, and prints its reference by digest.
func (o *imageOptions) deliver(cmd *cobra.Command, img v1.Image) error {
	if o.output != "" {
		if err := writeTar(o.output, o.ref, img); err != nil {
			return fmt.Errorf("writing image %s to %s: %w", o.name, o.output, err)
		}
	}
	if o.push {
		pinned, err := image.Push(cmd.Context(), o.ref, img, o.options(cmd))
		if err != nil {
			return fmt.Errorf("image %s: %w", o.name, err)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), pinned)
		return err
	}

	digest, err := img.Digest()
	if err != nil {
		return fmt.Errorf("building image %s: %w", o.name, err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s@%s\n", strings.TrimSuffix(o.ref, ":"+tagIn(o.ref)), digest)
	return err
}

func (o *imageOptions) spec() (image.Spec, error) {
	labels, err := pairs("label", o.labels)
	if err != nil {
		return image.Spec{}, err
	}
	spec := image.Spec{
		Tars:       o.tars,
		Entrypoint: o.entrypoint,
		Env:        o.env,
		User:       o.user,
		Labels:     map[string]string{"org.opencontainers.image.title": o.name},
	}
	maps.Copy(spec.Labels, labels)
	switch len(o.architectures) {
	case 0:
	case 1:
		spec.Architecture = o.architectures[0]
	default:
		return image.Spec{}, fmt.Errorf("--architecture %s: a binary is for one architecture", strings.Join(o.architectures, ","))
	}

	for _, binary := range o.binaries {
		source, destination, _ := strings.Cut(binary, ":")
		if destination == "" {
			destination = path.Join("/", filepath.Base(source))
		}
		if len(o.tars) == 0 {
			if err := checkStatic(source); err != nil {
				return image.Spec{}, err
			}
		}
		spec.Files = append(spec.Files, image.File{Source: source, Destination: destination})
	}
	if len(spec.Entrypoint) == 0 {
		spec.Entrypoint = []string{spec.Files[0].Destination}
	}
	return spec, nil
}

// checkStatic refuses a binary that asks for a dynamic loader: there is none in an image of binaries alone.
func checkStatic(name string) error {
	file, err := elf.Open(name)
	if err != nil {
		return fmt.Errorf("binary %s: %w (is it built, and for Linux?)", name, err)
	}
	defer func() { _ = file.Close() }()
	if slices.ContainsFunc(file.Progs, func(prog *elf.Prog) bool { return prog.Type == elf.PT_INTERP }) {
		return fmt.Errorf("binary %s is linked dynamically: build it with CGO_ENABLED=0, or add the libraries by --tar", name)
	}
	return nil
}

func writeTar(file, ref string, img v1.Image) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, tag, img)
}

// tagIn returns the tag of a reference, or nothing.
func tagIn(ref string) string {
	if i := strings.LastIndex(ref, ":"); i > strings.LastIndex(ref, "/") {
		return ref[i+1:]
	}
	return ""
}
