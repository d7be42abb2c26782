// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package dnsrecord holds the controller for DNSRecords of type local. It checks what a DNSRecord asks for, hands it to
// the dns.Provider that is to serve it and reports what that says; whatever is done about a record is the provider's
// matter.
package dnsrecord

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/dnsrecord"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Providers serve the records, see NewProviders; DefaultProvider those whose providerConfig doesn't say by which.
	Providers       map[configv1alpha1.DNSProvider]dns.Provider
	DefaultProvider configv1alpha1.DNSProvider
	// DefaultTTL is the TTL in seconds of a record without one.
	DefaultTTL int64
	// ReservedDomains are domains that shoots may not choose names in, beside those of their seed.
	ReservedDomains []string
}

// AddToManager adds the controller to a manager. Permissions that it needs, besides those of the providers: get, list,
// watch and patch of dnsrecords, patch of dnsrecords/status, and with class shoot get, list and watch of clusters and get of
// namespaces.
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Providers[opts.DefaultProvider] == nil {
		return fmt.Errorf("DNS provider %q, which is the default, is not among those given", opts.DefaultProvider)
	}
	return newReconciler(mgr, opts).AddToManager(mgr, dnsrecord.ControllerName)
}

func newReconciler(mgr manager.Manager, opts Options) *reconciler.Reconciler[*extensionsv1alpha1.DNSRecord] {
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.DNSRecord]{
		Shared:    opts.Shared,
		Client:    mgr.GetClient(),
		Types:     []string{dns.Type},
		ExistsFor: class.All(),
		Finalizer: dnsrecord.FinalizerName,
		Actuator:  newActuator(opts, mgr.GetAPIReader()),
	})
}
