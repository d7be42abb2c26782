// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

// settle is how long a check waits after an event, as these come in swarms: when Machines are rolled, or when
// gardener-resource-manager goes through its conditions one after the other. It does not start anew with each event.
const settle = time.Second

// waker maps objects in a shoot's namespace to the extension objects of one kind that are there.
type waker struct {
	reader  client.Reader
	newList func() client.ObjectList
	classes class.Set
}

func (w *waker) handler() handler.EventHandler {
	wake := func(ctx context.Context, obj client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, request := range w.requests(ctx, obj) {
			queue.AddAfter(request, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			wake(ctx, e.Object, queue)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			wake(ctx, e.ObjectNew, queue)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			wake(ctx, e.Object, queue)
		},
	}
}

func (w *waker) requests(ctx context.Context, obj client.Object) []reconcile.Request {
	namespace := obj.GetNamespace()
	if _, ok := obj.(*extensionsv1alpha1.Cluster); ok {
		// A Cluster has the name of the namespace to which it belongs.
		namespace = obj.GetName()
	}

	objects := w.newList()
	if err := w.reader.List(ctx, objects, client.InNamespace(namespace)); err != nil {
		// From a cache this does not fail but at the end of the program.
		return nil
	}
	var out []reconcile.Request
	if err := meta.EachListItem(objects, func(item runtime.Object) error {
		if obj, ok := item.(extensionsv1alpha1.Object); ok && isOurs(obj, w.classes) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
		}
		return nil
	}); err != nil {
		logf.FromContext(ctx).Error(err, "Listing extension objects", "namespace", namespace)
	}
	return out
}

// changed lets pass what alters the outcome of a check.
func (w *watched) changed() predicate.Predicate {
	named := func(obj client.Object) bool { return len(w.names) == 0 || slices.Contains(w.names, obj.GetName()) }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return named(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return named(e.ObjectNew) && w.aspect(e.ObjectOld) != w.aspect(e.ObjectNew)
		},
		DeleteFunc:  func(e event.DeleteEvent) bool { return named(e.Object) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// objectChanged lets pass what matters of an extension object itself, which our own writes do not change.
func objectChanged() predicate.Predicate {
	aspect := func(obj client.Object) any {
		ex, ok := obj.(extensionsv1alpha1.Object)
		if !ok {
			return nil
		}
		var operation [2]string
		if last := ex.GetExtensionStatus().GetLastOperation(); last != nil {
			operation = [2]string{string(last.Type), string(last.State)}
		}
		return [3]any{ex.GetGeneration(), ex.GetAnnotations()[v1beta1constants.GardenerOperation], operation}
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return aspect(e.ObjectOld) != aspect(e.ObjectNew) }}
}

// clusterChanged lets pass changes of the shoot, among them that it falls asleep or wakes up.
func clusterChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*extensionsv1alpha1.Cluster)
			after, ok2 := e.ObjectNew.(*extensionsv1alpha1.Cluster)
			return ok && ok2 && !bytes.Equal(before.Spec.Shoot.Raw, after.Spec.Shoot.Raw)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// lateWatches are watches of kinds that the cluster may not know yet when the instance starts: gardenlet installs them in
// a seed, and a manager dies of a watch that does not come about. They are started once a reconcile finds that the kinds
// are there.
type lateWatches struct {
	mapper meta.RESTMapper
	scheme *runtime.Scheme

	mu      sync.Mutex
	pending []lateWatch
}

type lateWatch struct {
	object client.Object
	start  func() error
}

func (l *lateWatches) add(object client.Object, start func() error) {
	l.pending = append(l.pending, lateWatch{object, start})
}

// start starts what has not been started yet. After that it costs nothing.
func (l *lateWatches) start() error {
	l.mu.Lock()
	defer l.mu.Unlock()

	for len(l.pending) > 0 {
		next := l.pending[0]
		gvk, err := apiutil.GVKForObject(next.object, l.scheme)
		if err != nil {
			return err
		}
		if _, err := l.mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			return err
		}
		if err := next.start(); err != nil {
			return fmt.Errorf("watching %s: %w", gvk.Kind, err)
		}
		l.pending = l.pending[1:]
	}
	return nil
}

// asObject is for type inference: a watch is one of client.Objects whatever it watches.
func asObject(obj client.Object) client.Object { return obj }
