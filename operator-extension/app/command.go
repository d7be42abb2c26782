// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package app is the program operator-extension: its commands, and the list of controllers that its instance runs. It is a
// package of its own so that test/integration can run the very same instance in a process of its own making.
package app

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gardener/gardener/pkg/logger"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
)

// NewCommand returns the command operator-extension.
func NewCommand() *cobra.Command {
	var path string

	cmd := &cobra.Command{
		Use:   "operator-extension --config FILE",
		Short: "Serve the extension objects of class garden in the garden runtime cluster",
		Long: "operator-extension reconciles the BackupBuckets, BackupEntries, DNSRecords and Extensions of class garden\n" +
			"which gardener-operator makes for a Garden. It is deployed by the chart provider-local.",
		Args:          cobra.NoArgs,
		Version:       version.Get().GitVersion,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := configv1alpha1.Load(path)
			if err != nil {
				return err
			}
			return start(cmd.Context(), config)
		},
	}

	cmd.Flags().StringVar(&path, "config", "", "file of kind ExtensionConfiguration (config.local.provider.extensions.gardener.cloud/v1alpha1)")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err)
	}
	cmd.AddCommand(newPrepareCommand())
	return cmd
}

func start(ctx context.Context, config *configv1alpha1.ExtensionConfiguration) error {
	log, err := logger.NewZapLogger(config.LogLevel, config.LogFormat)
	if err != nil {
		return err
	}
	ctrl.SetLogger(log)
	log.Info("Starting", "version", version.Get().GitVersion, "extensionClasses", config.ExtensionClasses)

	return Run(ctx, Options{Log: log, Config: config, Namespace: os.Getenv("LEADER_ELECTION_NAMESPACE")})
}

// newPrepareCommand is for the init container that hands the folder on the node, which belongs to root, over to the
// user as which the instance (and etcd-backup-restore) runs.
func newPrepareCommand() *cobra.Command {
	var (
		directory string
		uid, gid  int
	)

	cmd := &cobra.Command{
		Use:          "prepare-backup-directory --directory DIR",
		Short:        "Hand the folder of all buckets over to the user as which the instance runs",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := backup.Prepare(directory, uid, gid); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s belongs to %d:%d\n", directory, uid, gid)
			return err
		},
	}

	cmd.Flags().StringVar(&directory, "directory", configv1alpha1.DefaultBackupDirectory, "folder of all buckets")
	cmd.Flags().IntVar(&uid, "uid", 65532, "user that is to own it")
	cmd.Flags().IntVar(&gid, "gid", 65532, "group that is to own it")
	return cmd
}
