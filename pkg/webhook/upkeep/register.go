// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/pkg/controllerutils"
)

// Owner returns a reference to the namespace with which a registration goes. One that stayed when its program has been
// taken away would have the API server call what is no more.
func Owner(ctx context.Context, c client.Client, namespace string) (*metav1.OwnerReference, error) {
	kind := corev1.SchemeGroupVersion.WithKind("Namespace")
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(kind)
	if err := c.Get(ctx, client.ObjectKey{Name: namespace}, obj); err != nil {
		return nil, fmt.Errorf("reading the namespace %s, which owns the registration: %w", namespace, err)
	}
	owner := metav1.NewControllerRef(obj, kind)
	owner.BlockOwnerDeletion = new(false)
	return owner, nil
}

// Register writes a registration, by its name, with the given labels beside those that it has, its owner, and the webhooks
// that setWebhooks puts into it.
func Register(ctx context.Context, c client.Client, registration client.Object, labels map[string]string, owner *metav1.OwnerReference, setWebhooks func()) error {
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, c, registration, func() error {
		all := map[string]string{}
		maps.Copy(all, registration.GetLabels())
		maps.Copy(all, labels)
		registration.SetLabels(all)
		registration.SetOwnerReferences([]metav1.OwnerReference{*owner})
		setWebhooks()
		return nil
	}, controllerutils.SkipEmptyPatch{}); err != nil {
		kind, _ := c.GroupVersionKindFor(registration)
		return fmt.Errorf("writing %s %s: %w", kind.Kind, registration.GetName(), err)
	}
	return nil
}
