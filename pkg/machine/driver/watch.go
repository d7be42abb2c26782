// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchObject watches one object and calls seen with what it is now and after each change, and with a zero value when it
// is not there, until seen returns true or an error. It gets over everything that may happen to a watch, and gives up only
// if it is not permitted to watch, or when the context ends.
//
// It is a watch of its own and not a shared one: a shoot makes a machine now and then, and in between nothing has to be
// kept in memory, renewed or stopped when the credentials of the cluster change. It is not watchtools.UntilWithSync, which
// looks every 100 ms whether the first list has come.
func watchObject[T client.Object](ctx context.Context, c client.WithWatch, key client.ObjectKey, object T, list client.ObjectList, seen func(T) (bool, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var last atomic.Pointer[error]
	// note keeps an error to report it if the wait has no end, and ends it if no waiting helps.
	note := func(err error) error {
		last.Store(&err)
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			cancel(err)
		}
		return err
	}
	options := func(raw metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: key.Namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name), Raw: &raw}
	}
	// missing gets a value when the object is not in a list: of what was never there, an informer tells nothing.
	missing := make(chan struct{}, 1)
	lw := plainListWatch{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			// An informer takes what the API server has in its cache, which may be older than what the caller has just written.
			opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
			list := list.DeepCopyObject().(client.ObjectList)
			if err := note(c.List(ctx, list, options(opts))); err != nil {
				return nil, err
			}
			if meta.LenList(list) == 0 {
				select {
				case missing <- struct{}{}:
				default:
				}
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := c.Watch(ctx, list.DeepCopyObject().(client.ObjectList), options(opts))
			return w, note(err)
		},
	}}
	_, _, watcher, stopped := watchtools.NewIndexerInformerWatcherWithLogger(klog.FromContext(ctx), lw, object)
	defer func() { <-stopped }()
	defer watcher.Stop()

	for {
		var current T
		select {
		case <-ctx.Done():
			if reason := last.Load(); reason != nil && *reason != nil && !errors.Is(context.Cause(ctx), *reason) {
				return fmt.Errorf("%w (watching it: %w)", context.Cause(ctx), *reason)
			}
			return context.Cause(ctx)
		case <-missing:
		case event := <-watcher.ResultChan():
			changed, ok := event.Object.(T)
			if !ok || changed.GetName() != key.Name {
				continue
			}
			if event.Type != watch.Deleted {
				current = changed
			}
		}
		if done, err := seen(current); done || err != nil {
			return err
		}
	}
}

// plainListWatch has the informer list before it watches, which each API server can do.
type plainListWatch struct {
	*cache.ListWatch
}

// IsWatchListSemanticsUnSupported is how client-go asks for that.
func (plainListWatch) IsWatchListSemanticsUnSupported() bool { return true }
