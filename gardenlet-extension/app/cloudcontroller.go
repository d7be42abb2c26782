// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer/shoot"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

// A new Service takes four requests in the shoot, two of which are Events, and two in the seed. The owner of the shoot decides how many
// there are, so the seed, which all shoots share, is asked less.
const (
	shootQPS, shootBurst                   = 200, 400
	machineClusterQPS, machineClusterBurst = 20, 200
)

// newCloudControllerCommand returns the command that serves the Services of type LoadBalancer of one shoot. It is deployed
// by the chart charts/components/cloud-controller.
func newCloudControllerCommand() *cobra.Command {
	config := &configv1alpha1.CloudControllerConfiguration{}
	return instance.NewConfiguredCommand(instance.CommandOptions{
		Name:  "cloud-controller",
		Short: "Serve the Services of type LoadBalancer of one shoot",
		Long: "cloud-controller serves the Services of type LoadBalancer of a shoot by Services and EndpointSlices in the cluster\n" +
			"in which the machines of the shoot are. The controller for ControlPlanes deploys it.",
		Config: config,
		Run: func(ctx context.Context, log logr.Logger, _ string) error {
			return runCloudController(ctx, log, config)
		},
	})
}

func runCloudController(ctx context.Context, log logr.Logger, config *configv1alpha1.CloudControllerConfiguration) error {
	log.Info("Serving a shoot", "namespace", config.Seed.Namespace)
	shootConfig, err := newShootConfig(config.Shoot.Kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the shoot (shoot.kubeconfig): %w", err)
	}
	seedConfig, unchanged, err := newMachineClusterConfig(config.Seed.Kubeconfig, config.Seed.AllowedCIDRs)
	if err != nil {
		return fmt.Errorf("finding the cluster of the machines (seed.kubeconfig, or the pod's service account): %w", err)
	}
	server, err := newCloudControllerServer(config.Server)
	if err != nil {
		return err
	}
	watches := instance.NewWatches(0)
	mgr, err := shoot.New(shoot.Options{
		Log: log, Shoot: shootConfig, Seed: seedConfig, Namespace: config.Seed.Namespace, OneNode: config.Seed.OneNode, NodePorts: config.Seed.NodePorts,
		Server: server, Healthy: unchanged, NewInformer: watches.NewInformer,
	})
	if err == nil {
		err = mgr.Add(watches)
	}
	if err != nil {
		return err
	}
	return instance.Start(ctx, mgr)
}

// newCloudControllerServer returns the options of the server. controller-runtime reads a new certificate at once. Without
// any, it would make one itself, so this fails.
func newCloudControllerServer(config configv1alpha1.CloudControllerServer) (metricsserver.Options, error) {
	options := metricsserver.Options{BindAddress: net.JoinHostPort(config.BindAddress, strconv.Itoa(config.Port))}
	if directory := config.CertificateDirectory; directory != "" {
		if _, err := tls.LoadX509KeyPair(filepath.Join(directory, corev1.TLSCertKey), filepath.Join(directory, corev1.TLSPrivateKeyKey)); err != nil {
			return options, fmt.Errorf("reading the certificate of the server: %w", err)
		}
		options.SecureServing, options.CertDir = true, directory
		options.TLSOpts = []func(*tls.Config){func(config *tls.Config) {
			config.MinVersion, config.NextProtos = tls.VersionTLS12, []string{"h2", "http/1.1"}
		}}
	}
	return options, nil
}

// newShootConfig reads a kubeconfig that Gardener has written. It names the file of a token, which is read again when
// gardener-resource-manager has renewed it.
func newShootConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	return limited(config, shootQPS, shootBurst), nil
}

// newMachineClusterConfig reads a kubeconfig that a user may have written, so nothing in it is to lead to a file of this
// pod or to a command, nor its server to an address that is not allowed. The check fails as soon as there is another one in
// its place, so that kubelet starts the container again.
func newMachineClusterConfig(kubeconfig string, allowedCIDRs []string) (*rest.Config, func(*http.Request) error, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, nil, err
		}
		return limited(config, machineClusterQPS, machineClusterBurst), func(*http.Request) error { return nil }, nil
	}

	allowed, err := configv1alpha1.ParseCIDRs(allowedCIDRs)
	if err != nil {
		return nil, nil, err
	}
	data, err := os.ReadFile(kubeconfig) // #nosec G304 -- the path is the operator's own
	if err != nil {
		return nil, nil, err
	}
	config, err := cluster.Parse(data, allowed...)
	if err != nil {
		return nil, nil, err
	}
	return limited(config, machineClusterQPS, machineClusterBurst), func(*http.Request) error {
		now, err := os.ReadFile(kubeconfig) // #nosec G304 -- the path is the operator's own
		if err != nil {
			return err
		}
		if !bytes.Equal(data, now) {
			return errors.New("the kubeconfig for the cluster of the machines has changed")
		}
		return nil
	}, nil
}

func limited(config *rest.Config, qps float32, burst int) *rest.Config {
	config.QPS, config.Burst = qps, burst
	config.UserAgent = "provider-local-cloud-controller"
	return config
}
