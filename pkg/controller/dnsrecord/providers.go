// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsrecord

import (
	"sigs.k8s.io/controller-runtime/pkg/manager"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/rfc2136"
)

// NewProviders returns the providers that an instance has by its configuration: dynamic updates always, and CoreDNS,
// which it adds to the manager, unless neither DNSRecords go there by default nor the instance deploys it. Permissions
// that they need: those of package coredns, and get of secrets.
func NewProviders(mgr manager.Manager, opts coredns.SetupOptions) (map[configv1alpha1.DNSProvider]dns.Provider, error) {
	updates, err := rfc2136.New(rfc2136.Options{
		Reader:         mgr.GetAPIReader(),
		Server:         opts.DNS.RFC2136.Server,
		AllowedServers: opts.DNS.RFC2136.AllowedServers,
		Zones:          opts.DNS.RFC2136.Zones,
		Timeout:        opts.DNS.RFC2136.Timeout.Duration,
	})
	if err != nil {
		return nil, err
	}
	providers := map[configv1alpha1.DNSProvider]dns.Provider{
		configv1alpha1.DNSProviderRFC2136: dns.Observed(updates, configv1alpha1.DNSProviderRFC2136, opts.Metrics),
	}
	if opts.DNS.Provider == configv1alpha1.DNSProviderRFC2136 && !*opts.DNS.CoreDNS.Deploy {
		return providers, nil
	}

	provider, err := coredns.AddToManager(mgr, opts)
	if err != nil {
		return nil, err
	}
	providers[configv1alpha1.DNSProviderCoreDNS] = dns.Observed(provider, configv1alpha1.DNSProviderCoreDNS, opts.Metrics)
	return providers, nil
}
