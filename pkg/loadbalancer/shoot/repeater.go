// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// repeater is the informer for Services that the service controller gets. It remembers what that one registers, so that an
// event can be repeated: this is how the controller is told to look at a Service again.
type repeater struct {
	coreinformers.ServiceInformer
	informer *repeatingInformer
}

type repeatingInformer struct {
	cache.SharedIndexInformer
	handlers []cache.ResourceEventHandler
}

func newRepeater(services coreinformers.ServiceInformer) *repeater {
	return &repeater{ServiceInformer: services, informer: &repeatingInformer{SharedIndexInformer: services.Informer()}}
}

// Informer implements coreinformers.ServiceInformer.
func (r *repeater) Informer() cache.SharedIndexInformer { return r.informer }

// repeat hands a Service to the handlers as if it were new. They compare it to nothing, so they take it as changed.
func (r *repeater) repeat(service *corev1.Service) {
	for _, handler := range r.informer.handlers {
		handler.OnAdd(service, false)
	}
}

// AddEventHandler implements cache.SharedInformer.
func (i *repeatingInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, handler)
	return i.SharedIndexInformer.AddEventHandler(handler)
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i *repeatingInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, handler)
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler, resync)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i *repeatingInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, handler)
	return i.SharedIndexInformer.AddEventHandlerWithOptions(handler, options)
}

// quietNodes is the informer for Nodes that the service controller gets: it reads from the same cache, but hears of no
// changes. These are the follower's, which knows more about them; and the service controller's own way of following them
// reads Services that its workers are changing at that moment.
type quietNodes struct {
	coreinformers.NodeInformer
}

// Informer implements coreinformers.NodeInformer.
func (q quietNodes) Informer() cache.SharedIndexInformer {
	return quietInformer{SharedIndexInformer: q.NodeInformer.Informer()}
}

type quietInformer struct {
	cache.SharedIndexInformer
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i quietInformer) AddEventHandlerWithResyncPeriod(cache.ResourceEventHandler, time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(cache.ResourceEventHandlerFuncs{})
}
