// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// waker wakes a Bastion when what is said of its Pod or Service in the seed changes, or when one of them is gone.
//
// It does so after the Bastion was reconciled, too. gardenlet asks for that just once in a Bastion's life, so nobody else
// would bring back a Pod that was drained from its node, or follow the Service to another address.
type waker struct {
	// reader reads Bastions, from the manager's cache.
	reader client.Reader
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (w *waker) handler() handler.EventHandler {
	return handler.Funcs{
		// An instance that starts gets such an event for each object there is.
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue queue) {
			if key, ok := bastionOf(e.Object); ok && problem(e.Object) == "" && w.waits(ctx, key) {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue queue) {
			if key, ok := bastionOf(e.ObjectNew); ok && said(e.ObjectOld) != said(e.ObjectNew) {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue queue) {
			if key, ok := bastionOf(e.Object); ok {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
		},
	}
}

// bastionOf returns which Bastion an object in the seed belongs to. It goes by names, as the cache keeps no labels of
// Services. A Bastion that does not exist costs nothing.
func bastionOf(obj client.Object) (client.ObjectKey, bool) {
	name, ok := strings.CutPrefix(obj.GetName(), namePrefix)
	return client.ObjectKey{Namespace: obj.GetNamespace(), Name: name}, ok
}

// said is what a Bastion is told about an object.
func said(obj client.Object) string {
	if service, ok := obj.(*corev1.Service); ok && problem(obj) == "" {
		address := addressOf(service)
		return address.IP + address.Hostname
	}
	return problem(obj)
}

func (w *waker) waits(ctx context.Context, key client.ObjectKey) bool {
	bastion := &extensionsv1alpha1.Bastion{}
	if err := w.reader.Get(ctx, key, bastion); err != nil {
		return false
	}
	last := bastion.Status.LastOperation
	return last == nil || last.State != gardencorev1beta1.LastOperationStateSucceeded ||
		bastion.DeletionTimestamp != nil || bastion.Annotations[v1beta1constants.GardenerOperation] != ""
}
