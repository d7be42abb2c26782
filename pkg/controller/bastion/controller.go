// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/bastion"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controller needs.
type Options struct {
	// Controller are the options of the controller, such as its concurrency.
	Controller controller.Options
	// Classes are the classes to serve. There are Bastions of class shoot only.
	Classes class.Set
	// IgnoreOperationAnnotation has every change of a spec reconciled.
	IgnoreOperationAnnotation bool
	// Clusters finds the cluster in which the machines of a shoot are.
	Clusters cluster.Clusters
	// ShootClusters are those of the instance, which all its controllers share. Default: ones of its own.
	ShootClusters *reconciler.Clusters
	// WithoutNodePorts has the Services of bastions in the seed made without node ports, to which the ranges of a Service
	// do not apply. It is to be set where the load balancers of the seed are those of our Service controller, which need
	// none.
	WithoutNodePorts bool
}

// AddToManager adds the controller for Bastions, unless no class is served for which there are any. The manager has to
// cache Pods as CacheOptions says, and Services of type LoadBalancer, of which it needs no more than coredns.CacheOptions
// leaves.
//
// Needed permissions: get, list, watch, patch on Bastions and patch on their status; get, list, watch on Clusters; get,
// create, patch, delete on NetworkPolicies and Secrets; the same and list and watch on Services; get, list, watch, create,
// delete on Pods. In another cluster than the seed it acts by the kubeconfig of the shoot's credentials, which needs get,
// create, patch and delete on these four.
func AddToManager(mgr manager.Manager, opts Options) error {
	switch {
	case opts.Classes.String() == "":
		return errors.New("adding the Bastion controller: no extension class given, name at least one")
	case opts.Clusters == nil:
		return errors.New("adding the Bastion controller: nothing given that finds the clusters of machines")
	}
	classes, ok := opts.Classes.Only(extensionsv1alpha1.ExtensionClassShoot)
	if !ok {
		return nil
	}
	if opts.Controller.ReconciliationTimeout == 0 {
		opts.Controller.ReconciliationTimeout = controllerutils.DefaultReconciliationTimeout
	}

	if opts.ShootClusters == nil {
		opts.ShootClusters = reconciler.NewClusters(mgr.GetClient())
	}

	opts.Classes = classes
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetCache(), opts)
	wake := handler.EnqueueRequestsFromMapFunc(bastionOf)
	b := builder.ControllerManagedBy(mgr).
		Named(bastion.ControllerName).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.Bastion{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(r.Predicates()...)).
		Watches(&corev1.Pod{}, wake, builder.WithPredicates(changes())).
		Watches(&corev1.Service{}, wake, builder.WithPredicates(changes()))
	if err := r.WatchClusters(b, &extensionsv1alpha1.BastionList{}).Complete(r); err != nil {
		return fmt.Errorf("adding the Bastion controller: %w", err)
	}
	return nil
}

func newReconciler(c client.Client, reader, cache client.Reader, opts Options) *reconciler.Reconciler[*extensionsv1alpha1.Bastion] {
	actuator := &actuator{client: c, reader: reader, cache: cache, clusters: opts.Clusters, withoutNodePorts: opts.WithoutNodePorts}
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.Bastion]{
		Client:                    c,
		Kind:                      extensionsv1alpha1.BastionResource,
		NewObject:                 func() *extensionsv1alpha1.Bastion { return &extensionsv1alpha1.Bastion{} },
		Types:                     []string{localv1alpha1.Type},
		Classes:                   opts.Classes,
		Finalizer:                 bastion.FinalizerName,
		IgnoreOperationAnnotation: opts.IgnoreOperationAnnotation,
		Clusters:                  opts.ShootClusters,
		Actuator:                  actuator,
		Check:                     actuator.check,
		IsAmiss:                   actuator.isAmiss,
	})
}

// uncached is a client of the seed that reads from the API server: the cache has but a part of a Service.
type uncached struct {
	client.Client
	reader client.Reader
}

// Get implements client.Reader.
func (u *uncached) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return u.reader.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (u *uncached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return u.reader.List(ctx, list, opts...)
}
