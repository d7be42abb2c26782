// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

// Shared has the options that all controllers for extension objects have in common.
type Shared struct {
	// Controller are the options of the controller, such as its concurrency.
	Controller controller.Options
	// Classes are the classes that the instance serves.
	Classes class.Set
	// ShootClusters decodes the Clusters of objects of class shoot. The controllers of an instance share one. Default: one of
	// its own.
	ShootClusters *Clusters
	// IgnoreOperationAnnotation reconciles every change of a spec and every event of another watch, without a request by
	// annotation.
	IgnoreOperationAnnotation bool
}

// Watch adds a watch to a controller.
type Watch func(*builder.Builder)

// AddToManager adds a controller of that name to the manager, unless the kind exists for none of the served classes. It is an
// error to serve no class at all. The watches queue objects for other reasons than their own events.
func (r *Reconciler[T]) AddToManager(mgr manager.Manager, name string, watches ...Watch) error {
	switch {
	case !r.hasClasses:
		return errors.New("no extension class given, name at least one")
	case r.Classes.String() == "":
		return nil
	}
	if r.Controller.ReconciliationTimeout == 0 {
		r.Controller.ReconciliationTimeout = controllerutils.DefaultReconciliationTimeout
	}
	b := builder.ControllerManagedBy(mgr).
		Named(name).
		WithOptions(r.Controller).
		Watches(r.NewObject(), &handler.EnqueueRequestForObject{}, builder.WithPredicates(r.Predicates()...))
	if r.ShootClusters != nil {
		b.Watches(&extensionsv1alpha1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.OfCluster), builder.WithPredicates(r.clusterPredicate()))
	}
	for _, watch := range watches {
		watch(b)
	}
	run := reconcile.Reconciler(r)
	if r.Wrap != nil {
		run = r.Wrap(r)
	}
	return b.Complete(run)
}

// newList returns an empty list of the objects.
func (r *Reconciler[T]) newList() (client.ObjectList, error) {
	gvk, err := apiutil.GVKForObject(r.NewObject(), r.Client.Scheme())
	if err != nil {
		return nil, err
	}
	list, err := r.Client.Scheme().New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("listing %ss: %w", r.Kind, err)
	}
	return list.(client.ObjectList), nil
}
