// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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

// chartArtifact is a chart that Skaffold can have pushed. Those of others are in Go modules, at the version that one of this
// repository's modules pins, so that no other registry is needed.
type chartArtifact struct {
	// name is the repository below a registry, and the folder of a chart of this repository.
	name string
	// module is the folder of the Go module that pins upstream, and folder the chart's in upstream. All are empty for a chart
	// of this repository.
	module, upstream, folder string
}

// chartArtifacts are the charts that the development setup deploys by reference to a registry.
func chartArtifacts() []chartArtifact {
	return []chartArtifact{
		{name: chartFolder},
		{name: admissionRuntimeFolder},
		{name: admissionApplicationFolder},
		{name: "charts/gardenlet", module: ".", upstream: "github.com/gardener/gardener", folder: "charts/gardener/gardenlet"},
		{
			name:     "charts/networking-calico",
			module:   "test/landscape/modules/networking-calico",
			upstream: "github.com/gardener/gardener-extension-networking-calico",
			folder:   "charts/gardener-extension-networking-calico",
		},
	}
}

func chartNames() (names []string) {
	for _, chart := range chartArtifacts() {
		names = append(names, chart.name)
	}
	return names
}

// pushChart packages the chart in a folder, pushes it to ref and returns its reference by digest.
func pushChart(ctx context.Context, folder, ref string, opts oci.Options) (string, error) {
	client, err := oci.NewClient(opts)
	if err != nil {
		return "", err
	}
	archive, err := chart.Package(folder)
	if err != nil {
		return "", err
	}
	return archive.Push(ctx, client, ref)
}

// find returns the chart's folder. It downloads the module that has it if the module cache does not have that yet. Gardener's may be a
// checkout, which GARDENER_DIR names.
func (c chartArtifact) find(ctx context.Context, root string) (string, error) {
	if c.upstream == "" {
		return filepath.Join(root, c.name), nil
	}
	if gardener := os.Getenv("GARDENER_DIR"); gardener != "" && c.upstream == "github.com/gardener/gardener" {
		return filepath.Join(gardener, c.folder), nil
	}
	out, module := &bytes.Buffer{}, struct{ Dir string }{}
	// #nosec G204 -- the arguments are this program's own
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", c.upstream)
	download.Dir = filepath.Join(root, c.module)
	download.Env = append(os.Environ(), "GOWORK=off")
	download.Stdout = out
	err := download.Run()
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &module)
	}
	if err != nil {
		return "", fmt.Errorf("finding %s, which has the chart %s: %w: %s", c.upstream, c.name, err, strings.TrimSpace(out.String()))
	}
	return filepath.Join(module.Dir, c.folder), nil
}

func newChartCommand() *cobra.Command {
	var flags registryFlags
	cmd := &cobra.Command{
		Use:   "chart FOLDER REFERENCE",
		Short: "Package the chart in a folder, push it, and print its reference by digest",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			pinned, err := pushChart(cmd.Context(), args[0], args[1], flags.options(cmd))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), pinned)
			return err
		},
	}
	flags.add(cmd)
	return cmd
}

type chartsOptions struct {
	registryFlags

	registry, pullRegistry, tag, output string
	images                              []string
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
	archives, files := map[string]*chart.Archive{}, map[string][]byte{}
	for _, folder := range extensionCharts() {
		archive, err := chart.Package(filepath.Join(root, folder))
		if err != nil {
			return err
		}
		archives[folder], files[archive.Name+"-"+archive.Version+".tgz"] = archive, archive.Content
	}
	// First the images: an Extension without one would be of no use.
	images, err := o.resolveImages(ctx, client)
	if err != nil {
		return err
	}
	charts, refs := map[string]string{}, []string{}
	for _, folder := range extensionCharts() {
		ref, err := archives[folder].Push(ctx, client, o.registry+"/"+folder+":"+o.tag)
		if err != nil {
			return err
		}
		charts[folder] = oci.Rename(ref, o.registry, o.pullRegistry)
		refs = append(refs, charts[folder])
	}
	for _, name := range artifactNames() {
		refs = append(refs, images[name])
	}

	if files["extension.yaml"], err = extensionManifest(root, charts, images); err != nil {
		return err
	}
	if !filepath.IsAbs(o.output) {
		o.output = filepath.Join(root, o.output)
	}
	if err := writeFiles(o.output, files); err != nil {
		return fmt.Errorf("writing output: %w", err)
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "wrote the Extension: kubectl apply -f %s\n", filepath.Join(o.output, "extension.yaml"))
	_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(refs, "\n"))
	return err
}

// writeFiles writes files into a folder, which is made if need be.
func writeFiles(folder string, files map[string][]byte) error {
	err := os.MkdirAll(folder, 0o750)
	for name, content := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), content, 0o600)
		}
	}
	return err
}

// resolveImages returns each image's reference by digest, as the cluster calls it.
func (o *chartsOptions) resolveImages(ctx context.Context, client *oci.Client) (map[string]string, error) {
	images := map[string]string{}
	for _, arg := range o.images {
		name, ref, ok := strings.Cut(arg, "=")
		switch {
		case !ok, name == "", ref == "":
			return nil, fmt.Errorf("--image %q: expected KEY=VALUE", arg)
		case images[name] != "":
			return nil, fmt.Errorf("--image: %s is given twice", name)
		case !slices.Contains(artifactNames(), name):
			return nil, fmt.Errorf("--image %s=...: the chart has no such image, only %v", name, artifactNames())
		}
		images[name] = ref
	}
	for _, name := range artifactNames() {
		ref := cmp.Or(images[name], o.registry+"/"+name+":"+o.tag)
		pinned, err := client.Resolve(ctx, ref)
		if oci.NotFound(err) {
			err = fmt.Errorf("image %s is not at %s: push it first (make images REGISTRY=%s), or say where it is (--image %s=REF)", name, ref, o.registry, name)
		}
		if err != nil {
			return nil, err
		}
		images[name] = oci.Rename(pinned, o.registry, o.pullRegistry)
	}
	return images, nil
}
