// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package touch sends objects through the webhooks once more, for objects that were written while no webhook served. An
// empty patch changes nothing by itself, but the API server hands the object to the webhooks all the same, and what they
// do to it is written. What a webhook leaves as it is makes no new version of the object and wakes nobody.
//
// That is done every few minutes, not only at the start: a webhook that is ignored while it cannot be reached may miss any
// write, by a timeout as well, and neither the API server nor the writer tells.
package touch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// Object sends the object of this kind, namespace and name through the webhooks. It needs the permission to patch it. isMutated
// is asked about obj, which is by then as the API server has written it; it is an error if the webhooks have left it as it
// was, as an API server may take a moment to reach them. An object that does not exist, or is being deleted, is no error.
func Object(ctx context.Context, c client.Client, obj client.Object, isMutated func() bool) error {
	err := c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte("{}")))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("sending %T %s through the webhooks: %w", obj, client.ObjectKeyFromObject(obj), err)
	case obj.GetDeletionTimestamp() == nil && !isMutated():
		return fmt.Errorf("sending %T %s through the webhooks: they did not change it, so they were not reached", obj, client.ObjectKeyFromObject(obj))
	}
	return nil
}

// ShootNamespaces returns the names of the namespaces of all shoots of this provider. The reader asks the API server: this
// is needed too seldom to keep namespaces in memory for it.
func ShootNamespaces(ctx context.Context, reader client.Reader) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := reader.List(ctx, list, client.MatchingLabels{v1beta1constants.LabelShootProvider: localv1alpha1.Type}); err != nil {
		return nil, fmt.Errorf("listing the namespaces of shoots: %w", err)
	}

	names := make([]string, 0, len(list.Items))
	for _, namespace := range list.Items {
		if namespace.DeletionTimestamp == nil {
			names = append(names, namespace.Name)
		}
	}
	return names, nil
}
