// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package touch sends objects through the webhooks once more, for objects that were written while no webhook served. An
// empty patch changes nothing by itself, but the API server hands the object to the webhooks all the same, and what they
// do to it is written. What a webhook leaves as it is makes no new version of the object and wakes nobody.
package touch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// Object sends the object of this kind, namespace and name through the webhooks. It needs the permission to patch it. An
// object that does not exist is no error: there is nothing to mend.
func Object(ctx context.Context, c client.Client, obj client.Object) error {
	if err := c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte("{}"))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("sending %T %s through the webhooks: %w", obj, client.ObjectKeyFromObject(obj), err)
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
