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
// kept in memory, renewed or stopped when the credentials of the cluster change.
func watchObject[T client.Object](ctx context.Context, c client.WithWatch, key client.ObjectKey, object T, list client.ObjectList, seen func(T) (bool, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lw := &objectWatch{client: c, key: key, list: list, missing: make(chan struct{}, 1), giveUp: cancel}
	_, _, watcher, stopped := watchtools.NewIndexerInformerWatcherWithLogger(klog.FromContext(ctx), lw.listerWatcher(), object)
	defer func() { <-stopped }()
	defer watcher.Stop()

	for {
		var current T
		select {
		case <-ctx.Done():
			if last := lw.lastError(); last != nil && !errors.Is(context.Cause(ctx), last) {
				return fmt.Errorf("%w (watching it: %w)", context.Cause(ctx), last)
			}
			return context.Cause(ctx)
		case <-lw.missing:
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

// objectWatch lists and watches one object.
type objectWatch struct {
	client client.WithWatch
	key    client.ObjectKey
	list   client.ObjectList
	// missing gets a value when the object is not in a list: of what was never there, an informer tells nothing.
	missing chan struct{}
	giveUp  context.CancelCauseFunc
	last    atomic.Pointer[error]
}

func (o *objectWatch) listerWatcher() cache.ListerWatcher {
	return plainListWatch{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			// An informer takes what the API server has in its cache, which may be older than what the caller has just written.
			opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
			list := o.list.DeepCopyObject().(client.ObjectList)
			if err := o.note(o.client.List(ctx, list, o.options(opts))); err != nil {
				return nil, err
			}
			if !o.isIn(list) {
				select {
				case o.missing <- struct{}{}:
				default:
				}
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := o.client.Watch(ctx, o.list.DeepCopyObject().(client.ObjectList), o.options(opts))
			return w, o.note(err)
		},
	}}
}

func (o *objectWatch) isIn(list client.ObjectList) bool {
	found := false
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if accessor, err := meta.Accessor(item); err == nil && accessor.GetName() == o.key.Name {
			found = true
		}
		return nil
	})
	return found
}

func (o *objectWatch) options(raw metav1.ListOptions) *client.ListOptions {
	return &client.ListOptions{Namespace: o.key.Namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.key.Name), Raw: &raw}
}

// note keeps an error to report it if the wait has no end, and ends it if no waiting helps.
func (o *objectWatch) note(err error) error {
	if err == nil {
		o.last.Store(nil)
		return nil
	}
	o.last.Store(&err)
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		o.giveUp(err)
	}
	return err
}

func (o *objectWatch) lastError() error {
	if err := o.last.Load(); err != nil {
		return *err
	}
	return nil
}

// plainListWatch has the informer list before it watches, which each API server can do.
type plainListWatch struct {
	*cache.ListWatch
}

// IsWatchListSemanticsUnSupported is how client-go asks for that.
func (plainListWatch) IsWatchListSemanticsUnSupported() bool { return true }
