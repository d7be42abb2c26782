// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common

import (
	"context"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

// finishedMax is how many objects are remembered that are gone, but may still be in a cache that lags behind.
const finishedMax = 1024

// OnlyOwn returns a manager for a reconciler of the kind T: to its client, objects of that kind are not found unless they
// are of the given type and of one of the classes.
//
// The predicates of the watches keep others out of the queue, but what is in the queue is only a name. By the time of a
// reconcile there can be another object under it, or the class of the object can have been taken away, which the API
// server allows although it calls the class immutable: either way it is another instance's by then. A reconciler of the
// extension library reads its object several times, so each of these reads is looked at. What it writes first to an
// object that it has read is its finalizer, with the resource version of what it has read; that holds the object until
// it takes the finalizer off, and after that it does not find the object again.
func OnlyOwn[T extensionsv1alpha1.Object](mgr manager.Manager, extensionType string, classes class.Set) manager.Manager {
	return &ownManager{Manager: mgr, client: &ownClient[T]{
		Client:        mgr.GetClient(),
		extensionType: extensionType,
		classes:       classes,
		finished:      lru.New(finishedMax),
	}}
}

type ownManager struct {
	manager.Manager
	client client.Client
}

// GetClient implements manager.Manager.
func (m *ownManager) GetClient() client.Client { return m.client }

type ownClient[T extensionsv1alpha1.Object] struct {
	client.Client
	extensionType string
	classes       class.Set
	// finished has the UIDs of objects whose last finalizer was taken off here.
	finished *lru.Cache
}

// Get implements client.Reader.
func (c *ownClient[T]) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	found, ok := obj.(T)
	if !ok || c.isOwn(found) {
		return nil
	}
	// Some callers look at the object even if it was not found.
	reflect.ValueOf(obj).Elem().SetZero()
	return apierrors.NewNotFound(schema.GroupResource{Group: extensionsv1alpha1.SchemeGroupVersion.Group, Resource: reflect.TypeOf(obj).Elem().Name()}, key.Name)
}

// Patch implements client.Writer.
func (c *ownClient[T]) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := c.Client.Patch(ctx, obj, patch, opts...); err != nil {
		return err
	}
	if _, ok := obj.(T); ok && obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		c.finished.Add(obj.GetUID(), nil)
	}
	return nil
}

func (c *ownClient[T]) isOwn(obj T) bool {
	if obj.GetExtensionSpec().GetExtensionType() != c.extensionType || !c.classes.Has(obj) {
		return false
	}
	_, finished := c.finished.Get(obj.GetUID())
	return !finished
}
