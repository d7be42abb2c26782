// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package dnsrecord holds the controller for DNSRecords of type local. It checks what a DNSRecord asks for, hands it to
// the dns.Provider that is to serve it and reports what that says; whatever is done about a record is the provider's
// matter.
package dnsrecord

import (
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/dnsrecord"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
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
	// ReservedDomains are domains that shoots may not choose names in, beside those of their seed.
	ReservedDomains []string
	// Controller are the options of the controller itself. A reconcile mostly waits for a batched write, so a high
	// concurrency costs little.
	Controller controller.Options
	// IgnoreOperationAnnotation makes the controller reconcile on any change of a spec.
	IgnoreOperationAnnotation bool
	// Clusters are those of the instance, which all its controllers share. Default: ones of its own.
	Clusters *reconciler.Clusters
}

// patience is how long a record may take before it says that it is under way. Records are written in batches, so each of many
// waits for others, and gets its answer with them.
const patience = 10 * time.Second

// AddToManager adds the controller to a manager. Permissions that it needs, besides those of the providers: get, list,
// watch and patch of dnsrecords, patch of dnsrecords/status, and with class shoot get, list and watch of clusters and get of
// namespaces.
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

	if _, hasShoots := classes.Only(extensionsv1alpha1.ExtensionClassShoot); !hasShoots {
		// Only shoots have Clusters; elsewhere there may not even be such a kind to watch.
		opts.Clusters = nil
	} else if opts.Clusters == nil {
		opts.Clusters = reconciler.NewClusters(mgr.GetClient())
	}

	r := newReconciler(mgr, opts, classes)
	b := builder.ControllerManagedBy(mgr).
		Named(dnsrecord.ControllerName).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.DNSRecord{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(r.Predicates()...))
	return r.WatchClusters(b, &extensionsv1alpha1.DNSRecordList{}).Complete(r)
}

func newReconciler(mgr manager.Manager, opts Options, classes class.Set) *reconciler.Reconciler[*extensionsv1alpha1.DNSRecord] {
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.DNSRecord]{
		Client:                    mgr.GetClient(),
		Kind:                      extensionsv1alpha1.DNSRecordResource,
		NewObject:                 func() *extensionsv1alpha1.DNSRecord { return &extensionsv1alpha1.DNSRecord{} },
		Types:                     []string{dns.Type},
		Classes:                   classes,
		Finalizer:                 dnsrecord.FinalizerName,
		IgnoreOperationAnnotation: opts.IgnoreOperationAnnotation,
		Clusters:                  opts.Clusters,
		Patience:                  patience,
		Actuator: newActuator(actuatorOptions{
			reader:          mgr.GetAPIReader(),
			Providers:       opts.Providers,
			DefaultProvider: opts.DefaultProvider,
			DefaultTTL:      opts.DefaultTTL,
			ReservedDomains: opts.ReservedDomains,
		}),
	})
}
