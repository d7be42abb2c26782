// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gardener/gardener/pkg/logger"
)

// Configuration is what a configuration of a command has in common with those of others.
type Configuration interface {
	// LogOptions are the level and the format of the logs.
	LogOptions() (level, format string)
}

// CommandOptions describe a command that is configured by a file of one kind.
type CommandOptions[C Configuration] struct {
	// Name is the name of the command, Short and Long say what it is for.
	Name, Short, Long string
	// Kind is the kind of the file, and Load reads it.
	Kind string
	Load func(path string) (C, error)
	// Run runs until ctx ends, with the defaulted and validated configuration, in the given namespace.
	Run func(ctx context.Context, log logr.Logger, config C, namespace string) error
}

// NewConfiguredCommand returns a command that has no flag but the one for its configuration.
func NewConfiguredCommand[C Configuration](opts CommandOptions[C]) *cobra.Command {
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
			config, err := opts.Load(path)
			if err != nil {
				return err
			}
			log, err := logger.NewZapLogger(config.LogOptions())
			if err != nil {
				return err
			}
			ctrl.SetLogger(log)
			klog.SetLogger(log)
			log.Info("Starting", "command", opts.Name, "version", version.Get().GitVersion)
			return opts.Run(cmd.Context(), log, config, os.Getenv("LEADER_ELECTION_NAMESPACE"))
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "file of kind "+opts.Kind+" (config.local.provider.extensions.gardener.cloud/v1alpha1)")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err)
	}
	return cmd
}
