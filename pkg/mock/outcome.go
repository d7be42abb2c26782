// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

// succeed says that the operation has succeeded. In each case the status comes first, and then what says that nothing is left
// to do: whoever stops in between finds it the next time, and Gardener takes an object for ready only after both.
func (r *reconciler) succeed(ctx context.Context, o *operation) error {
	o.log.V(1).Info("Operation succeeded")
	if o.lastType == gardencorev1beta1.LastOperationTypeDelete {
		// Nobody could read the status of what is gone.
		err := writeMetadata(ctx, r.client, o.obj, change{removeFinalizer: true})
		if err == nil {
			r.behaviours.forget(o.object)
		}
		return err
	}

	status := o.obj.GetExtensionStatus()
	status.SetLastError(nil)
	status.SetObservedGeneration(o.obj.GetGeneration())
	if err := r.report(ctx, o, gardencorev1beta1.LastOperationStateSucceeded, 100, string(o.name)+" succeeded, without any infrastructure"); err != nil {
		return err
	}
	r.behaviours.ended(o.object, o.name, false)
	return writeMetadata(ctx, r.client, o.obj, change{removeOperation: true, removeFinalizer: o.lastType == gardencorev1beta1.LastOperationTypeMigrate})
}

// fail says that an attempt has failed, and why.
func (r *reconciler) fail(ctx context.Context, o *operation, cause error, retryAfter time.Duration) error {
	description := v1beta1helper.FormatLastErrDescription(cause)
	o.log.Info("Operation failed", "reason", description, "retryAfter", retryAfter.String())

	now := r.clock.Now()
	status := o.obj.GetExtensionStatus()
	status.SetObservedGeneration(o.obj.GetGeneration())
	status.SetLastError(&gardencorev1beta1.LastError{
		Description: description, Codes: v1beta1helper.ExtractErrorCodes(cause), LastUpdateTime: &metav1.Time{Time: now},
	})
	if err := r.report(ctx, o, gardencorev1beta1.LastOperationStateError, 50, description); err != nil {
		return err
	}
	r.behaviours.ended(o.object, o.name, true)
	r.behaviours.waits(o.object, o.name, now.Add(retryAfter))
	return r.takeUp(ctx, o)
}

// processing says that the operation is under way and goes on after a while.
func (r *reconciler) processing(ctx context.Context, o *operation, description string, wait time.Duration) error {
	r.behaviours.waits(o.object, o.name, r.clock.Now().Add(wait))
	if last := o.obj.GetExtensionStatus().GetLastOperation(); last == nil || last.Type != o.lastType ||
		last.State != gardencorev1beta1.LastOperationStateProcessing || last.Description != description {
		// Said once, it need not be said again.
		if err := r.report(ctx, o, gardencorev1beta1.LastOperationStateProcessing, 1, description); err != nil {
			return err
		}
	}
	return r.takeUp(ctx, o)
}

// report writes lastOperation, and all else that has been changed in the status.
func (r *reconciler) report(ctx context.Context, o *operation, state gardencorev1beta1.LastOperationState, progress int32, description string) error {
	o.obj.GetExtensionStatus().SetLastOperation(&gardencorev1beta1.LastOperation{
		Type: o.lastType, State: state, Progress: progress, Description: description,
		LastUpdateTime: metav1.Time{Time: notBefore(r.clock.Now(), requested(o.obj))},
	})
	return writeStatus(ctx, r.client, o.obj, o.before)
}

// takeUp takes the annotation away by which a reconcile was asked for: by now the status says that there is one.
func (r *reconciler) takeUp(ctx context.Context, o *operation) error {
	if o.isOfMigration() {
		return nil
	}
	return writeMetadata(ctx, r.client, o.obj, change{removeOperation: true})
}
