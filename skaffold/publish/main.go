// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command publish builds the images of this extension, packages its charts, and pushes both to an OCI registry, without a
// container engine. `make images` and `make push-charts` call it, and so does Skaffold as its custom builder.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

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
	cmd.AddCommand(newChartsCommand(), newExamplesCommand(), newImageCommand(), newPushCommand(), newSkaffoldBuildCommand())
	return cmd
}

// plainHTTPVariable does what the flag --plain-http does, for callers like Skaffold that give no flags.
const plainHTTPVariable = "PUBLISH_PLAIN_HTTP"

// registryFlags are how to speak to a registry.
type registryFlags struct {
	plainHTTP bool
	caFile    string
	layout    string
}

func (f *registryFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.plainHTTP, "plain-http", os.Getenv(plainHTTPVariable) == "true",
		"speak plain HTTP to the registry; registries that are local by their name need no flag (environment: "+plainHTTPVariable+"=true)")
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

// pairs turns KEY=VALUE arguments into a map.
func pairs(flag string, args []string) (map[string]string, error) {
	out := make(map[string]string, len(args))
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("--%s %q: expected KEY=VALUE", flag, arg)
		}
		if _, ok := out[key]; ok {
			return nil, fmt.Errorf("--%s: %s is given twice", flag, key)
		}
		out[key] = value
	}
	return out, nil
}
