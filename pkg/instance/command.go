// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"os"
	"reflect"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gardener/gardener/pkg/logger"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// CommandOptions describe a command that is configured by a file of one kind.
type CommandOptions struct {
	// Name is the name of the command, Short and Long say what it is for.
	Name, Short, Long string
	// Config is an empty configuration of that kind, into which the file is read.
	Config configv1alpha1.Configuration
	// Run runs until ctx ends, in the given namespace. Config is defaulted and validated by then.
	Run func(ctx context.Context, log logr.Logger, namespace string) error
}

// NewConfiguredCommand returns a command that has no flag but the one for its configuration.
func NewConfiguredCommand(opts CommandOptions) *cobra.Command {
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
			if err := configv1alpha1.Load(path, opts.Config); err != nil {
				return err
			}
			log, err := logger.NewZapLogger(opts.Config.LogOptions())
			if err != nil {
				return err
			}
			ctrl.SetLogger(log)
			klog.SetLogger(log)
			log.Info("Starting", "command", opts.Name, "version", version.Get().GitVersion)
			return opts.Run(cmd.Context(), log, os.Getenv("LEADER_ELECTION_NAMESPACE"))
		},
	}
	kind := reflect.TypeOf(opts.Config).Elem().Name()
	cmd.Flags().StringVar(&path, "config", "", "file of kind "+kind+" (config.local.provider.extensions.gardener.cloud/v1alpha1)")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err)
	}
	return cmd
}
