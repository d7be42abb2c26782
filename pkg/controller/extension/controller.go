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

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/extension"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

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
	reconciler.Shared

	// Resources writes the ManagedResources. It is to use the client of the manager.
	Resources *resources.Writer
	// PauseImage is the image of the Deployment of TypeShootAfterWorker: one that does nothing until it is told to end, as
	// any user. Default: DefaultPauseImage.
	PauseImage string
	// ForceDeleteTest lets a Shoot ask for leftovers (see AnnotationForceDeleteTest).
	ForceDeleteTest bool
}

// AddToManager adds a controller for each type of Extension that exists for one of the classes. It is an error if the
// set of classes is empty.
//
// Needed permissions, beyond those of reconciler.Reconciler and of resources.Writer: list and watch on ManagedResources; with
// class shoot, get on Namespaces, and create, patch and delete on NetworkPolicies (see AnnotationForceDeleteTest).
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Resources == nil {
		return errors.New("no writer of ManagedResources given")
	}
	if opts.PauseImage == "" {
		opts.PauseImage = DefaultPauseImage
	}
	for _, kind := range kinds(opts.PauseImage) {
		r := newReconciler(mgr, opts, kind)
		err := r.AddToManager(mgr, kind.extensionType, r.WatchManagedResources(kind.managedResources()))
		if err != nil {
			return fmt.Errorf("type %s: %w", kind.extensionType, err)
		}
	}
	return nil
}

func newReconciler(mgr manager.Manager, opts Options, kind kind) *reconciler.Reconciler[*extensionsv1alpha1.Extension] {
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.Extension]{
		Shared:    opts.Shared,
		Client:    mgr.GetClient(),
		Types:     []string{kind.extensionType},
		ExistsFor: kind.classes,
		Finalizer: extension.FinalizerPrefix + "/" + kind.extensionType,
		Actuator: &actuator{
			client:          mgr.GetClient(),
			reader:          mgr.GetAPIReader(),
			kind:            kind,
			resources:       opts.Resources,
			forceDeleteTest: opts.ForceDeleteTest,
		},
	})
}
