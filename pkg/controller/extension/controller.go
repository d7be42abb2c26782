// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package extension holds the controllers for Extensions of this provider's types, one controller for each type. What a
// type deploys is data, in kind.go: a ManagedResource in the namespace of the Extension. It is added by both programs,
// each with its classes.
package extension

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/extensions/pkg/controller/extension"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	predicateutils "github.com/gardener/gardener/pkg/controllerutils/predicate"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// TypeShoot is the type of Extensions that deploy a ServiceAccount into the cluster of a shoot or into the virtual
// garden.
const TypeShoot = "local-ext-shoot"

// Options are what the controllers need.
type Options struct {
	// Controller are the options of each controller, such as its concurrency.
	Controller controller.Options
	// Classes are the classes of Extensions to serve. Types that exist for none of them get no controller.
	Classes class.Set
	// IgnoreOperationAnnotation has every change of a spec reconciled.
	IgnoreOperationAnnotation bool
	// Resources writes the ManagedResources. It is to use the client of the manager.
	Resources *resources.Writer
}

// AddToManager adds a controller for each type of Extension that exists for one of the classes. It is an error if the
// set of classes is empty.
//
// Needed permissions, beyond those of the extension library for Extensions and those of resources.Writer: list and watch
// on ManagedResources.
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Classes.String() == "" {
		return errors.New("adding the Extension controllers: no extension class given, name at least one")
	}
	if opts.Resources == nil {
		return errors.New("adding the Extension controllers: no writer of ManagedResources given")
	}

	for _, kind := range kinds() {
		classes, ok := opts.Classes.Only(kind.classes...)
		if !ok {
			continue
		}
		if err := add(mgr, opts, kind, classes); err != nil {
			return fmt.Errorf("adding the controller for Extensions of type %s: %w", kind.extensionType, err)
		}
	}
	return nil
}

func add(mgr manager.Manager, opts Options, kind kind, classes class.Set) error {
	// The library looks at the shoot with this context, in the manager's cache. Nothing is under way when it would end.
	defaults := extension.DefaultPredicates(context.Background(), mgr, opts.IgnoreOperationAnnotation)
	predicates := predicateutils.AddTypeAndClassPredicates(defaults, classes.List(), kind.extensionType)

	if opts.Controller.ReconciliationTimeout == 0 {
		opts.Controller.ReconciliationTimeout = controllerutils.DefaultReconciliationTimeout
	}

	wake := &waker{client: mgr.GetClient(), kind: kind, classes: classes, healing: opts.IgnoreOperationAnnotation}
	b := builder.ControllerManagedBy(mgr).
		Named(kind.extensionType).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.Extension{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicates...)).
		Watches(&resourcesv1alpha1.ManagedResource{}, handler.EnqueueRequestsFromMapFunc(wake.requests), builder.WithPredicates(wake.predicate()))

	// In the garden runtime cluster there need not even be the CustomResourceDefinition of Clusters.
	if _, ok := classes.Only(extensionsv1alpha1.ExtensionClassShoot); ok && opts.IgnoreOperationAnnotation {
		b = b.Watches(&extensionsv1alpha1.Cluster{}, handler.EnqueueRequestsFromMapFunc(extension.ClusterToExtensionMapper(mgr.GetClient(), predicates...)))
	}
	return b.Complete(newReconciler(mgr, opts.Resources, kind))
}

// newReconciler has no resync: what is in the target cluster is GRM's, and a lost ManagedResource is written again when
// Gardener next asks for a reconcile.
func newReconciler(mgr manager.Manager, writer *resources.Writer, kind kind) reconcile.Reconciler {
	actuator := &actuator{kind: kind, resources: writer}
	library := extension.NewReconciler(mgr, extension.AddArgs{Actuator: actuator, FinalizerSuffix: kind.extensionType})
	newExtension := func() *extensionsv1alpha1.Extension { return &extensionsv1alpha1.Extension{} }
	return common.WithCheck(mgr.GetClient(), newExtension, actuator.check, library)
}

// waker wakes Extensions when their ManagedResource is gone.
type waker struct {
	client  client.Client
	kind    kind
	classes class.Set
	// healing also wakes those which did not wait for it. By default only Gardener determines when an Extension is
	// reconciled.
	healing bool
}

func (w *waker) predicate() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(e event.DeleteEvent) bool { return e.Object.GetName() == w.kind.extensionType },
	}
}

func (w *waker) requests(ctx context.Context, mr client.Object) []reconcile.Request {
	list := &extensionsv1alpha1.ExtensionList{}
	if err := w.client.List(ctx, list, client.InNamespace(mr.GetNamespace())); err != nil {
		// From a cache this does not fail but at the end of the program.
		return nil
	}

	var out []reconcile.Request
	for i := range list.Items {
		ex := &list.Items[i]
		if ex.Spec.Type == w.kind.extensionType && w.classes.Has(ex) && (w.healing || isUnderWay(ex)) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(ex)})
		}
	}
	return out
}

// isUnderWay tells whether an operation is asked for or has begun, but has not succeeded yet. The status alone would not
// do: the cache from which ex comes may not have seen the last write of it.
func isUnderWay(ex *extensionsv1alpha1.Extension) bool {
	last := ex.Status.LastOperation
	return ex.DeletionTimestamp != nil ||
		last == nil ||
		last.State != gardencorev1beta1.LastOperationStateSucceeded ||
		v1beta1helper.ComputeOperationType(ex.ObjectMeta, last) == gardencorev1beta1.LastOperationTypeMigrate
}
