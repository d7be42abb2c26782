// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// All writes hold for the object as it was read. If somebody has changed it since, above all Gardener, which then asks for
// something else, they are a conflict and the object is looked at anew. They are patches made by hand, as those of the
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
func writeMetadata(ctx context.Context, c client.Client, obj extensionsv1alpha1.Object, change change) error {
	patch := metadataPatch{}
	patch.Metadata.ResourceVersion = obj.GetResourceVersion()

	// The answer is decoded on top of the object, which therefore must not have what is taken away.
	annotations := obj.GetAnnotations()
	if _, ok := annotations[v1beta1constants.GardenerOperation]; ok && change.removeOperation {
		patch.Metadata.Annotations = map[string]any{v1beta1constants.GardenerOperation: nil}
		delete(annotations, v1beta1constants.GardenerOperation)
		obj.SetAnnotations(annotations)
	}
	if (change.addFinalizer && controllerutil.AddFinalizer(obj, FinalizerName)) ||
		(change.removeFinalizer && controllerutil.RemoveFinalizer(obj, FinalizerName)) {
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
	if err := c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data)); err != nil {
		return fmt.Errorf("writing the metadata: %w", err)
	}
	return nil
}

// statusOf encodes an object's status as it is, for a later writeStatus.
func statusOf(obj extensionsv1alpha1.Object) ([]byte, error) {
	return json.Marshal(obj.GetExtensionStatus())
}

// writeStatus writes what has changed in the status since before, if anything.
func writeStatus(ctx context.Context, c client.Client, obj extensionsv1alpha1.Object, before []byte) error {
	after, err := statusOf(obj)
	if err != nil {
		return err
	}
	status, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return err
	}
	if string(status) == "{}" {
		return nil
	}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": obj.GetResourceVersion()},
		"status":   json.RawMessage(status),
	})
	if err != nil {
		return err
	}
	if err := c.Status().Patch(ctx, obj, client.RawPatch(types.MergePatchType, data)); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}
