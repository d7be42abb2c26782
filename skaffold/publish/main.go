// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command publish builds the images of this extension, packages its charts, and pushes both to an OCI registry, without a
// container engine. `make images` and `make push-charts` call it, and so does Skaffold as its custom builder.
package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/image"
	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "publish",
		Short:         "Build and push the images and the chart of this extension, without a container engine",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.AddCommand(newChartCommand(), newChartsCommand(), newExamplesCommand(), newImageCommand(), newPushCommand(), newSkaffoldBuildCommand())
	return cmd
}

// registryFlags are how to speak to a registry. Callers that give no flags, like Skaffold, set variables.
type registryFlags struct {
	plainHTTP      bool
	caFile, layout string
}

func (f *registryFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.plainHTTP, "plain-http", os.Getenv("PUBLISH_PLAIN_HTTP") == "true",
		"speak plain HTTP to the registry; registries that are local by their name need no flag (environment: PUBLISH_PLAIN_HTTP=true)")
	cmd.Flags().StringVar(&f.caFile, "ca-file", os.Getenv("PUBLISH_CA_FILE"),
		"PEM file of certificate authorities to trust in addition to the system's (environment: PUBLISH_CA_FILE)")
}

// options returns the options for the client; its progress goes to standard error, so that standard output has nothing
// but references.
func (f *registryFlags) options(cmd *cobra.Command) oci.Options {
	return oci.Options{PlainHTTP: f.plainHTTP, CAFile: f.caFile, Layout: f.layout, Progress: cmd.ErrOrStderr()}
}

// addLayout adds the flag by which a command writes a layout instead of pushing.
func (f *registryFlags) addLayout(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.layout, "layout", os.Getenv("LAYOUT"),
		"push nothing yet: write this folder, an OCI image layout, for `push --layout` (environment: LAYOUT)")
}

func newPushCommand() *cobra.Command {
	var (
		flags  registryFlags
		layout string
	)
	cmd := &cobra.Command{
		Use:   "push --layout FOLDER",
		Short: "Push the images and charts that `image` and `charts` wrote to a layout",
		Long: `Push the images and charts that the commands image and charts wrote to a layout, as they are, each to the registry they
were made for. Nothing is built, so neither Go nor the repository is needed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := oci.NewClient(flags.options(cmd))
			if err != nil {
				return err
			}
			pushed, err := client.PushLayout(cmd.Context(), layout)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(pushed, "\n"))
			return err
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&layout, "layout", "", "folder of the layout")
	_ = cmd.MarkFlagRequired("layout")
	return cmd
}

func newSkaffoldBuildCommand() *cobra.Command {
	var (
		flags registryFlags
		name  string
		debug bool
	)
	cmd := &cobra.Command{
		Use:   "skaffold-build --name NAME",
		Short: "Build and push what Skaffold asks for (a custom builder)",
		Long: `Build and push what Skaffold asks for. NAME is that of an image (` + strings.Join(artifactNames(), ", ") + `)
or of a chart (` + strings.Join(chartNames(), ", ") + `).

Skaffold sets IMAGE (the reference to push to), PUSH_IMAGE (must be true, as there is no container engine that could hold the
image), and PLATFORMS (one at most).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return skaffoldBuild(cmd, name, debug, flags.options(cmd)) },
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&name, "name", "", "what to build")
	cmd.Flags().BoolVar(&debug, "debug", false, "build programs for a debugger: with symbols, and without optimization of this repository's code")
	_ = cmd.MarkFlagRequired("name")
	return cmd
}

func skaffoldBuild(cmd *cobra.Command, name string, debug bool, opts oci.Options) error {
	ref := os.Getenv("IMAGE")
	if ref == "" {
		return errors.New("IMAGE is not set: Skaffold sets it to the reference to push to")
	}
	if os.Getenv("PUSH_IMAGE") != "true" {
		return fmt.Errorf("PUSH_IMAGE is not true: %s can only be pushed, as there is no container engine to load it into (run skaffold with --push, or set build.local.push)", ref)
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	var pinned string
	if i := slices.Index(chartNames(), name); i >= 0 {
		var folder string
		if folder, err = chartArtifacts()[i].find(cmd.Context(), root); err == nil {
			pinned, err = pushChart(cmd.Context(), folder, ref, opts)
		}
	} else {
		pinned, err = buildAndPush(cmd, root, name, ref, debug, opts)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), pinned)
	return err
}

func buildAndPush(cmd *cobra.Command, root, name, ref string, debug bool, opts oci.Options) (string, error) {
	arch, err := architectureOf(os.Getenv("PLATFORMS"))
	if err != nil {
		return "", err
	}
	artifact, err := artifactNamed(name)
	if err != nil {
		return "", err
	}
	img, err := artifact.build(cmd, root, versionOf(gitDescription(cmd.Context(), root)), arch, gzip.NoCompression, debug)
	if err != nil {
		return "", err
	}
	return image.Push(cmd.Context(), ref, img, opts)
}

// architectureOf returns the architecture of Skaffold's PLATFORMS, this machine's if there is none.
func architectureOf(platforms string) (string, error) {
	if platforms == "" {
		return runtime.GOARCH, nil
	}
	arch, ok := strings.CutPrefix(platforms, "linux/")
	if !ok || arch == "" || strings.ContainsAny(arch, "/,") {
		return "", fmt.Errorf("PLATFORMS=%s: expected one linux/ARCHITECTURE (skaffold's --platform chooses)", platforms)
	}
	return arch, nil
}
