// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

// OnlyOwn returns a reconciler which hands over to next only objects of the given type and of one of the classes. The
// predicates of the watches keep others out of the queue, but what is in the queue is only a name. By the time of a retry
// there can be another object under it, or the class of the object can have been taken away, which the API server allows
// although it calls the class immutable: either way it is another instance's by then.
func OnlyOwn[T extensionsv1alpha1.Object](reader client.Reader, newObject func() T, extensionType string, classes class.Set, next reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		obj := newObject()
		if err := reader.Get(ctx, request.NamespacedName, obj); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if obj.GetExtensionSpec().GetExtensionType() != extensionType || !classes.Has(obj) {
			return reconcile.Result{}, nil
		}
		return next.Reconcile(ctx, request)
	})
}
