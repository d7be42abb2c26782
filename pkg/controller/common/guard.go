// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
)

// checkDescription begins what a failed check leaves on lastOperation and lastError.
const checkDescription = "Error checking the object"

// Check looks at an object of which the given operation is due. Its error is put on the object's lastError, and the
// operation does not take place. A RequeueAfterError determines when there is another try. An error of Waiting is put on
// lastOperation instead.
type Check[T extensionsv1alpha1.Object] func(ctx context.Context, obj T, operation gardencorev1beta1.LastOperationType) error

// WithCheck returns a reconciler which hands over to next, a reconciler of the extension library, once check has
// succeeded. There are two reasons for it:
//   - The library leaves nothing on the object, and tries again at once, if its own first steps fail, as they do if
//     spec.secretRef's Secret is missing.
//   - The library writes the status twice in every attempt, and while the annotations for migrate and restore are there,
//     every write makes an event: a mistake of the user would be retried without pause. A failed check writes once.
func WithCheck[T extensionsv1alpha1.Object](c client.Client, newObject func() T, check Check[T], next reconcile.Reconciler) reconcile.Reconciler {
	return &guard[T]{
		client:    c,
		status:    extensionscontroller.NewStatusUpdater(c),
		newObject: newObject,
		check:     check,
		next:      next,
	}
}

type statusUpdater interface {
	extensionscontroller.StatusUpdater
	extensionscontroller.StatusUpdaterCustom
}

type guard[T extensionsv1alpha1.Object] struct {
	client    client.Client
	status    statusUpdater
	newObject func() T
	check     Check[T]
	next      reconcile.Reconciler
}

// Reconcile implements reconcile.Reconciler.
func (g *guard[T]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	obj := g.newObject()
	if err := g.client.Get(ctx, request.NamespacedName, obj); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	operation := v1beta1helper.ComputeOperationType(
		metav1.ObjectMeta{Annotations: obj.GetAnnotations(), DeletionTimestamp: obj.GetDeletionTimestamp()},
		obj.GetExtensionStatus().GetLastOperation(),
	)
	if obj.GetAnnotations()[v1beta1constants.GardenerOperation] == v1beta1constants.GardenerOperationWaitForState ||
		extensionscontroller.ShouldSkipOperation(operation, obj) {
		return g.next.Reconcile(ctx, request)
	}

	if err := g.check(ctx, obj, operation); err != nil {
		if err := g.record(ctx, obj, operation, reconcilerutils.ReconcileErrCauseOrErr(err)); err != nil {
			return reconcile.Result{}, err
		}
		return reconcilerutils.ReconcileErr(err)
	}
	return g.next.Reconcile(ctx, request)
}

// record puts the cause on the object unless it is there already. Who asked for a reconcile by annotation gets a new
// timestamp in any case.
func (g *guard[T]) record(ctx context.Context, obj T, operation gardencorev1beta1.LastOperationType, cause error) error {
	asked := obj.GetAnnotations()[v1beta1constants.GardenerOperation] == v1beta1constants.GardenerOperationReconcile
	if asked {
		if err := extensionscontroller.RemoveAnnotation(ctx, g.client, obj, v1beta1constants.GardenerOperation); err != nil {
			return errors.Join(cause, fmt.Errorf("removing the operation annotation: %w", err))
		}
	}

	if !asked && isRecorded(obj, operation, cause) {
		return nil
	}
	if IsWaiting(cause) {
		noError := func(status extensionsv1alpha1.Status) error {
			status.SetLastError(nil)
			return nil
		}
		if err := g.status.ProcessingCustom(ctx, logf.FromContext(ctx), obj, operation, cause.Error(), noError); err != nil {
			return errors.Join(cause, fmt.Errorf("writing the status: %w", err))
		}
		return nil
	}
	if err := g.status.Error(ctx, logf.FromContext(ctx), obj, cause, operation, checkDescription); err != nil {
		return errors.Join(cause, fmt.Errorf("writing the status: %w", err))
	}
	return nil
}

func isRecorded(obj extensionsv1alpha1.Object, operation gardencorev1beta1.LastOperationType, cause error) bool {
	status := obj.GetExtensionStatus()
	lastOperation, lastError := status.GetLastOperation(), status.GetLastError()
	if IsWaiting(cause) {
		return lastOperation != nil && lastError == nil &&
			lastOperation.Type == operation &&
			lastOperation.State == gardencorev1beta1.LastOperationStateProcessing &&
			lastOperation.Description == cause.Error()
	}

	return lastOperation != nil && lastError != nil &&
		lastOperation.Type == operation &&
		lastOperation.State == gardencorev1beta1.LastOperationStateError &&
		status.GetObservedGeneration() == obj.GetGeneration() &&
		lastError.Description == v1beta1helper.FormatLastErrDescription(fmt.Errorf("%s: %w", checkDescription, cause)) &&
		slices.Equal(lastError.Codes, v1beta1helper.ExtractErrorCodes(cause))
}
