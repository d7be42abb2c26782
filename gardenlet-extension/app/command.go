// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package app is the program gardenlet-extension: its commands, and the lists of controllers and webhooks that its instance
// runs. It is a package of its own so that test/integration can run the very same instance in a process of its own making.
package app

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
)

// NewCommand returns the command gardenlet-extension, with those below it that run beside the control plane of a shoot.
func NewCommand() *cobra.Command {
	cmd := instance.NewCommand(instance.CommandOptions[*configv1alpha1.ExtensionConfiguration]{
		Name:  "gardenlet-extension",
		Short: "Serve the extension objects of the classes seed and shoot in a seed",
		Long: "gardenlet-extension reconciles the extension objects of type local which gardenlet makes for a seed and its\n" +
			"shoots, and serves the webhooks of both. It is deployed by the chart provider-local.",
		Run: func(ctx context.Context, log logr.Logger, config *configv1alpha1.ExtensionConfiguration, namespace string) error {
			return Run(ctx, Options{Log: log, Config: config, Namespace: namespace})
		},
	})
	cmd.AddCommand(newCloudControllerCommand(), newMachineControllerCommand())
	return cmd
}
