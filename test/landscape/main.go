// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command landscape brings up, on one Debian machine and without Docker, what a kind cluster would be to Gardener's local
// setup: a real single-node Kubernetes, an OCI registry, and the images of others. Then it lets Skaffold deploy
// gardener-operator, this repository's extension and a Garden.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/registry"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/statuscontroller"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/up"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "landscape",
		Short:         "A local Gardener landscape on one machine, without Docker",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), downCommand(), statusCommand(), registryCommand(), statusControllerCommand())
	return root
}

// open finds the landscape of the clone in which the program runs.
func open() (up.Landscape, error) {
	found, err := layout.Find(".")
	return up.Landscape{Layout: found, Out: os.Stdout, Now: time.Now}, err
}

func upCommand() *cobra.Command {
	var until string
	steps := strings.Join(step.Names(up.Landscape{}.Steps()), ", ")
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the landscape up; running it again continues or repairs",
		Long:  "Brings the landscape up in these steps, each of which is skipped if it is done already:\n" + steps,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			landscape, err := open()
			if err != nil {
				return err
			}
			return landscape.Up(cmd.Context(), until)
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "last step to execute")
	return cmd
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Take the landscape down and verify that nothing is left",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			landscape, err := open()
			if err != nil {
				return err
			}
			return landscape.Down(cmd.Context())
		},
	}
}

func statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what runs and how it is; fails if something is unhealthy",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			landscape, err := open()
			if err != nil {
				return err
			}
			return landscape.Status(cmd.Context())
		},
	}
}

func registryCommand() *cobra.Command {
	var dir string
	var listen []string
	cmd := &cobra.Command{
		Use: "registry", Short: "The landscape's registry (started by up)", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			table, err := images.Load()
			if err != nil {
				return err
			}
			handler, err := registry.Open(dir, table, slog.New(slog.NewTextHandler(os.Stderr, nil)))
			if err != nil {
				return err
			}
			defer func() { _ = handler.Close() }()
			return registry.Serve(cmd.Context(), handler, listen)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder that keeps what is pushed")
	cmd.Flags().StringArrayVar(&listen, "listen", nil, "addresses to serve on")
	return cmd
}

func statusControllerCommand() *cobra.Command {
	var kubeconfig string
	opts := statuscontroller.Options{Provisioner: cluster.Provisioner}
	cmd := &cobra.Command{
		Use: "status-controller", Short: "Writes what absent controllers would write (started by up)", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := cluster.Config(kubeconfig)
			if err != nil {
				return err
			}
			if opts.ShootManifest, err = cluster.ShootManifest(opts.Network); err != nil {
				return err
			}
			return statuscontroller.Run(cmd.Context(), config, opts)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the runtime cluster, or of a seed")
	cmd.Flags().StringVar(&opts.Volumes, "volumes", "", "folder of the volumes")
	cmd.Flags().StringVar(&opts.Health, "health", "", "address of the health endpoint; empty for none")
	cmd.Flags().BoolVar(&opts.ManagedSeed, "managed-seed", false, "the cluster is a shoot, which has load balancers and volumes of its own")
	return cmd
}
