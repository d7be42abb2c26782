// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// SetupOptions are what an instance of this extension uses CoreDNS with.
type SetupOptions struct {
	// DNS is the part of the instance's configuration on DNS.
	DNS configv1alpha1.DNSConfiguration
	// Place tells what this instance writes from what another one does, for example "garden".
	Place string
	// ServiceAccount is the one of the instance, in the instance's namespace.
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

// AddToManager adds the Provider that writes records for CoreDNS and, unless told otherwise, the Server that deploys
// CoreDNS.
func AddToManager(mgr manager.Manager, opts SetupOptions) (*Provider, error) {
	dns := opts.DNS
	provider, err := New(Options{
		Client:          mgr.GetClient(),
		Reader:          mgr.GetAPIReader(),
		Informers:       mgr.GetCache(),
		Log:             mgr.GetLogger().WithName("dns"),
		Instance:        opts.Place,
		Owner:           opts.ServiceAccount.Namespace,
		Classes:         opts.Classes,
		Namespace:       dns.CoreDNS.Namespace,
		Zones:           dns.Zones,
		Reserved:        dns.ReservedDomains,
		DefaultTTL:      *dns.DefaultTTL,
		ClusterDomain:   dns.CoreDNS.ClusterDomain,
		DefaultProvider: dns.Provider,
		Servers:         dns.CoreDNS.Servers,
		BatchWindow:     dns.CoreDNS.BatchWindow.Duration,
		ConfirmTimeout:  dns.CoreDNS.ConfirmTimeout.Duration,
		Metrics:         opts.Metrics,
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(provider); err != nil || !*dns.CoreDNS.Deploy {
		return provider, err
	}

	server, err := NewServer(ServerOptions{
		Client:         mgr.GetClient(),
		Reader:         mgr.GetAPIReader(),
		Log:            mgr.GetLogger().WithName("coredns"),
		Renderer:       opts.Renderer,
		Writer:         opts.Writer,
		Chart:          opts.Chart,
		Instance:       opts.Place,
		ServiceAccount: opts.ServiceAccount,
		Namespace:      dns.CoreDNS.Namespace,
		Values: ServerValues{
			Image:             dns.CoreDNS.Image,
			Replicas:          *dns.CoreDNS.Replicas,
			Zones:             dns.Zones,
			ClientNetworks:    dns.CoreDNS.ClientNetworks,
			ClusterIP:         clusterIP(dns.CoreDNS),
			PriorityClassName: dns.CoreDNS.PriorityClassName,
			VPA:               opts.VPA,
		},
	})
	if err != nil {
		return nil, err
	}
	return provider, server.AddToManager(mgr)
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
