// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
)

// descriptionMax is the size in bytes of the longest text in a status. gardenlet copies it to the Shoot, and etcd takes no object
// that is too large: whatever an error consists of, the status can be written.
const descriptionMax = 2 << 10

// outcome is what the queue is told.
type outcome struct {
	retryAfter time.Duration
	// err is an error of the Actuator: it is logged, and tried again with a back-off.
	err error
}

// conclude says on the object what has become of an attempt. The error is one of these writes.
func (r *Reconciler[T]) conclude(ctx context.Context, op *Operation[T], err error) (outcome, error) {
	var retry *reconcilerutils.RequeueAfterError
	switch {
	case err == nil:
		return outcome{}, r.succeed(ctx, op)
	case !errors.As(err, &retry):
		return outcome{err: err}, r.fail(ctx, op, err, err)
	case errors.Is(retry.Cause, errLater):
		return outcome{retryAfter: retry.RequeueAfter}, r.dropOperation(ctx, op)
	case IsWaiting(retry):
		return r.wait(ctx, op, retry)
	}
	cause := cmp.Or[error](retry.Cause, err)
	op.Log.Info("Operation failed", "reason", cause.Error(), "retryAfter", retry.RequeueAfter.String())
	return outcome{retryAfter: retry.RequeueAfter}, r.fail(ctx, op, cause, err)
}

// succeed says that the operation has succeeded. Of a migration and a restoration the status comes first, and then what says that
// nothing is left to do: whoever stops in between finds it the next time, and Gardener takes an object for ready only after both.
func (r *Reconciler[T]) succeed(ctx context.Context, op *Operation[T]) error {
	op.Log.V(1).Info("Operation succeeded")
	r.written.Remove(op.Object.GetUID())
	if op.Type == gardencorev1beta1.LastOperationTypeDelete {
		// Nobody could read the status of what is gone.
		if err := r.writeMetadata(ctx, op, change{removeFinalizer: true}); err != nil {
			return err
		}
		r.Reported(op, nil)
		return nil
	}

	status := op.Object.GetExtensionStatus()
	status.SetLastError(nil)
	status.SetObservedGeneration(op.read.generation)
	if err := r.report(ctx, op, gardencorev1beta1.LastOperationStateSucceeded, 100, r.Describe(op, nil)); err != nil {
		return err
	}
	r.Reported(op, nil)
	if err := r.checkState(op); err != nil || !op.isOfMigration() {
		return err
	}
	return r.writeMetadata(ctx, op, change{removeOperation: true, removeFinalizer: op.Type == gardencorev1beta1.LastOperationTypeMigrate})
}

// fail says that an attempt has failed, and why, unless the object says so already.
func (r *Reconciler[T]) fail(ctx context.Context, op *Operation[T], cause, err error) error {
	var (
		description = Shorten(v1beta1helper.FormatLastErrDescription(errors.New(r.Describe(op, cause))))
		codes       = v1beta1helper.ExtractErrorCodes(cause)
		status      = op.Object.GetExtensionStatus()
		last        = status.GetLastOperation()
		lastError   = status.GetLastError()
	)
	isSaid := !op.Asked && last != nil && last.Type == op.Type && last.State == gardencorev1beta1.LastOperationStateError &&
		lastError != nil && lastError.Description == description && slices.Equal(lastError.Codes, codes) &&
		status.GetObservedGeneration() == op.read.generation && op.isUnchanged()
	if !isSaid {
		status.SetObservedGeneration(op.read.generation)
		status.SetLastError(&gardencorev1beta1.LastError{Description: description, Codes: codes, LastUpdateTime: &metav1.Time{Time: r.Clock.Now()}})
		if err := r.report(ctx, op, gardencorev1beta1.LastOperationStateError, 50, description); err != nil {
			return err
		}
	}
	r.Reported(op, err)
	return r.dropOperation(ctx, op)
}

