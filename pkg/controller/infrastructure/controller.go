// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"errors"
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/infrastructure"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controller needs.
type Options struct {
	// Controller are the options of the controller, such as its concurrency.
	Controller controller.Options
	// Classes are the classes to serve. There are Infrastructures of class shoot only.
	Classes class.Set
	// IgnoreOperationAnnotation has every change of a spec, and every change of a Cluster, reconciled.
	IgnoreOperationAnnotation bool
	// Clusters finds the cluster of the machines of a shoot.
	Clusters cluster.Clusters
	// ShootClusters are those of the instance, which all its controllers share. Default: ones of its own.
	ShootClusters *reconciler.Clusters
	// EgressCIDRs are ranges that machines may reach besides those that every machine reaches: machines.egressCIDRs of the
	// configuration.
	EgressCIDRs []string
	// NodeCIDRs are ranges that Shoots may have for their nodes besides private ones: machines.nodeCIDRs of the configuration.
	NodeCIDRs []string
	// ResolvConf is the resolv.conf(5) with the DNS servers of the instance, in whose ranges no machine gets an address.
	// Default: /etc/resolv.conf.
	ResolvConf string
	// LoadBalancers are those of the seed. Machines may reach all addresses of theirs.
	LoadBalancers configv1alpha1.LoadBalancersConfiguration
	// CoreDNSNamespace is that of the CoreDNS which machines in the seed ask; empty if they ask none of ours.
	CoreDNSNamespace string
	// Clock tells the time. Default: the real one.
	Clock clock.PassiveClock
}

// AddToManager adds the controller. It does nothing if the classes do not include shoot. It is an error if there are no
// classes or no clusters, or if a range of addresses is none.
//
// Needed permissions in the seed, beyond those of the extension library for Infrastructures, Clusters and Namespaces and
// those of cluster.Clusters: get, create, patch and delete on NetworkPolicies; list, create, patch and delete on ippools of
// crd.projectcalico.org; get on Namespaces. In another cluster the user of its kubeconfig needs the same, and create,
// patch and delete on Namespaces.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := addToManager(mgr, opts); err != nil {
		return fmt.Errorf("adding the Infrastructure controller: %w", err)
	}
	return nil
}

func addToManager(mgr manager.Manager, opts Options) error {
	if opts.Classes.String() == "" {
		return errors.New("no extension class given, name at least one")
	}
	if opts.Clusters == nil {
		return errors.New("no clusters of machines given")
	}
	ranges, err := newRanges(opts)
	if err != nil {
		return err
	}
	classes, ok := opts.Classes.Only(extensionsv1alpha1.ExtensionClassShoot)
	if !ok {
		return nil
	}

	if opts.Controller.ReconciliationTimeout == 0 {
		opts.Controller.ReconciliationTimeout = controllerutils.DefaultReconciliationTimeout
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.ShootClusters == nil {
		opts.ShootClusters = reconciler.NewClusters(mgr.GetClient())
	}

	r := newReconciler(mgr, opts, classes, ranges)
	b := builder.ControllerManagedBy(mgr).
		Named(infrastructure.ControllerName).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.Infrastructure{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(r.Predicates()...))
	return r.WatchClusters(b, &extensionsv1alpha1.InfrastructureList{}).Complete(r)
}

func newReconciler(mgr manager.Manager, opts Options, classes class.Set, ranges ranges) *reconciler.Reconciler[*extensionsv1alpha1.Infrastructure] {
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.Infrastructure]{
		Client:                    mgr.GetClient(),
		Kind:                      extensionsv1alpha1.InfrastructureResource,
		NewObject:                 func() *extensionsv1alpha1.Infrastructure { return &extensionsv1alpha1.Infrastructure{} },
		Types:                     []string{localv1alpha1.Type},
		Classes:                   classes,
		Finalizer:                 infrastructure.FinalizerName,
		IgnoreOperationAnnotation: opts.IgnoreOperationAnnotation,
		Clusters:                  opts.ShootClusters,
		Actuator: &actuator{
			client:           mgr.GetClient(),
			reader:           mgr.GetAPIReader(),
			clock:            opts.Clock,
			clusters:         opts.Clusters,
			ranges:           ranges,
			coreDNSNamespace: opts.CoreDNSNamespace,
		},
		Clock: opts.Clock,
	})
}
