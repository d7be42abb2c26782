// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	mcmapp "github.com/gardener/machine-controller-manager/pkg/util/provider/app"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/app/options"
	mcmdriver "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/driver"
)

// inClusterConfig is what --control-kubeconfig says for the cluster in which the program runs.
const inClusterConfig = "inClusterConfig"

// newMachineControllerCommand returns the command that runs beside machine-controller-manager, in the control plane of each
// shoot. Its flags are those that all machine controllers have, so that Gardener can start it like any other.
//
// machine-controller-manager has packages that register its metrics of clients and queues when they are imported. They are
// left out: in this program, they would take the place of those of the extension's own controllers.
func newMachineControllerCommand() *cobra.Command {
	var (
		server       = options.NewMCServer()
		allowedCIDRs []string
	)
	cmd := &cobra.Command{
		Use:   "machine-controller --control-kubeconfig FILE --target-kubeconfig FILE --namespace NAMESPACE",
		Short: "Make the machines of a shoot, beside machine-controller-manager",
		Long: "machine-controller makes a pod for each Machine of a shoot, in the shoot's namespace of the seed or in the\n" +
			"cluster whose kubeconfig is in the Secret with the shoot's credentials. It is put beside machine-controller-manager\n" +
			"in the control plane of the shoot by gardenlet-extension's webhook.",
		Example: "  gardenlet-extension machine-controller --control-kubeconfig=inClusterConfig \\\n" +
			"    --target-kubeconfig=/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/kubeconfig --namespace=shoot--local--local",
		Args:          cobra.NoArgs,
		Version:       version.Get().GitVersion,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logs.InitLogs()
			defer logs.FlushLogs()
			ctrl.SetLogger(klog.Background())
			return runMachineController(cmd.Context(), server, allowedCIDRs)
		},
	}
	cmd.Flags().SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	server.AddFlags(cmd.Flags())
	cmd.Flags().StringSliceVar(&allowedCIDRs, machine.AllowedCIDRsFlag, nil, "The ranges to which the server of a kubeconfig for machines may resolve. Loopback, link-local, multicast and unspecified addresses are refused in any case. All others are allowed if there is no range.")
	return cmd
}

// runMachineController runs until ctx ends. What machine-controller-manager runs knows no end, so it has to end with the
// process; a machine that is being made or deleted then is gone on with by the next one.
func runMachineController(ctx context.Context, server *options.MCServer, allowedCIDRs []string) error {
	if err := server.Validate(); err != nil {
		return err
	}
	driver, err := newMachineDriver(server, allowedCIDRs)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- mcmapp.Run(server, driver) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		klog.InfoS("Stopping")
		return nil
	}
}

// newMachineDriver returns the driver for machines. Its client of the seed does not cache: it is asked for a Secret or a
// pod when there is something to do for a machine, and for nothing in between.
func newMachineDriver(server *options.MCServer, allowedCIDRs []string) (mcmdriver.Driver, error) {
	allowed, err := configv1alpha1.ParseCIDRs(allowedCIDRs)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", machine.AllowedCIDRsFlag, err)
	}
	config, err := controlConfig(server)
	if err != nil {
		return nil, fmt.Errorf("finding the seed by --control-kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(kubernetesscheme.AddToScheme(scheme), machinev1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	seed, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client for the seed: %w", err)
	}
	return driver.New(cluster.New(seed, config, allowed...), seed), nil
}

// controlConfig returns the access to the seed by the rules that machine-controller-manager has for these flags.
func controlConfig(server *options.MCServer) (*rest.Config, error) {
	kubeconfig := server.ControlKubeconfig
	switch kubeconfig {
	case inClusterConfig:
		kubeconfig = ""
	case "":
		kubeconfig = server.TargetKubeconfig
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = server.KubeAPIQPS, int(server.KubeAPIBurst)
	return rest.AddUserAgent(config, "machine-driver"), nil
}
