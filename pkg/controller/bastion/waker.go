// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// changes lets pass what changes what is said of a Pod or Service, and that one is gone.
func changes() predicate.Predicate {
	return predicate.Funcs{
		// An instance that starts gets such an event for each object there is.
		CreateFunc:  func(e event.CreateEvent) bool { return problem(e.Object) == "" },
		UpdateFunc:  func(e event.UpdateEvent) bool { return said(e.ObjectOld) != said(e.ObjectNew) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// bastionOf returns which Bastion a Pod or Service in the seed belongs to. It goes by names, as the cache keeps no labels of
// Services. A Bastion that does not exist, or needs nothing, costs nothing.
func bastionOf(_ context.Context, obj client.Object) []reconcile.Request {
	name, ok := strings.CutPrefix(obj.GetName(), namePrefix)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: name}}}
}

// said is what a Bastion is told about an object.
func said(obj client.Object) string {
	if service, ok := obj.(*corev1.Service); ok && problem(obj) == "" {
		address := addressOf(service)
		return address.IP + address.Hostname
	}
	return problem(obj)
}
