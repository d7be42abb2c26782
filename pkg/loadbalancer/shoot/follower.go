// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// follower sees to what the service controller does not watch. Its requests are Services of the shoot.
type follower struct {
	*Balancer
	// repeat has the service controller look at a Service.
	repeat func(*corev1.Service)
}

// Reconcile implements reconcile.Reconciler.
func (f *follower) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	service, err := f.cache.service(request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := f.sweep(ctx, request.NamespacedName, service); err != nil || service == nil {
		return reconcile.Result{}, err
	}

	switch {
	case !wantsLoadBalancer(service):
		if f.progress.takeDeleting(service.UID) {
			f.repeat(service)
		}
		return reconcile.Result{}, nil
	case !servicehelpers.HasLBFinalizer(service):
		return reconcile.Result{}, nil // The service controller comes first.
	case f.progress.isUnderWay(service.UID):
		return reconcile.Result{}, nil // It is at it. Its end makes another request.
	}

	seed, err := f.apply(ctx, service)
	switch {
	case errors.Is(err, errNotWanted) || isMistake(err):
		return reconcile.Result{}, nil // The service controller says so.
	case err != nil:
		return reconcile.Result{}, err
	}
	if newest, err := f.cache.seedService(seed.Name); err != nil {
		return reconcile.Result{}, err
	} else if newest != nil {
		seed = newest
	}
	if f.isStale(seed, service) {
		f.repeat(service)
	}
	return reconcile.Result{}, nil
}

// sweep deletes what the seed has for Services of that name that are gone, such as one whose finalizer was taken off while
// nobody was there to see it. What has a finalizer is the service controller's.
func (f *follower) sweep(ctx context.Context, key types.NamespacedName, service *corev1.Service) error {
	names := map[string]types.UID{}
	services, err := f.cache.seedServicesOf(key)
	if err != nil {
		return err
	}
	for _, s := range services {
		names[s.Name] = types.UID(s.Labels[LabelUID])
	}
	endpointSlices, err := f.cache.seedSlicesOf(key)
	if err != nil {
		return err
	}
	for _, s := range endpointSlices {
		names[s.Labels[discoveryv1.LabelServiceName]] = types.UID(s.Labels[LabelUID])
	}

	for name, uid := range names {
		if isServed(service, uid) {
			continue
		}
		// The cache may be older than what the seed has.
		live, err := f.shoot.CoreV1().Services(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading Service %s of the shoot: %w", key, err)
		}
		if err == nil && isServed(live, uid) {
			continue
		}
		if name != namePrefix+string(uid) {
			continue // Somebody has changed what tells us whose it is.
		}
		logf.FromContext(ctx).Info("Deleting a load balancer whose Service is gone", "name", name)
		if err := f.remove(ctx, name); err != nil {
			return err
		}
		f.progress.forget(uid)
	}
	return nil
}

func isServed(service *corev1.Service, uid types.UID) bool {
	return service != nil && service.UID == uid && (wantsLoadBalancer(service) || servicehelpers.HasLBFinalizer(service))
}

// sources are what the follower watches.
func (f *follower) sources() []source.Source {
	return []source.Source{
		&source.Informer{Informer: f.cache.services.Informer(), Handler: &handler.EnqueueRequestForObject{}, Predicates: []predicate.Predicate{predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool { return !sameSpec(e.ObjectOld, e.ObjectNew) },
		}}},
		&source.Informer{Informer: f.cache.nodes.Informer(), Handler: handler.EnqueueRequestsFromMapFunc(f.all), Predicates: []predicate.Predicate{predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool { return !sameNode(e.ObjectOld, e.ObjectNew) },
		}}},
		&source.Informer{Informer: f.cache.pods.Informer(), Handler: handler.EnqueueRequestsFromMapFunc(f.all), Predicates: []predicate.Predicate{predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool { return !samePod(e.ObjectOld, e.ObjectNew) },
		}}},
		&source.Informer{Informer: f.cache.endpointSlices, Handler: handler.EnqueueRequestsFromMapFunc(f.ofEndpoints)},
		&source.Informer{Informer: f.cache.seedServices.Informer(), Handler: handler.EnqueueRequestsFromMapFunc(f.ofSeed)},
		&source.Informer{Informer: f.cache.seedSlices, Handler: handler.EnqueueRequestsFromMapFunc(f.ofSeed)},
	}
}

func sameSpec(a, b client.Object) bool {
	older, ok := a.(*corev1.Service)
	newer, ok2 := b.(*corev1.Service)
	return ok && ok2 && older.UID == newer.UID && apiequality.Semantic.DeepEqual(older.Spec, newer.Spec) &&
		apiequality.Semantic.DeepEqual(older.Annotations, newer.Annotations) &&
		apiequality.Semantic.DeepEqual(older.Finalizers, newer.Finalizers) && older.DeletionTimestamp.Equal(newer.DeletionTimestamp)
}

func sameNode(a, b client.Object) bool {
	older, ok := a.(*corev1.Node)
	newer, ok2 := b.(*corev1.Node)
	return ok && ok2 && takesTraffic(older) == takesTraffic(newer) && slices.Equal(older.Status.Addresses, newer.Status.Addresses)
}

func samePod(a, b client.Object) bool {
	older, ok := a.(*corev1.Pod)
	newer, ok2 := b.(*corev1.Pod)
	return ok && ok2 && older.UID == newer.UID && older.Spec.NodeName == newer.Spec.NodeName && hasEnded(older) == hasEnded(newer) &&
		slices.Equal(older.Status.PodIPs, newer.Status.PodIPs) && older.DeletionTimestamp.Equal(newer.DeletionTimestamp)
}

// all returns every Service that is served.
func (f *follower) all(context.Context, client.Object) []reconcile.Request {
	services, err := f.cache.services.Lister().List(labels.Everything())
	if err != nil {
		return nil // A lister has no errors.
	}
	var out []reconcile.Request
	for _, service := range services {
		if wantsLoadBalancer(service) {
			out = append(out, reconcile.Request{NamespacedName: keyOf(service)})
		}
	}
	return out
}

// ofEndpoints returns the Service whose endpoints have changed if it matters on which machine they are.
func (f *follower) ofEndpoints(_ context.Context, slice client.Object) []reconcile.Request {
	key := types.NamespacedName{Namespace: slice.GetNamespace(), Name: slice.GetLabels()[discoveryv1.LabelServiceName]}
	service, err := f.cache.service(key)
	if err != nil || service == nil || !wantsLoadBalancer(service) || service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// ofSeed returns the Service for which something in the seed is.
func (f *follower) ofSeed(_ context.Context, obj client.Object) []reconcile.Request {
	if key, ok := servedKey(obj); ok {
		return []reconcile.Request{{NamespacedName: key}}
	}
	return nil
}
