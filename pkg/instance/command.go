// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gardener/gardener/pkg/logger"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/imagevector"
)

// CommandOptions describe the command of a program that runs an instance.
type CommandOptions struct {
	// Name is the name of the program, Short and Long say what it is for.
	Name, Short, Long string
	// Run runs the instance until ctx ends, with the defaulted and validated configuration, in the given namespace.
	Run func(ctx context.Context, log logr.Logger, config *configv1alpha1.ExtensionConfiguration, namespace string) error
}

// NewCommand returns the command of a program that runs an instance, with the command prepare-backup-directory below it.
func NewCommand(opts CommandOptions) *cobra.Command {
	var path string

	cmd := &cobra.Command{
		Use:           opts.Name + " --config FILE",
		Short:         opts.Short,
		Long:          opts.Long,
		Args:          cobra.NoArgs,
		Version:       version.Get().GitVersion,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := configv1alpha1.Load(path)
			if err != nil {
				return err
			}
			if err := imagevector.Apply(config); err != nil {
				return err
			}
			log, err := logger.NewZapLogger(config.LogLevel, config.LogFormat)
			if err != nil {
				return err
			}
			ctrl.SetLogger(log)
			log.Info("Starting", "version", version.Get().GitVersion, "extensionClasses", config.ExtensionClasses)
			return opts.Run(cmd.Context(), log, config, os.Getenv("LEADER_ELECTION_NAMESPACE"))
		},
	}

	cmd.Flags().StringVar(&path, "config", "", "file of kind ExtensionConfiguration (config.local.provider.extensions.gardener.cloud/v1alpha1)")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err)
	}
	cmd.AddCommand(newPrepareCommand())
	return cmd
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
