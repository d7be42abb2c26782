// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package app is the program gardenlet-extension: its commands, and the lists of controllers and webhooks that its instance
// runs. It is a package of its own so that test/integration can run the very same instance in a process of its own making.
package app

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/program"
)

// Name is the name of the instance, of its ServiceAccount and of its Service, as charts/provider-local has it.
const Name = "gardener-extension-provider-local-seed"

// Options are what the instance is run with. Run sets its name, kinds and caches.
type Options = instance.Options

// NewCommand returns the command gardenlet-extension, with those below it that run beside the control plane of a shoot.
func NewCommand() *cobra.Command {
	cmd := program.NewCommand("gardenlet-extension", "Serve the extension objects of the classes seed and shoot in a seed",
		"gardenlet-extension reconciles the extension objects of type local which gardenlet makes for a seed and its\n"+
			"shoots, and serves the webhooks of both. It is deployed by the chart provider-local.", Run)
	cmd.AddCommand(newCloudControllerCommand(), newMachineControllerCommand())
	return cmd
}

// seed is what the controllers and webhooks of the instance share.
type seed struct {
	*program.Program
	// clusters are where machines are.
	clusters cluster.Clusters
}

// Run runs the instance until ctx ends.
func Run(ctx context.Context, opts Options) error {
	opts.Name, opts.ByObject, opts.Uncached = Name, caches(opts.Config), uncached()
	opts.Kinds = runtime.NewSchemeBuilder(kubernetesscheme.AddToScheme, extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme,
		machinev1alpha1.AddToScheme, vpaautoscalingv1.AddToScheme)
	classes := []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot}
	return program.Run(ctx, opts, "seed", classes, func(p *program.Program) error {
		servers, err := configv1alpha1.ParseCIDRs(opts.Config.Machines.Remote.AllowedCIDRs)
		if err != nil {
			return fmt.Errorf("machines.remote.allowedCIDRs: %w", err)
		}
		if err := addGardenAccess(p.Manager); err != nil {
			return err
		}
		s := &seed{Program: p, clusters: cluster.New(p.GetClient(), p.GetConfig(), servers...)}
		shootWebhooks, err := s.addWebhooks()
		if err != nil {
			return err
		}
		return s.addControllers(shootWebhooks)
	})
}