// wait says that the operation is under way, unless the object says so already or it is too early.
func (r *Reconciler[T]) wait(ctx context.Context, op *Operation[T], err *reconcilerutils.RequeueAfterError) (outcome, error) {
	var (
		description = Shorten(err.Cause.Error())
		status      = op.Object.GetExtensionStatus()
		last        = status.GetLastOperation()
	)
	isSaid := last != nil && last.Type == op.Type && last.State == gardencorev1beta1.LastOperationStateProcessing &&
		last.Description == description && status.GetLastError() == nil && op.isUnchanged()
	if quiet := r.quiet(op); !isSaid && quiet > 0 {
		return outcome{retryAfter: min(err.RequeueAfter, quiet)}, r.dropOperation(ctx, op)
	}
	if !isSaid {
		// Nothing is wrong any more; Gardener would take an older error for a failure.
		status.SetLastError(nil)
		if err := r.report(ctx, op, gardencorev1beta1.LastOperationStateProcessing, 1, description); err != nil {
			return outcome{}, err
		}
	}
	r.Reported(op, err)
	retryAfter := err.RequeueAfter
	if r.AsksUsers {
		retryAfter = max(retryAfter, min(r.Clock.Since(op.written.begun)/4, RetryMistake))
	}
	return outcome{retryAfter: retryAfter}, r.dropOperation(ctx, op)
}

// begin is when the operation was asked for; zero if Gardener did not say.
func (o *Operation[T]) begin() time.Time {
	if o.Type == gardencorev1beta1.LastOperationTypeDelete {
		return o.Object.GetDeletionTimestamp().Time
	}
	return Requested(o.Object)
}

// quiet is for how much longer an operation may wait without a word. Of a reconcile the status would say meanwhile that the
// last one has succeeded, and an error would look like one of now.
func (r *Reconciler[T]) quiet(op *Operation[T]) time.Duration {
	begin := op.begin()
	switch {
	case op.Type == gardencorev1beta1.LastOperationTypeReconcile, op.Object.GetExtensionStatus().GetLastError() != nil, !op.isUnchanged():
		return 0
	case begin.IsZero():
		// Only the status can tell the next instance that there is something to do.
		return 0
	}
	return r.Quiet - max(r.Clock.Since(begin), 0)
}

// report writes lastOperation, and all else that has been changed in the status.
func (r *Reconciler[T]) report(ctx context.Context, op *Operation[T], state gardencorev1beta1.LastOperationState, progress int32, description string) error {
	op.Object.GetExtensionStatus().SetLastOperation(r.lastOperation(op, state, progress, description))
	if err := r.writeStatus(ctx, op, true); err != nil {
		return err
	}
	if op.Type == gardencorev1beta1.LastOperationTypeDelete || op.Object.GetGeneration() == op.read.generation || isAskedFor(op.Object) {
		return nil
	}
	// The object has changed, and nobody asks for a reconcile any more: another process, which leads as well, has answered.
	// Its answer is overwritten now, and neither of the two would come back to the object.
	op.Log.Info("Asking for a reconcile, as the object was changed during the operation")
	return r.askForReconcile(ctx, op.Object)
}

// Shorten cuts a text to what a status takes, between two characters. What was cut once stays as it is.
func Shorten(text string) string {
	const more = " ..."
	if text = strings.ToValidUTF8(text, ""); len(text) <= descriptionMax {
		return text
	}
	return strings.ToValidUTF8(text[:descriptionMax-len(more)], "") + more
}

// underWay is the lastOperation of one that goes on.
func (r *Reconciler[T]) underWay(op *Operation[T]) *gardencorev1beta1.LastOperation {
	return r.lastOperation(op, gardencorev1beta1.LastOperationStateProcessing, 1, fmt.Sprintf("%s of %s is under way", op.Type, r.kind))
}

func (r *Reconciler[T]) lastOperation(op *Operation[T], state gardencorev1beta1.LastOperationState, progress int32, description string) *gardencorev1beta1.LastOperation {
	return &gardencorev1beta1.LastOperation{
		Type: op.Type, State: state, Progress: progress, Description: Shorten(description),
		LastUpdateTime: metav1.Time{Time: NotBefore(r.Clock.Now(), Requested(op.Object))},
	}
}

// dropOperation takes the annotation away of an operation that has been taken up: by now the status says that there is one.
func (r *Reconciler[T]) dropOperation(ctx context.Context, op *Operation[T]) error {
	if op.isOfMigration() {
		return nil
	}
	if err := r.checkState(op); err != nil {
		return err
	}
	return r.writeMetadata(ctx, op, change{removeOperation: true})
}

