// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
)

// AddController adds the controller for objects of a kind unless it is disabled.
func AddController(kind string, config configv1alpha1.ControllerConfiguration, addToManager func() error) error {
	if config.Disabled {
		return nil
	}
	if err := addToManager(); err != nil {
		return fmt.Errorf("adding the controller for %ss: %w", kind, err)
	}
	return nil
}

// NewScheme returns a scheme with all that the given functions add.
func NewScheme(addToScheme ...func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range addToScheme {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// newCharts returns the charts of the components as configured. Close them after use.
func (i *Instance) newCharts() (*oci.Sources, error) {
	return oci.NewSources(i.config.Charts, components.FS, oci.Options{
		Reader:     i.GetAPIReader(),
		Namespace:  i.namespace,
		Registerer: metrics.Registry,
		Log:        i.GetLogger().WithName("charts"),
	})
}

// NewRenderer returns a renderer of charts for the cluster of config, which is asked for its version.
func NewRenderer(config *rest.Config) (*chart.Renderer, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking the API server for its version: %w", err)
	}
	return chart.NewRenderer(chart.Capabilities{KubeVersion: version.GitVersion})
}

// HasVPA reports whether the cluster knows VerticalPodAutoscalers, which Gardener brings where they are switched on.
func HasVPA(mapper meta.RESTMapper) bool {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: "autoscaling.k8s.io", Kind: "VerticalPodAutoscaler"})
	return err == nil
}
