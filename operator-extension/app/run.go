// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package app is the program operator-extension: its commands, and what its instance runs. It is a package of its own so that
// test/integration can run the very same instance in a process of its own making.
package app

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/program"
)

// Name is the name of the instance, and of its ServiceAccount, as charts/provider-local has it.
const Name = "gardener-extension-provider-local-garden"

// Options are what the instance is run with. Run sets its name, kinds and caches.
type Options = instance.Options

// NewCommand returns the command operator-extension, with the command admission below it.
func NewCommand() *cobra.Command {
	cmd := program.NewCommand("operator-extension", "Serve the extension objects of class garden in the garden runtime cluster",
		"operator-extension reconciles the BackupBuckets, BackupEntries, DNSRecords and Extensions of class garden\n"+
			"which gardener-operator makes for a Garden. It is deployed by the chart provider-local.", Run)
	cmd.AddCommand(newAdmissionCommand())
	return cmd
}

// Run runs the instance until ctx ends.
func Run(ctx context.Context, opts Options) error {
	opts.Name, opts.ByObject = Name, caches(opts.Config)
	opts.Kinds = runtime.NewSchemeBuilder(kubernetesscheme.AddToScheme, extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme)
	return program.Run(ctx, opts, "garden", []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassGarden}, func(p *program.Program) error {
		return p.AddCommonControllers(nil)
	})
}
