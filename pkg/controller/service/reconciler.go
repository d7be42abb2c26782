// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

const (
	// pageSize is how many Services are read at a time.
	pageSize = 500
	// writtenMax is the number of Services of which the last write is remembered.
	writtenMax = 4096
	// retryMistake is how long a mistake in a Service is left alone. Correcting it makes an event anyway.
	retryMistake = 10 * time.Minute
)

type reconciler struct {
	// cache has the Services of type LoadBalancer, live has all.
	cache, live client.Reader
	client      client.Client
	events      events.EventRecorder
	allocator   *loadbalancer.Allocator
	// wake puts Services into the queue.
	wake func([]types.NamespacedName)
	// written has the resource versions of Services that were written, by their keys.
	written *lru.Cache

	restoring sync.Mutex
	restored  bool
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if err := r.restore(ctx); err != nil {
		return reconcile.Result{}, err
	}

	service := &corev1.Service{}
	if err := r.cache.Get(ctx, request.NamespacedName, service); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, err
		}
		r.written.Remove(request.NamespacedName)
		r.wake(r.allocator.Release(request.NamespacedName))
		return reconcile.Result{}, nil
	}

	switch {
	case r.isBehind(service):
		// The event of what was written is yet to come.
		return reconcile.Result{}, nil
	case service.DeletionTimestamp != nil:
		// Its address serves until it is gone.
		return reconcile.Result{}, nil
	case !loadbalancer.IsOurs(service):
		r.wake(r.allocator.Observe(service))
		return reconcile.Result{}, nil
	}

	result, err := r.reconcile(ctx, service)
	if isOutdated(err) {
		logf.FromContext(ctx).V(1).Info("The Service has changed meanwhile")
		return reconcile.Result{}, nil
	}
	return result, err
}

func (r *reconciler) reconcile(ctx context.Context, service *corev1.Service) (reconcile.Result, error) {
	service, portProblem, portErr := r.fixNodePorts(ctx, service)
	if isOutdated(portErr) {
		return reconcile.Result{}, portErr
	}

	ingress, problem := r.allocator.Assign(service)
	if err := r.writeStatus(ctx, service, ingress, join(problem, portProblem)); err != nil {
		return reconcile.Result{}, errors.Join(portErr, err)
	}
	r.wake(r.allocator.Keep(client.ObjectKeyFromObject(service), addressesOf(ingress)))

	if portErr == nil && portProblem != nil {
		// Nobody tells when another Service of whatever type gives a node port back.
		return reconcile.Result{RequeueAfter: retryMistake}, nil
	}
	return reconcile.Result{}, portErr
}

// remember notes that a Service was written.
func (r *reconciler) remember(service *corev1.Service) {
	r.written.Add(client.ObjectKeyFromObject(service), service.ResourceVersion)
}

// isBehind reports whether a Service from the cache is older than what was written.
func (r *reconciler) isBehind(service *corev1.Service) bool {
	written, ok := r.written.Get(client.ObjectKeyFromObject(service))
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(service.ResourceVersion, written.(string))
	return err == nil && order < 0
}

// restore reads before the first reconcile which addresses are in use. It asks the API server, as the cache may not know
// yet what another instance wrote that was the leader a moment ago.
func (r *reconciler) restore(ctx context.Context) error {
	r.restoring.Lock()
	defer r.restoring.Unlock()
	if r.restored {
		return nil
	}

	var services []corev1.Service
	if err := r.eachService(ctx, corev1.ServiceTypeLoadBalancer, func(service *corev1.Service) {
		services = append(services, corev1.Service{
			ObjectMeta: service.ObjectMeta,
			Spec:       corev1.ServiceSpec{Type: service.Spec.Type, LoadBalancerClass: service.Spec.LoadBalancerClass},
			Status:     service.Status,
		})
	}); err != nil {
		return fmt.Errorf("reading which addresses are in use: %w", err)
	}
	r.allocator.Restore(services)
	r.restored = true
	return nil
}

// eachService calls a function with each Service of a type as the API server has it.
func (r *reconciler) eachService(ctx context.Context, serviceType corev1.ServiceType, visit func(*corev1.Service)) error {
	list := &corev1.ServiceList{}
	for {
		if err := r.live.List(ctx, list, client.MatchingFields{"spec.type": string(serviceType)}, client.Limit(pageSize), client.Continue(list.Continue)); err != nil {
			return fmt.Errorf("listing Services of type %s: %w", serviceType, err)
		}
		for i := range list.Items {
			visit(&list.Items[i])
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// outdatedError is that of a patch for a version of our Service that is not the current one any more.
type outdatedError struct{ error }

// Unwrap returns what the API server said.
func (e outdatedError) Unwrap() error { return e.error }

// outdated marks such errors. The event of the current version makes another reconcile.
func outdated(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return outdatedError{err}
	}
	return err
}

func isOutdated(err error) bool {
	var outdated outdatedError
	return errors.As(err, &outdated)
}
