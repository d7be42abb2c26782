// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/image"
	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
)

func newSkaffoldBuildCommand() *cobra.Command {
	var (
		flags registryFlags
		name  string
	)
	cmd := &cobra.Command{
		Use:   "skaffold-build --name NAME",
		Short: "Build and push what Skaffold asks for (a custom builder)",
		Long: `Build and push what Skaffold asks for. NAME is that of an image (` + strings.Join(artifactNames(), ", ") + `)
or of a chart (` + strings.Join(chartNames(), ", ") + `).

Skaffold sets IMAGE (the reference to push to), PUSH_IMAGE (must be true, as there is no container engine that could hold the
image), and PLATFORMS (one at most).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return skaffoldBuild(cmd, name, flags.options(cmd), os.Getenv)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&name, "name", "", "what to build")
	_ = cmd.MarkFlagRequired("name")
	return cmd
}

func skaffoldBuild(cmd *cobra.Command, name string, opts oci.Options, getenv func(string) string) error {
	ref := getenv("IMAGE")
	if ref == "" {
		return errors.New("IMAGE is not set: Skaffold sets it to the reference to push to")
	}
	if getenv("PUSH_IMAGE") != "true" {
		return fmt.Errorf("PUSH_IMAGE is not true: %s can only be pushed, as there is no container engine to load it into (run skaffold with --push, or set build.local.push)", ref)
	}
	root, err := findRoot()
	if err != nil {
		return err
	}

	var pinned string
	if chart, ok := chartNamed(name); ok {
		pinned, err = chart.push(cmd.Context(), root, ref, opts)
	} else {
		var arch string
		if arch, err = architectureOf(getenv("PLATFORMS")); err != nil {
			return err
		}
		pinned, err = buildAndPush(cmd, root, name, ref, arch, opts)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), pinned)
	return err
}

func buildAndPush(cmd *cobra.Command, root, name, ref, arch string, opts oci.Options) (string, error) {
	artifact, err := artifactNamed(name)
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", "publish-")
	if err != nil {
		return "", fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()

	img, err := artifact.build(cmd, root, versionOf(gitDescription(cmd.Context(), root)), arch, folder)
	if err != nil {
		return "", err
	}
	return image.Push(cmd.Context(), ref, img, opts)
}

// architectureOf returns the architecture of Skaffold's PLATFORMS, this machine's if there is none.
func architectureOf(platforms string) (string, error) {
	switch parts := strings.Split(platforms, "/"); {
	case platforms == "":
		return runtime.GOARCH, nil
	case strings.Contains(platforms, ","):
		return "", fmt.Errorf("PLATFORMS=%s: one platform can be built at a time (skaffold's --platform chooses)", platforms)
	case len(parts) == 2 && parts[0] == "linux" && parts[1] != "":
		return parts[1], nil
	default:
		return "", fmt.Errorf("PLATFORMS=%s: expected linux/ARCHITECTURE", platforms)
	}
}
