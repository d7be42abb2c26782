// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/extensions/pkg/controller/operatingsystemconfig"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

// Options are what the controller needs.
type Options struct {
	// Controller are the options of the controller, such as its concurrency.
	Controller controller.Options
	// Classes are the classes to serve. There are OperatingSystemConfigs of class shoot only.
	Classes class.Set
	// IgnoreOperationAnnotation has every change of a spec reconciled.
	IgnoreOperationAnnotation bool
}

// AddToManager adds the controller. It does nothing if the classes do not include shoot; it is an error if there are none.
//
// The type of an OperatingSystemConfig is the name of the pool's machine image in the CloudProfile, which hence has to be
// "local".
//
// Needed permissions: get, list, watch, patch and update on OperatingSystemConfigs; patch and update on their status; get,
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

	defaults := common.ShootPredicates(mgr, opts.IgnoreOperationAnnotation)
	predicates := classes.Predicates(defaults, localv1alpha1.Type)
	own := common.OnlyOwn[*extensionsv1alpha1.OperatingSystemConfig](mgr, localv1alpha1.Type, classes)
	if err := builder.ControllerManagedBy(mgr).
		Named(operatingsystemconfig.ControllerName).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.OperatingSystemConfig{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicates...)).
		Complete(newReconciler(own)); err != nil {
		return fmt.Errorf("adding the OperatingSystemConfig controller: %w", err)
	}
	return nil
}

func newReconciler(mgr manager.Manager) reconcile.Reconciler {
	actuator := &actuator{reader: mgr.GetAPIReader()}
	newConfig := func() *extensionsv1alpha1.OperatingSystemConfig { return &extensionsv1alpha1.OperatingSystemConfig{} }
	return common.WithCheck(mgr.GetClient(), newConfig, actuator.check, operatingsystemconfig.NewReconciler(mgr, actuator))
}
