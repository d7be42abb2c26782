// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// Writes of metadata hold for the object as it was read last. If somebody has changed it since, above all Gardener, which then
// asks for something else, they are a conflict and the object is looked at anew. Writes of the status, which is ours, do not
// conflict: the answer shows whether something else is asked for by now. All are patches made by hand, as those of the
// controller-runtime encode the whole object twice, and an OperatingSystemConfig can be large.

// metadataPatch is a merge patch for what is written of an object's metadata.
type metadataPatch struct {
	Metadata struct {
		ResourceVersion string         `json:"resourceVersion"`
		Annotations     map[string]any `json:"annotations,omitempty"`
		Finalizers      *[]string      `json:"finalizers,omitempty"`
	} `json:"metadata"`
}

// change is a change of an object's metadata.
type change struct {
	addFinalizer, removeFinalizer, removeOperation bool
}

// writeMetadata changes the metadata in one request, or in none if there is nothing to change.
func (r *Reconciler[T]) writeMetadata(ctx context.Context, op *Operation[T], change change) error {
	obj, patch := op.Object, metadataPatch{}
	patch.Metadata.ResourceVersion = obj.GetResourceVersion()

	// The answer is decoded on top of the object, which therefore must not have what is taken away.
	annotations := obj.GetAnnotations()
	if _, ok := annotations[v1beta1constants.GardenerOperation]; ok && change.removeOperation {
		patch.Metadata.Annotations = map[string]any{v1beta1constants.GardenerOperation: nil}
		delete(annotations, v1beta1constants.GardenerOperation)
		obj.SetAnnotations(annotations)
	}
	if (change.addFinalizer && controllerutil.AddFinalizer(obj, r.Finalizer)) ||
		(change.removeFinalizer && controllerutil.RemoveFinalizer(obj, r.Finalizer)) {
		// None at all are an empty list, too.
		finalizers := append([]string{}, obj.GetFinalizers()...)
		patch.Metadata.Finalizers = &finalizers
	}
	if patch.Metadata.Annotations == nil && patch.Metadata.Finalizers == nil {
		return nil
	}

	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	if err := r.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data)); err != nil {
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
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         obj.GetUID(),
		"annotations": map[string]string{v1beta1constants.GardenerOperation: v1beta1constants.GardenerOperationReconcile},
	}})
	if err != nil {
		return err
	}
	if err := r.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data)); err != nil {
		return fmt.Errorf("asking for a reconcile: %w", err)
	}
	return nil
}

// statusOf encodes an object's status as it is.
func statusOf(obj extensionsv1alpha1.Object) ([]byte, error) {
	return json.Marshal(obj.GetExtensionStatus())
}

// ProviderStatus encodes a provider status. It may be set in each attempt: if the object's status says the same, in whichever order
// the API server returns its fields, nothing is written.
func ProviderStatus(status any) (*runtime.RawExtension, error) {
	raw, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encoding the provider status: %w", err)
	}
	return &runtime.RawExtension{Raw: raw}, nil
}

// changes returns a merge patch with what has changed in the status.
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
