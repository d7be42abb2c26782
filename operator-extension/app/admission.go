// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	"github.com/gardener/gardener/pkg/client/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/pkg/admission"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
)

// newAdmissionCommand returns the command that serves the admission webhooks of the virtual garden. It is deployed by the
// charts charts/admission-local.
func newAdmissionCommand() *cobra.Command {
	config := &configv1alpha1.AdmissionConfiguration{}
	return instance.NewConfiguredCommand(instance.CommandOptions{
		Name:  "admission",
		Short: "Serve the admission webhooks for objects of type local in the virtual garden",
		Long: "admission checks the CloudProfiles, NamespacedCloudProfiles, Shoots, Seeds and credentials of type local that users\n" +
			"write in the virtual garden. It runs in the garden runtime cluster; gardener-operator deploys it.",
		Config: config,
		Run: func(ctx context.Context, log logr.Logger, namespace string) error {
			return RunAdmission(ctx, AdmissionOptions{Log: log, Config: config, Namespace: namespace})
		},
	})
}

// AdmissionOptions are what the admission webhooks are run with.
type AdmissionOptions struct {
	// Log is the root of all logs.
	Log logr.Logger
	// Config is the defaulted and validated configuration.
	Config *configv1alpha1.AdmissionConfiguration
	// Garden is the virtual garden. If nil, it is found by the configuration or by the environment.
	Garden *rest.Config
	// Runtime is the garden runtime cluster. If nil, it is that of the pod's ServiceAccount.
	Runtime *rest.Config
	// Namespace is the namespace in which the program runs.
	Namespace string
	// URL is HOST:PORT by which the virtual garden's API server reaches the program. Default: the Service.
	URL string
}

// RunAdmission serves the admission webhooks until ctx ends.
func RunAdmission(ctx context.Context, opts AdmissionOptions) error {
	config := opts.Config
	if opts.Namespace == "" {
		return errors.New("the namespace of this program is unknown: set the environment variable LEADER_ELECTION_NAMESPACE")
	}
	garden, err := gardenConfig(opts.Garden, config)
	if err != nil {
		return err
	}
	if opts.Runtime == nil {
		if opts.Runtime, err = rest.InClusterConfig(); err != nil {
			return fmt.Errorf("finding the garden runtime cluster (the pod's service account): %w", err)
		}
	}

	mgrOptions := instance.ManagerOptions(config.Server, config.LeaderElection, admission.Name+"-leader-election", opts.Namespace)
	mgrOptions.Logger, mgrOptions.Scheme = opts.Log, kubernetes.GardenScheme
	mgrOptions.LeaderElectionConfig = opts.Runtime
	if filter := mgrOptions.Metrics.FilterProvider; filter != nil {
		// Who collects metrics is known in the garden runtime cluster.
		mgrOptions.Metrics.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
			httpClient, err := rest.HTTPClientFor(opts.Runtime)
			if err != nil {
				return nil, err
			}
			return filter(opts.Runtime, httpClient)
		}
	}
	mgrOptions.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return admission.NewRESTMapper(), nil }
	mgr, err := manager.New(garden, mgrOptions)
	if err != nil {
		return fmt.Errorf("making the manager of %s: %w", admission.Name, err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	nodeRanges, err := configv1alpha1.ParseCIDRs(config.Machines.NodeCIDRs)
	if err != nil {
		return fmt.Errorf("machines.nodeCIDRs: %w", err)
	}
	watches := instance.NewWatches(0)
	if err := mgr.Add(watches); err != nil {
		return err
	}
	if err := admission.AddToManager(mgr, webhook.Options{
		Namespace:            opts.Namespace,
		OwnerNamespace:       config.Webhooks.OwnerNamespace,
		BindAddress:          config.Server.Webhooks.BindAddress,
		Port:                 config.Server.Webhooks.Port,
		ServicePort:          *config.Webhooks.ServicePort,
		URL:                  opts.URL,
		Certificates:         opts.Runtime,
		CertificateNamespace: config.Webhooks.CertificateNamespace,
		NewInformer:          watches.NewInformer,
		Log:                  opts.Log.WithName("webhooks"),
	}, nodeRanges...); err != nil {
		return err
	}
	return instance.Start(ctx, mgr)
}

func gardenConfig(garden *rest.Config, config *configv1alpha1.AdmissionConfiguration) (*rest.Config, error) {
	connection := config.ClientConnection
	if garden == nil {
		path := connection.Kubeconfig
		if path == "" {
			path = os.Getenv(v1beta1constants.EnvGenericGardenKubeconfig)
		}
		if path == "" {
			return nil, fmt.Errorf("the virtual garden is unknown: set clientConnection.kubeconfig or the environment variable %s", v1beta1constants.EnvGenericGardenKubeconfig)
		}
		var err error
		if garden, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
			return nil, fmt.Errorf("reading the kubeconfig %s of the virtual garden: %w", path, err)
		}
	}
	garden = rest.CopyConfig(garden)
	instance.Connect(garden, connection)
	garden.UserAgent = admission.Name
	return garden, nil
}
