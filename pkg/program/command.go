// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/imagevector"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
)

// NewCommand returns the command of a program that is configured by an ExtensionConfiguration, with the command
// prepare-backup-directory below it. run has the Log, Config and Namespace of the instance.
func NewCommand(name, short, long string, run func(context.Context, instance.Options) error) *cobra.Command {
	config := &configv1alpha1.ExtensionConfiguration{}
	cmd := instance.NewConfiguredCommand(instance.CommandOptions{
		Name:   name,
		Short:  short,
		Long:   long,
		Config: config,
		Run: func(ctx context.Context, log logr.Logger, namespace string) error {
			if err := imagevector.Apply(config); err != nil {
				return err
			}
			return run(ctx, instance.Options{Log: log, Config: config, Namespace: namespace})
		},
	})
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
