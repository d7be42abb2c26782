// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"errors"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/infrastructure"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Clusters finds the cluster of the machines of a shoot.
	Clusters cluster.Clusters
	// EgressCIDRs are ranges that machines may reach besides those that every machine reaches: machines.egressCIDRs of the
	// configuration.
	EgressCIDRs []string
	// NodeCIDRs are ranges that Shoots may have for their nodes besides private ones: machines.nodeCIDRs of the configuration.
	NodeCIDRs []string
	// AllowedCIDRs are the ranges to which servers of kubeconfigs for machines may resolve: machines.remote.allowedCIDRs of the
	// configuration. The control plane of a shoot gets a way there.
	AllowedCIDRs []string
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
// those of cluster.Clusters: create, patch, delete and deletecollection on NetworkPolicies; list, create, patch and delete on
// ippools of crd.projectcalico.org; get on Namespaces. In another cluster the user of its kubeconfig needs the same but for
// deletecollection, and create, patch and delete on Namespaces.
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Clusters == nil {
		return errors.New("no clusters of machines given")
	}
	ranges, err := newRanges(opts)
	if err != nil {
		return err
	}
	return newReconciler(mgr, opts, ranges).AddToManager(mgr, infrastructure.ControllerName)
}

func newReconciler(mgr manager.Manager, opts Options, ranges ranges) *reconciler.Reconciler[*extensionsv1alpha1.Infrastructure] {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.Infrastructure]{
		Shared:    opts.Shared,
		Client:    mgr.GetClient(),
		Finalizer: infrastructure.FinalizerName,
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
