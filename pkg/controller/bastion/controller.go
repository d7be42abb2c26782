// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/bastion"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Clusters finds the cluster in which the machines of a shoot are.
	Clusters cluster.Clusters
	// WithoutNodePorts has the Services of bastions in the seed made without node ports, to which the ranges of a Service
	// do not apply. It is to be set where the load balancers of the seed are those of our Service controller, which need
	// none.
	WithoutNodePorts bool
}

// AddToManager adds the controller for Bastions, unless no class is served for which there are any. The manager has to
// cache Pods as CacheOptions says, and Services of type LoadBalancer, of which it needs no more than coredns.CacheOptions
// leaves.
//
// Needed permissions: get, list, watch, patch on Bastions and patch on their status; get, list, watch on Clusters; create,
// patch, delete on NetworkPolicies and Secrets; the same and get, list, watch on Services; get, list, watch, create, delete on
// Pods. In another cluster than the seed it acts by the kubeconfig of the shoot's credentials, which needs create, patch and
// delete on these four, and get on Services and Pods.
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Clusters == nil {
		return errors.New("nothing given that finds the clusters of machines")
	}
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetCache(), opts)
	return r.AddToManager(mgr, bastion.ControllerName, func(b *builder.Builder) {
		wake := handler.EnqueueRequestsFromMapFunc(bastionOf)
		b.Watches(&corev1.Pod{}, wake, builder.WithPredicates(changes())).Watches(&corev1.Service{}, wake, builder.WithPredicates(changes()))
	})
}

func newReconciler(c client.Client, reader, cache client.Reader, opts Options) *reconciler.Reconciler[*extensionsv1alpha1.Bastion] {
	actuator := &actuator{client: c, reader: reader, cache: cache, clusters: opts.Clusters, withoutNodePorts: opts.WithoutNodePorts}
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.Bastion]{
		Shared:    opts.Shared,
		Client:    c,
		Finalizer: bastion.FinalizerName,
		Actuator:  actuator,
		Check:     actuator.check,
		IsAmiss:   actuator.isAmiss,
	})
}
