// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/chart"
	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
)

// The charts that Gardener installs, and the repositories below a registry that they are pushed to.
const (
	chartFolder                = "charts/provider-local"
	admissionRuntimeFolder     = "charts/admission-local/runtime"
	admissionApplicationFolder = "charts/admission-local/application"
)

// extensionCharts are the charts that an Extension names.
func extensionCharts() []string {
	return []string{chartFolder, admissionRuntimeFolder, admissionApplicationFolder}
}

type chartsOptions struct {
	registryFlags

	registry     string
	pullRegistry string
	tag          string
	images       []string
	output       string
}

func newChartsCommand() *cobra.Command {
	opts := &chartsOptions{}
	cmd := &cobra.Command{
		Use:   "charts --registry REGISTRY",
		Short: "Package and push the charts, and write the Extension that installs them",
		Long: `Package charts/provider-local and those below charts/admission-local, push them to REGISTRY/charts/..., and write the
operator.gardener.cloud Extension that installs them, with charts and images pinned by digest.

Images that --image does not name are expected at REGISTRY/NAME:TAG, where "make images" puts them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return opts.run(cmd) },
	}
	opts.add(cmd)
	opts.addLayout(cmd)
	cmd.Flags().StringVar(&opts.registry, "registry", "", "where to push: HOST[:PORT][/PATH]")
	cmd.Flags().StringVar(&opts.pullRegistry, "pull-registry", "", "what the cluster calls the registry, if it knows it by another name")
	cmd.Flags().StringVar(&opts.tag, "tag", "", "tag of the charts, and of the images that --image doesn't name (default: the version by git)")
	cmd.Flags().StringArrayVar(&opts.images, "image", nil, "NAME=REF, where NAME is "+strings.Join(artifactNames(), ", ")+"; a REF with a digest is taken as it is")
	cmd.Flags().StringVar(&opts.output, "output", "bin", "folder for the packaged charts and extension.yaml")
	_ = cmd.MarkFlagRequired("registry")
	return cmd
}

func (o *chartsOptions) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	root, err := findRoot()
	if err != nil {
		return err
	}
	if o.tag == "" {
		o.tag = tagOf(versionOf(gitDescription(ctx, root)))
	}
	client, err := oci.NewClient(o.options(cmd))
	if err != nil {
		return err
	}

	var archives []*chart.Archive
	for _, folder := range extensionCharts() {
		archive, err := chart.Package(filepath.Join(root, folder))
		if err != nil {
			return err
		}
		archives = append(archives, archive)
	}
	// First the images: an Extension without one would be of no use.
	images, err := o.resolveImages(ctx, client)
	if err != nil {
		return err
	}
	charts, refs := map[string]string{}, []string{}
	for i, folder := range extensionCharts() {
		ref, err := archives[i].Push(ctx, client, o.registry+"/"+folder+":"+o.tag)
		if err != nil {
			return err
		}
		charts[folder] = oci.Rename(ref, o.registry, o.pullRegistry)
		refs = append(refs, charts[folder])
	}

	manifest, err := extensionManifest(root, charts, images)
	if err != nil {
		return err
	}
	if err := o.write(root, archives, manifest, cmd); err != nil {
		return err
	}
	for _, name := range artifactNames() {
		refs = append(refs, images[name])
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(refs, "\n"))
	return err
}

// resolveImages returns each image's reference by digest, as the cluster calls it.
func (o *chartsOptions) resolveImages(ctx context.Context, client *oci.Client) (map[string]string, error) {
	given, err := pairs("image", o.images)
	if err != nil {
		return nil, err
	}
	known := artifactNames()
	for name := range given {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("--image %s=...: the chart has no such image, only %v", name, known)
		}
	}

	images := map[string]string{}
	for _, name := range known {
		ref, ok := given[name]
		if !ok {
			ref = o.registry + "/" + name + ":" + o.tag
		}
		pinned, err := client.Resolve(ctx, ref)
		if oci.NotFound(err) {
			return nil, fmt.Errorf("image %s is not at %s: push it first (make images REGISTRY=%s), or say where it is (--image %s=REF)", name, ref, o.registry, name)
		}
		if err != nil {
			return nil, err
		}
		images[name] = oci.Rename(pinned, o.registry, o.pullRegistry)
	}
	return images, nil
}

func (o *chartsOptions) write(root string, archives []*chart.Archive, manifest []byte, cmd *cobra.Command) error {
	output := o.output
	if !filepath.IsAbs(output) {
		output = filepath.Join(root, output)
	}
	if err := os.MkdirAll(output, 0o750); err != nil {
		return fmt.Errorf("making output folder: %w", err)
	}
	files := map[string][]byte{"extension.yaml": manifest}
	for _, archive := range archives {
		files[archive.Name+"-"+archive.Version+".tgz"] = archive.Content
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(output, name), content, 0o600); err != nil {
			return fmt.Errorf("writing output: %w", err)
		}
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "wrote the Extension: kubectl apply -f %s\n", filepath.Join(output, "extension.yaml"))
	return err
}
