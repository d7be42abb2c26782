// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer/shoot"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

// A Service that is new takes four requests in the shoot and two in the seed.
const (
	cloudControllerQPS   = 200
	cloudControllerBurst = 400
)

// newCloudControllerCommand returns the command that serves the Services of type LoadBalancer of one shoot. It is deployed
// by the chart charts/components/cloud-controller.
func newCloudControllerCommand() *cobra.Command {
	return instance.NewConfiguredCommand(instance.CommandOptions[*configv1alpha1.CloudControllerConfiguration]{
		Name:  "cloud-controller",
		Short: "Serve the Services of type LoadBalancer of one shoot",
		Long: "cloud-controller serves the Services of type LoadBalancer of a shoot by Services and EndpointSlices in the cluster\n" +
			"in which the machines of the shoot are. The controller for ControlPlanes deploys it.",
		Kind: "CloudControllerConfiguration",
		Load: configv1alpha1.LoadCloudController,
		Run:  runCloudController,
	})
}

func runCloudController(ctx context.Context, log logr.Logger, config *configv1alpha1.CloudControllerConfiguration, _ string) error {
	log.Info("Serving a shoot", "namespace", config.Seed.Namespace)
	shootClient, err := newShootClient(config.Shoot.Kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the shoot (shoot.kubeconfig): %w", err)
	}
	seedClient, unchanged, err := newMachineClusterClient(config.Seed.Kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the cluster of the machines (seed.kubeconfig, or the pod's service account): %w", err)
	}

	controller, err := shoot.New(shoot.Options{
		Log: log, Shoot: shootClient, Seed: seedClient, Namespace: config.Seed.Namespace, OneNode: config.Seed.OneNode,
		ConcurrentSyncs: *config.ConcurrentSyncs,
	})
	if err != nil {
		return err
	}
	server := &shoot.Server{Config: config.Server, Healthy: unchanged, Ready: controller.Ready}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Run(ctx) })
	group.Go(func() error { return controller.Run(ctx) })
	return group.Wait()
}

// newShootClient reads a kubeconfig that Gardener has written. It names the file of a token, which is read again when
// gardener-resource-manager has renewed it.
func newShootClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	return newCloudControllerClient(config)
}

// newMachineClusterClient reads a kubeconfig that a user may have written, so nothing in it is to lead to a file of this
// pod or to a command. The check fails as soon as there is another one in its place, so that kubelet starts the container
// again.
func newMachineClusterClient(kubeconfig string) (kubernetes.Interface, func(*http.Request) error, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, nil, err
		}
		client, err := newCloudControllerClient(config)
		return client, func(*http.Request) error { return nil }, err
	}

	data, err := os.ReadFile(kubeconfig) // #nosec G304 -- the path is the operator's own
	if err != nil {
		return nil, nil, err
	}
	config, err := cluster.Parse(data)
	if err != nil {
		return nil, nil, err
	}
	client, err := newCloudControllerClient(config)
	return client, func(*http.Request) error {
		now, err := os.ReadFile(kubeconfig) // #nosec G304 -- the path is the operator's own
		if err != nil {
			return err
		}
		if !bytes.Equal(data, now) {
			return errors.New("the kubeconfig for the cluster of the machines has changed")
		}
		return nil
	}, err
}

func newCloudControllerClient(config *rest.Config) (kubernetes.Interface, error) {
	config.QPS, config.Burst = cloudControllerQPS, cloudControllerBurst
	config.UserAgent = "provider-local-cloud-controller"
	return kubernetes.NewForConfig(config)
}
