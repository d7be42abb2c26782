// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/operatingsystemconfig"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controller needs.
type Options struct {
	// Controller are the options of the controller, such as its concurrency.
	Controller controller.Options
	// Classes are the classes to serve. There are OperatingSystemConfigs of class shoot only.
	Classes class.Set
	// IgnoreOperationAnnotation has every change of a spec reconciled.
	IgnoreOperationAnnotation bool
	// Clusters are those of the instance, which all its controllers share. Default: ones of its own.
	Clusters *reconciler.Clusters
}

// AddToManager adds the controller. It does nothing if the classes do not include shoot; it is an error if there are none.
//
// The type of an OperatingSystemConfig is the name of the pool's machine image in the CloudProfile, which hence has to be
// "local".
//
// Needed permissions: get, list, watch and patch on OperatingSystemConfigs, and patch on their status; get,
// list and watch on Clusters; get, create and patch on Secrets.
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Classes.String() == "" {
		return errors.New("adding the OperatingSystemConfig controller: no extension class given, name at least one")
	}
	classes, ok := opts.Classes.Only(extensionsv1alpha1.ExtensionClassShoot)
	if !ok {
		return nil
	}
	if opts.Controller.ReconciliationTimeout == 0 {
		opts.Controller.ReconciliationTimeout = controllerutils.DefaultReconciliationTimeout
	}

	if opts.Clusters == nil {
		opts.Clusters = reconciler.NewClusters(mgr.GetClient())
	}

	r := newReconciler(mgr.GetClient(), opts, classes)
	b := builder.ControllerManagedBy(mgr).
		Named(operatingsystemconfig.ControllerName).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.OperatingSystemConfig{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(r.Predicates()...))
	if err := r.WatchClusters(b, &extensionsv1alpha1.OperatingSystemConfigList{}).Complete(r); err != nil {
		return fmt.Errorf("adding the OperatingSystemConfig controller: %w", err)
	}
	return nil
}

func newReconciler(c client.Client, opts Options, classes class.Set) *reconciler.Reconciler[*extensionsv1alpha1.OperatingSystemConfig] {
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.OperatingSystemConfig]{
		Client:                    c,
		Kind:                      extensionsv1alpha1.OperatingSystemConfigResource,
		NewObject:                 func() *extensionsv1alpha1.OperatingSystemConfig { return &extensionsv1alpha1.OperatingSystemConfig{} },
		Types:                     []string{localv1alpha1.Type},
		Classes:                   classes,
		Finalizer:                 operatingsystemconfig.FinalizerName,
		IgnoreOperationAnnotation: opts.IgnoreOperationAnnotation,
		Clusters:                  opts.Clusters,
		Actuator:                  &actuator{client: c},
	})
}
