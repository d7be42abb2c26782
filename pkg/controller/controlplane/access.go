// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
)

// shootAccess is the Secret with cloud-controller's token for the shoot, which GRM keeps fresh.
func shootAccess(namespace string) *gardenerutils.AccessSecret {
	return gardenerutils.NewShootAccessSecret(cloudController, namespace)
}

// applyShootAccess costs one request if the Secret is as it is to be, and one if it is new, as it is before there is a
// ManagedResource with cloud-controller.
func (a *actuator) applyShootAccess(ctx context.Context, namespace string) error {
	err := a.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: SeedName}, &resourcesv1alpha1.ManagedResource{})
	if apierrors.IsNotFound(err) {
		err = shootAccess(namespace).Reconcile(ctx, &accessClient{Client: a.client, isNew: true})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	} else if err != nil {
		return err
	}
	return shootAccess(namespace).Reconcile(ctx, &accessClient{Client: a.client})
}

func (a *actuator) deleteShootAccess(ctx context.Context, namespace string) error {
	secret := shootAccess(namespace).Secret
	if err := client.IgnoreNotFound(a.client.Delete(ctx, secret)); err != nil {
		return fmt.Errorf("deleting secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}

// accessClient spares what AccessSecret sends without need: it reads a Secret that is new, and patches one that is as it is
// to be.
type accessClient struct {
	client.Client
	isNew bool
}

// Get implements client.Reader.
func (c *accessClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if c.isNew {
		return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
	}
	return c.Client.Get(ctx, key, obj, opts...)
}

// Patch implements client.Writer.
func (c *accessClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	// With optimistic locking the resource version is always there.
	var changes, metadata map[string]any
	if err := json.Unmarshal(data, &changes); err != nil {
		return fmt.Errorf("reading the patch: %w", err)
	}
	metadata, _ = changes["metadata"].(map[string]any)
	_, hasVersion := metadata["resourceVersion"]
	if len(changes) == 0 || len(changes) == 1 && len(metadata) == 1 && hasVersion {
		return nil
	}
	return c.Client.Patch(ctx, obj, patch, opts...)
}