// takeUp takes the annotation away by which a reconcile is asked for, and adds the finalizer. gardenlet's controllers that wait for an
// event, those of BackupBuckets, BackupEntries and Bastions, hear of a result only if the object has no annotation by then, and
// if lastOperation differs from the one before (pkg/controllerutils/predicate, LastOperationChanged). If it would not differ, or
// if nothing but the annotation told the next instance that a result is due, lastOperation says before that one is under way. The
// Actuator still sees the last one that has ended.
func (r *Reconciler[T]) takeUp(ctx context.Context, op *Operation[T], addFinalizer bool) error {
	underWay := r.underWay(op)
	if last := op.Object.GetExtensionStatus().GetLastOperation(); op.Asked && last != nil && last.State != underWay.State &&
		(!IsUnanswered(op.Object) || !last.LastUpdateTime.Time.Before(underWay.LastUpdateTime.Truncate(time.Second))) {
		if err := r.sayUnderWay(ctx, op); err != nil {
			return err
		}
		if err := r.checkState(op); err != nil {
			return err
		}
	}
	before := op.Object.GetExtensionStatus().GetLastOperation().DeepCopy()
	err := r.writeMetadata(ctx, op, change{addFinalizer: addFinalizer, removeOperation: op.Asked})
	op.Object.GetExtensionStatus().SetLastOperation(before)
	return err
}

// checkState returns a conflict if something else is asked for by now: the annotation is not ours to take away then.
func (r *Reconciler[T]) checkState(op *Operation[T]) error {
	if stateOf(op.Object) == op.read {
		return nil
	}
	resource := schema.GroupResource{Group: extensionsv1alpha1.SchemeGroupVersion.Group, Resource: r.kind}
	return apierrors.NewConflict(resource, op.Object.GetName(), errors.New("another operation is asked for"))
}

// describe returns the texts of the extension library.
func describe[T extensionsv1alpha1.Object](kind string) func(*Operation[T], error) string {
	return func(op *Operation[T], err error) string {
		doing, done := "reconciling", "reconciled"
		switch op.Type {
		case gardencorev1beta1.LastOperationTypeDelete:
			doing, done = "deleting", "deleted"
		case gardencorev1beta1.LastOperationTypeMigrate:
			doing, done = "migrating", "migrated"
		case gardencorev1beta1.LastOperationTypeRestore:
			doing, done = "restoring", "restored"
		}
		if err != nil {
			return fmt.Sprintf("Error %s %s: %v", doing, kind, err)
		}
		return fmt.Sprintf("Successfully %s %s", done, kind)
	}
}

// Requested is when Gardener asked for an operation, in whole seconds as times in a status are; zero if it did not say.
func Requested(obj extensionsv1alpha1.Object) time.Time {
	timestamp, err := time.Parse(time.RFC3339Nano, obj.GetAnnotations()[v1beta1constants.GardenerTimestamp])
	if err != nil {
		return time.Time{}
	}
	return timestamp.Truncate(time.Second)
}

// NotBefore returns the later of two times. Gardener's clock may be ahead of this one, and it takes an object for ready only
// if lastOperation is not older than its request.
func NotBefore(t, earliest time.Time) time.Time {
	if t.Before(earliest) {
		return earliest
	}
	return t
}

// LaterThan returns the time of now for a status that has had another one: later than that, though times in a status are of whole
// seconds, and not before the operation on the object was requested, as Gardener's clock may be ahead.
func LaterThan(last *metav1.Time, now time.Time, obj extensionsv1alpha1.Object) *metav1.Time {
	if last != nil && !now.Truncate(time.Second).After(last.Time) {
		now = last.Add(time.Second)
	}
	return &metav1.Time{Time: NotBefore(now, Requested(obj))}
}

// Writes of metadata hold for the object as it was read last. If somebody has changed it since, above all Gardener, which then
// asks for something else, they are a conflict and the object is looked at anew. Writes of the status, which is ours, do not
// conflict: the answer shows whether something else is asked for by now. All are patches made by hand, as those of the
// controller-runtime encode the whole object twice, and an OperatingSystemConfig can be large.

// change is a change of an object's metadata.
type change struct {
	addFinalizer, removeFinalizer, removeOperation bool
}

