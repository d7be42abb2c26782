// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/operatingsystemconfig"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// AddToManager adds the controller. It does nothing if the classes do not include shoot; it is an error if there are none.
//
// The type of an OperatingSystemConfig is the name of the pool's machine image in the CloudProfile, which hence has to be
// "local".
//
// Needed permissions: get, list, watch and patch on OperatingSystemConfigs, and patch on their status; get,
// list and watch on Clusters; get, create and patch on Secrets.
func AddToManager(mgr manager.Manager, shared reconciler.Shared) error {
	return newReconciler(mgr.GetClient(), shared).AddToManager(mgr, operatingsystemconfig.ControllerName)
}

func newReconciler(c client.Client, shared reconciler.Shared) *reconciler.Reconciler[*extensionsv1alpha1.OperatingSystemConfig] {
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.OperatingSystemConfig]{
		Shared:    shared,
		Client:    c,
		Finalizer: operatingsystemconfig.FinalizerName,
		Actuator:  &actuator{client: c},
	})
}
