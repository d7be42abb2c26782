// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command foreign is the extension of somebody else, as small as one with two instances can be: the e2e suite of test/e2e/foreign adds it
// to the landscape. It serves Extensions of type greeting and a webhook of shoots, and as foreign admission one of the garden.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	extensionscmd "github.com/gardener/gardener/extensions/pkg/controller/cmd"
	"github.com/gardener/gardener/extensions/pkg/controller/extension"
	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	webhookcmd "github.com/gardener/gardener/extensions/pkg/webhook/cmd"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/logger"
)

const (
	// name is that of the program and its Extension, and kind the type that it serves.
	name = "foreign"
	kind = "greeting"
	// webhookPort and healthPort are those of the chart.
	webhookPort = 10250
	healthPort  = 8081
)

// options are the flags.
type options struct {
	general       extensionscmd.GeneralOptions
	ignoreClasses bool
	webhooks      *webhookcmd.AddToManagerOptions
}

func main() {
	ctrl.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatJSON))
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "foreign:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	opts := &options{}
	opts.webhooks = webhookcmd.NewAddToManagerOptions(name, webhookManagedResource,
		map[string]string{v1beta1constants.LabelExtensionExtensionTypePrefix + kind: "true"}, &opts.general,
		&webhookcmd.ServerOptions{Mode: extensionswebhook.ModeService, ServicePort: 443, Namespace: os.Getenv("WEBHOOK_CONFIG_NAMESPACE")},
		webhookcmd.NewSwitchOptions(webhookcmd.Switch(kind, newWebhook)))
	cmd := &cobra.Command{
		Use: name, Short: "An extension that greets", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return opts.run(cmd.Context()) },
	}
	cmd.Flags().BoolVar(&opts.ignoreClasses, "ignore-classes", false, "serve Extensions of all classes: a fault, for tests that are to find it")
	opts.webhooks.AddFlags(cmd.Flags())
	cmd.AddCommand(admissionCommand())
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if err := o.webhooks.Complete(); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := newManager(config, kubernetes.SeedScheme)
	if err != nil {
		return err
	}
	served := &actuator{client: mgr.GetClient()}
	classes := o.general.Completed().ExtensionClasses
	if slices.Contains(classes, extensionsv1alpha1.ExtensionClassShoot) {
		if served.webhooks, err = o.webhooks.Completed().AddToManager(ctx, mgr, nil); err != nil {
			return err
		}
	}
	if o.ignoreClasses {
		classes = []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot}
	}
	if err := extension.Add(mgr, extension.AddArgs{
		Actuator: served, Name: name, FinalizerSuffix: kind, Type: kind, ExtensionClasses: classes,
		ControllerOptions: controller.Options{MaxConcurrentReconciles: 5},
		Predicates:        extension.DefaultPredicates(ctx, mgr, false),
	}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// newManager makes a manager with the ports of the chart.
func newManager(config *rest.Config, scheme *runtime.Scheme) (ctrl.Manager, error) {
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: fmt.Sprintf(":%d", healthPort),
		WebhookServer:          ctrlwebhook.NewServer(ctrlwebhook.Options{Port: webhookPort, CertDir: "/tmp/certificates"}),
	})
	if err != nil {
		return nil, err
	}
	return mgr, mgr.AddReadyzCheck("ping", healthz.Ping)
}
