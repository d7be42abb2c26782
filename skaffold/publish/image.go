// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/image"
)

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
	pinned := ref[:strings.LastIndex(ref, ":")] + "@" + digest.String()
	if o.registry != "" {
		if pinned, err = image.Push(cmd.Context(), ref, index, o.options(cmd)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), pinned)
	return err
}

func writeTar(file, ref string, img v1.Image) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, tag, img)
}
