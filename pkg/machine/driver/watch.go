// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// retryWatch is the time from the end of a watch to the next one.
const retryWatch = time.Second

// watchObject watches one object and calls seen with what it is now and after each change, and with a zero value when it
// is not there, until seen returns true or an error. It gets over everything that may happen to a watch, and gives up only
// if it is not permitted to watch, or when the context ends.
//
// It is a watch of its own and not a shared one: a shoot makes a machine now and then, and in between nothing has to be
// kept in memory, renewed or stopped when the credentials of the cluster change. It is not watchtools.UntilWithSync, which
// looks every 100 ms whether the first list has come.
func watchObject[T client.Object](ctx context.Context, c client.WithWatch, key client.ObjectKey, list client.ObjectList, seen func(T) (bool, error)) error {
	var result, last error
	ended := func(current T) (done bool) {
		done, result = seen(current)
		return done || result != nil
	}
	err := wait.PollUntilContextCancel(ctx, retryWatch, true, func(ctx context.Context) (bool, error) {
		done, err := watchOnce(ctx, c, key, list.DeepCopyObject().(client.ObjectList), ended)
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return false, err
		}
		if ctx.Err() == nil {
			last = err
		}
		return done, nil
	})
	if err == nil {
		return result
	}
	cause := context.Cause(ctx)
	if cause != nil && last != nil {
		return fmt.Errorf("%w (watching it: %w)", cause, last)
	}
	return cmp.Or(cause, err)
}

// watchOnce lists the object and watches it until ended returns true, the watch ends or the context does. The list is not from the
// API server's cache, which may be older than what the caller has just written.
func watchOnce[T client.Object](ctx context.Context, c client.WithWatch, key client.ObjectKey, list client.ObjectList, ended func(T) bool) (bool, error) {
	options := &client.ListOptions{Namespace: key.Namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name)}
	if err := c.List(ctx, list, options); err != nil {
		return false, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return false, err
	}
	var current T
	if len(items) > 0 {
		current = items[0].(T)
	}
	if ended(current) {
		return true, nil
	}

	options.Raw = &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
	watcher, err := c.Watch(ctx, list, options)
	if err != nil {
		return false, err
	}
	_, err = watchtools.UntilWithoutRetry(ctx, watcher, func(event watch.Event) (bool, error) {
		var gone T
		switch current, ok := event.Object.(T); {
		case event.Type == watch.Error:
			return false, apierrors.FromObject(event.Object)
		case event.Type == watch.Bookmark:
			return false, nil
		case !ok: // The server may be a user's.
			return false, fmt.Errorf("the server sent a %T", event.Object)
		case event.Type != watch.Deleted:
			return ended(current), nil
		}
		return ended(gone), nil
	})
	return err == nil, err
}
