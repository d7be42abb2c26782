// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package app is the program operator-extension: its commands, and the list of controllers that its instance runs. It is a
// package of its own so that test/integration can run the very same instance in a process of its own making.
package app

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
)

// NewCommand returns the command operator-extension, with the command admission below it.
func NewCommand() *cobra.Command {
	cmd := instance.NewCommand(instance.CommandOptions[*configv1alpha1.ExtensionConfiguration]{
		Name:  "operator-extension",
		Short: "Serve the extension objects of class garden in the garden runtime cluster",
		Long: "operator-extension reconciles the BackupBuckets, BackupEntries, DNSRecords and Extensions of class garden\n" +
			"which gardener-operator makes for a Garden. It is deployed by the chart provider-local.",
		Run: func(ctx context.Context, log logr.Logger, config *configv1alpha1.ExtensionConfiguration, namespace string) error {
			return Run(ctx, Options{Log: log, Config: config, Namespace: namespace})
		},
	})
	cmd.AddCommand(newAdmissionCommand())
	return cmd
}
