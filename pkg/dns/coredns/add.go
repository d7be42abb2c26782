// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// SetupOptions are what an instance of this extension uses CoreDNS with.
type SetupOptions struct {
	// DNS is the part of the instance's configuration on DNS, with its defaults and validated.
	DNS configv1alpha1.DNSConfiguration
	// Place is the name of this instance, unique in the cluster: "garden" or "seed".
	Place string
	// ServiceAccount is the one of the instance, in the instance's Namespace: when that goes, the garbage collector takes
	// what the instance has made for CoreDNS along.
	ServiceAccount types.NamespacedName
	// Classes are the classes that the instance serves.
	Classes class.Set
	// Renderer renders for the cluster, and Writer writes ManagedResources to it.
	Renderer *chart.Renderer
	Writer   *resources.Writer
	// Chart is the chart of CoreDNS.
	Chart chart.Source
	// VPA reports whether the cluster knows VerticalPodAutoscalers.
	VPA bool
	// Metrics count what is done about records. None if nil.
	Metrics *metrics.DNS
}

// AddToManager adds the Provider that writes records for CoreDNS, and the Server that allows it to and, unless told otherwise,
// deploys CoreDNS.
func AddToManager(mgr manager.Manager, opts SetupOptions) (*Provider, error) {
	options := Options{
		SetupOptions: opts,
		Client:       mgr.GetClient(),
		Reader:       mgr.GetAPIReader(),
		Cache:        mgr.GetCache(),
		Exchange:     exchange,
		Log:          mgr.GetLogger().WithName("coredns"),
	}
	provider := New(options)
	if err := mgr.Add(provider); err != nil {
		return nil, err
	}
	return provider, (&Server{options}).AddToManager(mgr)
}

// CacheOptions returns how a manager has to cache what a Provider reads, so that the cache holds just that: Services
// of type LoadBalancer, in the namespaces whole those of any type, and the ConfigMaps and EndpointSlices of CoreDNS' namespace. The manager can read
// no others of these kinds from its cache, so other readers of them need a client that bypasses it. Namespaces, of which
// a Provider reads the zones, are all cached: the extension library asks of any whether it is one of a shoot.
func CacheOptions(namespace string, whole ...string) map[client.Object]cache.ByObject {
	isLoadBalancer := fields.OneTermEqualSelector("spec.type", string(corev1.ServiceTypeLoadBalancer))
	services := map[string]cache.Config{cache.AllNamespaces: {FieldSelector: isLoadBalancer}}
	for _, namespace := range whole {
		services[namespace] = cache.Config{}
	}
	return map[client.Object]cache.ByObject{
		&corev1.Service{}: {Namespaces: services, Transform: stripService},
		&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{namespace: {LabelSelector: labels.SelectorFromSet(labels.Set{LabelConfig: "true"})}},
		},
		&discoveryv1.EndpointSlice{}: {
			Namespaces: map[string]cache.Config{namespace: {LabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: ServiceName})}},
		},
	}
}

// stripService removes large fields that neither gateways nor the controller for Services of type LoadBalancer need. What is left must not
// be written back as a whole: writers send patches of single fields.
func stripService(object any) (any, error) {
	service, ok := object.(*corev1.Service)
	if !ok {
		return object, nil
	}
	stripped := *service
	stripped.ManagedFields, stripped.Labels, stripped.Annotations, stripped.Spec.Selector = nil, nil, nil, nil
	if instance, ok := service.Annotations[loadbalancer.AnnotationInstance]; ok {
		stripped.Annotations = map[string]string{loadbalancer.AnnotationInstance: instance}
	}
	return &stripped, nil
}

// clusterIP is the address that CoreDNS' Service asks for; none if it is meant for another cluster.
func clusterIP(config configv1alpha1.CoreDNSConfiguration) string {
	network, err := netip.ParsePrefix(config.ServiceNetwork)
	if err != nil {
		return config.ClusterIP // Validated: there is no range to look at.
	}
	if address, err := netip.ParseAddr(config.ClusterIP); err != nil || !network.Contains(address) {
		return ""
	}
	return config.ClusterIP
}
