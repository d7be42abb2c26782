// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package dnsrecord holds the controller for DNSRecords of type local. It checks what a DNSRecord asks for, hands it to
// the dns.Provider that is to serve it and reports what that says; whatever is done about a record is the provider's
// matter.
package dnsrecord

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/dnsrecord"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// Options are what the controller needs.
type Options struct {
	// Classes are those of the DNSRecords to reconcile.
	Classes class.Set
	// Providers serve the records, see NewProviders; DefaultProvider those whose providerConfig doesn't say by which.
	Providers       map[configv1alpha1.DNSProvider]dns.Provider
	DefaultProvider configv1alpha1.DNSProvider
	// DefaultTTL is the TTL in seconds of a record without one.
	DefaultTTL int64
	// Controller are the options of the controller itself. A reconcile mostly waits for a batched write, so a high
	// concurrency costs little.
	Controller controller.Options
	// IgnoreOperationAnnotation makes the controller reconcile on any change of a spec.
	IgnoreOperationAnnotation bool
}

// AddToManager adds the controller to a manager. Permissions that it needs, besides those of the providers: get, list,
// watch and patch of dnsrecords, patch of dnsrecords/status, and get, list and watch of namespaces and clusters.
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Providers[opts.DefaultProvider] == nil {
		return fmt.Errorf("adding the DNSRecord controller: DNS provider %q, which is the default, is not among those given", opts.DefaultProvider)
	}
	classes, ok := opts.Classes.Only(extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot)
	if !ok {
		return errors.New("adding the DNSRecord controller: no extension class given, name at least one")
	}
	if opts.Controller.ReconciliationTimeout == 0 {
		opts.Controller.ReconciliationTimeout = controllerutils.DefaultReconciliationTimeout
	}

	// The predicates read from the cache, which doesn't wait for anything that a context could cut short.
	defaults := dnsrecord.DefaultPredicates(context.Background(), mgr, opts.IgnoreOperationAnnotation)
	predicates := classes.Predicates(defaults, dns.Type)

	b := builder.ControllerManagedBy(mgr).
		Named(dnsrecord.ControllerName).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.DNSRecord{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicates...))

	// Only shoots have Clusters; elsewhere there may not even be such a kind to watch.
	if _, ok := classes.Only(extensionsv1alpha1.ExtensionClassShoot); ok && opts.IgnoreOperationAnnotation {
		b = b.Watches(&extensionsv1alpha1.Cluster{}, handler.EnqueueRequestsFromMapFunc(dnsrecord.ClusterToDNSRecordMapper(mgr.GetClient(), predicates)))
	}

	own := common.OnlyOwn[*extensionsv1alpha1.DNSRecord](mgr, dns.Type, classes)
	return b.Complete(dnsrecord.NewReconciler(own, NewActuator(ActuatorOptions{
		Client:          own.GetClient(),
		Providers:       opts.Providers,
		DefaultProvider: opts.DefaultProvider,
		DefaultTTL:      opts.DefaultTTL,
	})))
}
