// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// retryWait is when a ControlPlane that waits for a ManagedResource is looked at again, should the watch not wake it
	// before.
	retryWait = 30 * time.Second
	// failAfter is how long a wait may take until it is called an error, which Gardener shows to users.
	failAfter = 30 * time.Second
	// hibernatedWait is when a ControlPlane is looked at again whose kube-apiserver is to go, for which there is no watch.
	hibernatedWait = 2 * time.Second
)

// wait returns what has an operation go on when the watch on ManagedResources wakes the ControlPlane.
func (a *actuator) wait(op *operation, cause error) error {
	taken := a.Clock.Since(startOf(op.Object))
	if taken >= failAfter {
		return &reconcilerutils.RequeueAfterError{Cause: cause, RequeueAfter: retryWait}
	}
	return reconciler.Waiting(cause, min(retryWait, failAfter-taken))
}

// startOf is when an operation was asked for.
func startOf(cp *extensionsv1alpha1.ControlPlane) time.Time {
	if cp.DeletionTimestamp != nil {
		return cp.DeletionTimestamp.Time
	}
	return reconciler.NotBefore(reconciler.Requested(cp), cp.CreationTimestamp.Time)
}

// lookAgain has ControlPlanes looked at again that are done, but whose shoot is being hibernated. As with the generic
// actuator, the operation has succeeded meanwhile: Gardener scales kube-apiserver down after it.
func (a *actuator) lookAgain(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, request)
		if _, ok := a.hibernating.Load(request.NamespacedName); ok && err == nil && result.IsZero() {
			result.RequeueAfter = hibernatedWait
		}
		return result, err
	})
}
