// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	extensionspredicate "github.com/gardener/gardener/extensions/pkg/predicate"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

// ShootPredicates are Gardener's predicates for an extension object of a shoot, which leave alone what belongs to a shoot
// that has failed. There is one difference: where Gardener's own cannot read the Cluster they drop the event, so that an
// object which the cache saw a moment before its Cluster is not reconciled until something changes it. Here it is, and
// the reconciler, which needs the Cluster as well, tries again.
func ShootPredicates(mgr manager.Manager, ignoreOperationAnnotation bool) []predicate.Predicate {
	reader := mgr.GetClient()
	notFailed := func(obj client.Object) bool {
		// Nothing is under way any more when this would end: the manager's cache goes with the program.
		cluster, err := extensioncluster.Get(context.Background(), reader, obj.GetNamespace())
		return err != nil || !extensionscontroller.IsFailed(&extensionscontroller.Cluster{Shoot: cluster.Shoot()})
	}
	return extensionspredicate.DefaultControllerPredicates(ignoreOperationAnnotation, predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return notFailed(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return notFailed(e.ObjectNew) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	})
}
