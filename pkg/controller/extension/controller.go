// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package extension holds the controllers for Extensions of this provider's types, one controller for each type. What a
// type deploys, where, and whether it is waited for is data, in kind.go: a ManagedResource in the namespace of the
// Extension. The package is added by both programs, each with its classes. What is deployed does nothing: the types are
// there so that the lifecycles of extensions can be seen at work.
package extension

import (
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/extension"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const (
	// TypeSeed is the type of Extensions that deploy a ServiceAccount into their own namespace, in the seed: that of a
	// shoot, or garden for one of class seed.
	TypeSeed = "local-ext-seed"
	// TypeShoot is the type of Extensions that deploy a ServiceAccount into the namespace kube-system of a shoot or of the
	// virtual garden.
	TypeShoot = "local-ext-shoot"
	// TypeShootAfterWorker is the type of Extensions that deploy a Deployment into the namespace kube-system of a shoot and
	// wait until it is ready.
	TypeShootAfterWorker = "local-ext-shoot-after-worker"

	// DefaultPauseImage is the image of the Deployment by default. Nodes have it anyway, for the sandboxes of pods.
	DefaultPauseImage = "registry.k8s.io/pause:3.10"
)

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
	// PauseImage is the image of the Deployment of TypeShootAfterWorker: one that does nothing until it is told to end, as
	// any user. Default: DefaultPauseImage.
	PauseImage string
	// ForceDeleteTest lets a Shoot ask for leftovers (see AnnotationForceDeleteTest).
	ForceDeleteTest bool
	// Clusters are those of the instance, which all its controllers share. Default: ones of its own.
	Clusters *reconciler.Clusters
}

// AddToManager adds a controller for each type of Extension that exists for one of the classes. It is an error if the
// set of classes is empty.
//
// Needed permissions, beyond those of reconciler.Reconciler and of resources.Writer: list and watch on ManagedResources; with
// class shoot, get on Namespaces, and create, patch and delete on NetworkPolicies (see AnnotationForceDeleteTest).
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Classes.String() == "" {
		return errors.New("adding the Extension controllers: no extension class given, name at least one")
	}
	if opts.Resources == nil {
		return errors.New("adding the Extension controllers: no writer of ManagedResources given")
	}
	if opts.PauseImage == "" {
		opts.PauseImage = DefaultPauseImage
	}

	if _, ok := opts.Classes.Only(extensionsv1alpha1.ExtensionClassShoot); !ok {
		// In the garden runtime cluster there need not even be the CustomResourceDefinition of Clusters.
		opts.Clusters = nil
	} else if opts.Clusters == nil {
		opts.Clusters = reconciler.NewClusters(mgr.GetClient())
	}

	for _, kind := range kinds(opts.PauseImage) {
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
	if opts.Controller.ReconciliationTimeout == 0 {
		opts.Controller.ReconciliationTimeout = controllerutils.DefaultReconciliationTimeout
	}

	r := newReconciler(mgr, opts, kind, classes)
	wake := newWaker(mgr.GetClient(), kind, classes, opts.IgnoreOperationAnnotation)
	b := builder.ControllerManagedBy(mgr).
		Named(kind.extensionType).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.Extension{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(r.Predicates()...)).
		Watches(&resourcesv1alpha1.ManagedResource{}, handler.EnqueueRequestsFromMapFunc(wake.Requests), builder.WithPredicates(wake.Predicate()))

	return r.WatchClusters(b, &extensionsv1alpha1.ExtensionList{}).Complete(r)
}

// newReconciler has no resync: what is in the target cluster is GRM's, and a lost ManagedResource is written again when
// Gardener next asks for a reconcile.
func newReconciler(mgr manager.Manager, opts Options, kind kind, classes class.Set) *reconciler.Reconciler[*extensionsv1alpha1.Extension] {
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.Extension]{
		Client:                    mgr.GetClient(),
		Kind:                      extensionsv1alpha1.ExtensionResource,
		NewObject:                 func() *extensionsv1alpha1.Extension { return &extensionsv1alpha1.Extension{} },
		Types:                     []string{kind.extensionType},
		Classes:                   classes,
		Finalizer:                 extension.FinalizerPrefix + "/" + kind.extensionType,
		IgnoreOperationAnnotation: opts.IgnoreOperationAnnotation,
		Clusters:                  opts.Clusters,
		Actuator: &actuator{
			client:    mgr.GetClient(),
			reader:    mgr.GetAPIReader(),
			kind:      kind,
			resources: opts.Resources,
			leftovers: leftovers{client: mgr.GetClient(), name: kind.extensionType, allowed: opts.ForceDeleteTest},
		},
	})
}
