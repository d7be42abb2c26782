// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common

import (
	"context"
	"fmt"
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Ensure ensures that an object, of which name and namespace are set, is as mutate makes it, and writes nothing if it is
// so. What is more likely is tried first, so a new object takes one request and one that is there and right takes one: the
// object is created, and read only if it is there already; or if isThere says that it should be, the other way round. It has
// the state of the API server then.
//
// mutate may be called twice. An object that is there has a resource version; an error of mutate is returned as it is, and nothing is
// written then. It differs from the functions of the same purpose in Gardener's controllerutils in that an object is not
// decoded on top of what mutate has made of it, which hides what is missing in the API server, and in that it sends no empty
// patches.
func Ensure[T client.Object](ctx context.Context, c client.Client, reader client.Reader, obj T, isThere bool, mutate func(T) error) error {
	blank := obj.DeepCopyObject()
	if !isThere {
		if err := mutate(obj); err != nil {
			return err
		}
		if err := c.Create(ctx, obj); !apierrors.IsAlreadyExists(err) {
			return about("creating", obj, err)
		}
	}

	key := client.ObjectKeyFromObject(obj)
	reflect.ValueOf(obj).Elem().SetZero()
	err := reader.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) && isThere {
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(blank).Elem())
		if err := mutate(obj); err != nil {
			return err
		}
		return about("creating", obj, c.Create(ctx, obj))
	}
	if err != nil {
		obj.SetNamespace(key.Namespace)
		obj.SetName(key.Name)
		return about("reading", obj, err)
	}

	before := obj.DeepCopyObject().(client.Object)
	if err := mutate(obj); err != nil {
		return err
	}
	if apiequality.Semantic.DeepEqual(before, obj) {
		return nil
	}
	return about("changing", obj, c.Patch(ctx, obj, client.MergeFrom(before)))
}

func about(doing string, obj client.Object, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s: %w", doing, reflect.TypeOf(obj).Elem().Name(), client.ObjectKeyFromObject(obj), err)
}