// writeMetadata changes the metadata in one request, or in none if there is nothing to change.
func (r *Reconciler[T]) writeMetadata(ctx context.Context, op *Operation[T], change change) error {
	obj, metadata := op.Object, map[string]any{"resourceVersion": op.Object.GetResourceVersion()}

	if _, ok := obj.GetAnnotations()[v1beta1constants.GardenerOperation]; ok && change.removeOperation {
		metadata["annotations"] = map[string]any{v1beta1constants.GardenerOperation: nil}
	}
	if (change.addFinalizer && controllerutil.AddFinalizer(obj, r.Finalizer)) ||
		(change.removeFinalizer && controllerutil.RemoveFinalizer(obj, r.Finalizer)) {
		// None at all are an empty list, too.
		metadata["finalizers"] = append([]string{}, obj.GetFinalizers()...)
	}
	if len(metadata) == 1 {
		return nil
	}

	if err := r.patch(ctx, obj, metadata); err != nil {
		return fmt.Errorf("writing the metadata: %w", err)
	}
	op.read = stateOf(obj)
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 && obj.GetUID() != "" {
		r.finished.Add(obj.GetUID(), nil)
	}
	return nil
}

// askForReconcile sets the annotation by which Gardener asks for a reconcile.
func (r *Reconciler[T]) askForReconcile(ctx context.Context, obj T) error {
	err := r.patch(ctx, obj, map[string]any{
		"uid":         obj.GetUID(),
		"annotations": map[string]string{v1beta1constants.GardenerOperation: v1beta1constants.GardenerOperationReconcile},
	})
	if err != nil {
		return fmt.Errorf("asking for a reconcile: %w", err)
	}
	return nil
}

func (r *Reconciler[T]) patch(ctx context.Context, obj T, metadata map[string]any) error {
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	return r.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data))
}

// statusOf encodes an object's status as it is.
func statusOf(obj extensionsv1alpha1.Object) ([]byte, error) {
	return json.Marshal(obj.GetExtensionStatus())
}

// changes returns a merge patch with what has changed in the status. Actuators set the provider status at each attempt. The patch is empty
// if it says the same as before, though the API server returns its fields in another order.
func (o *Operation[T]) changes() (patch, after []byte, err error) {
	if after, err = statusOf(o.Object); err != nil {
		return nil, nil, err
	}
	patch, err = jsonpatch.CreateMergePatch(o.before, after)
	return patch, after, err
}

// isUnchanged reports whether the status is as it is in the API server.
func (o *Operation[T]) isUnchanged() bool {
	changes, _, err := o.changes()
	return err == nil && string(changes) == "{}"
}

// writeStatus writes what has changed in the status, if anything; with lastOperation, that in any case and in full: it may be
// another one in the API server by now (sayUnderWay).
func (r *Reconciler[T]) writeStatus(ctx context.Context, op *Operation[T], withLastOperation bool) error {
	changes, after, err := op.changes()
	if err != nil {
		return err
	}
	status := map[string]json.RawMessage{}
	if err := json.Unmarshal(changes, &status); err != nil {
		return err
	}
	if withLastOperation {
		if status["lastOperation"], err = json.Marshal(op.Object.GetExtensionStatus().GetLastOperation()); err != nil {
			return err
		}
	}
	if len(status) == 0 {
		return nil
	}
	if err := r.patchStatus(ctx, op.Object, op.Object.GetUID(), status); err != nil {
		return err
	}
	op.before = after
	return nil
}

func (r *Reconciler[T]) patchStatus(ctx context.Context, obj T, uid types.UID, status any) error {
	patch := map[string]any{"status": status}
	if uid != "" {
		// It must not be another object of that name.
		patch["metadata"] = map[string]any{"uid": uid}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	if err := r.Client.Status().Patch(ctx, obj, client.RawPatch(types.MergePatchType, data)); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// sayUnderWay says on the object that the operation is under way, and takes over the metadata of the answer. Else the next
// write of metadata would be a conflict of our own making. The status stays as the Actuator knows it.
func (r *Reconciler[T]) sayUnderWay(ctx context.Context, op *Operation[T]) error {
	answer := r.NewObject()
	answer.SetNamespace(op.Object.GetNamespace())
	answer.SetName(op.Object.GetName())
	if err := r.patchStatus(ctx, answer, op.Object.GetUID(), map[string]any{"lastOperation": r.underWay(op)}); err != nil {
		return err
	}
	op.Object.SetResourceVersion(answer.GetResourceVersion())
	op.Object.SetFinalizers(answer.GetFinalizers())
	op.Object.SetAnnotations(answer.GetAnnotations())
	op.Object.SetGeneration(answer.GetGeneration())
	return nil
}
