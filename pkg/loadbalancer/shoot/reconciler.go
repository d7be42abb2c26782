// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// finalizer is the one of the service controller of k8s.io/cloud-provider, which served these Services before.
	finalizer = "service.kubernetes.io/load-balancer-cleanup"
	// patience is how long a user hears nothing of a Service that waits for its address, or for its deletion. The controller
	// in pkg/controller/service takes a tenth of a second.
	patience = 5 * time.Second
	// retryWaiting is when a Service is reconciled that waits, should no event tell of a change.
	retryWaiting = 10 * time.Minute
)

// waiting is an error that only a change in the shoot or the seed ends, of which an event tells. Without since, its user
// hears of it at once.
type waiting struct {
	error
	since time.Time
}

// Unwrap returns the reason.
func (w waiting) Unwrap() error { return w.error }

// reconciler serves the Services of type LoadBalancer of a shoot.
type reconciler struct {
	// shoot and seed read from caches, shootLive and seedLive from the API servers.
	shoot, seed         client.Client
	shootLive, seedLive client.Reader
	namespace           string
	oneNode             bool
	events              record.EventRecorder

	services     *store[corev1.Service, *corev1.Service]
	seedServices *store[corev1.Service, *corev1.Service]
	seedSlices   *store[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice]
}

func newReconciler(shoot client.Client, shootLive client.Reader, seed client.Client, seedLive client.Reader, namespace string, oneNode bool, events record.EventRecorder) *reconciler {
	return &reconciler{
		shoot: shoot, shootLive: shootLive, seed: seed, seedLive: seedLive, namespace: namespace, oneNode: oneNode, events: events,
		services:     newStore[corev1.Service](shoot, "Service"),
		seedServices: newStore[corev1.Service](seed, "Service"),
		seedSlices:   newStore[discoveryv1.EndpointSlice](seed, "EndpointSlice"),
	}
}

// Reconcile implements reconcile.Reconciler. Its requests are Services of the shoot.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	service, err := r.services.get(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	owned, err := r.sweep(ctx, request.NamespacedName, service)
	switch {
	case err != nil || service == nil:
		return reconcile.Result{}, err
	case wantsLoadBalancer(service):
		err = r.ensure(ctx, service)
	case controllerutil.ContainsFinalizer(service, finalizer) && (service.Spec.LoadBalancerClass == nil || owned):
		// Controllers of other classes use the same finalizer.
		err = r.release(ctx, service)
	}

	var wait waiting
	isWaiting := errors.As(err, &wait)
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return reconcile.Result{}, err
	case isWaiting && time.Since(wait.since) < patience:
		return reconcile.Result{RequeueAfter: patience}, nil
	}
	r.events.Eventf(service, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer: %v", err)
	if isWaiting {
		logf.FromContext(ctx).Info("Waiting for a change", "reason", err.Error())
		return reconcile.Result{RequeueAfter: retryWaiting}, nil
	}
	return reconcile.Result{}, err
}

// ensure brings the seed in line with a Service, and the status of the Service in line with the seed.
func (r *reconciler) ensure(ctx context.Context, service *corev1.Service) error {
	// With the finalizer first, nothing is left in the seed whatever happens.
	service, err := r.patch(ctx, service, func(s *corev1.Service) { controllerutil.AddFinalizer(s, finalizer) })
	if err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	backends, err := r.backends(ctx)
	if err != nil {
		return err
	}
	local := service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal

	existing, err := r.seedServices.get(ctx, r.inSeed(namePrefix+string(service.UID)))
	if err != nil {
		return err
	}
	desired, err := desiredService(existing, service, r.namespace, local && r.oneNode && onOneNode(backends))
	if err != nil {
		return err
	}
	if existing != nil && isFor(existing, service) && mustBeReplaced(existing, desired) {
		return errors.Join(r.delete(ctx, existing), waiting{errors.New("the seed's Service is replaced"), time.Now()})
	}
	seed, err := apply(ctx, r, r.seedServices, existing, desired, service)
	if err != nil {
		return err
	}
	changed := seed != existing
	if changed {
		r.events.Event(service, corev1.EventTypeNormal, "EnsuringLoadBalancer", "Ensuring load balancer")
		if len(backends) == 0 {
			r.events.Event(service, corev1.EventTypeWarning, "UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")
		}
	}
	if err := r.ensureSlices(ctx, seed, service, backends, local); err != nil {
		return err
	}

	status, wait := statusFor(seed, service), waiting{}
	if status == nil {
		status, wait = &corev1.LoadBalancerStatus{}, noAddress(seed)
		if time.Since(wait.since) < patience {
			return wait
		}
		// Without an address, the former ones may be another's by now.
	}
	patched, err := r.patch(ctx, service, func(s *corev1.Service) { s.Status.LoadBalancer = *status })
	switch {
	case err != nil:
		return fmt.Errorf("writing the addresses into the status: %w", err)
	case wait.error != nil:
		return wait
	case changed || patched != service:
		r.events.Event(service, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	}
	return nil
}

func (r *reconciler) ensureSlices(ctx context.Context, seed, service *corev1.Service, backends []backend, local bool) error {
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		existing, err := r.seedSlices.get(ctx, r.inSeed(sliceName(seed.Name, family)))
		switch {
		case err != nil:
			return err
		case !hasFamily(seed, family) && existing != nil && isFor(existing, service):
			if err := r.delete(ctx, existing); err != nil {
				return err
			}
		case hasFamily(seed, family):
			served := backends
			if local {
				if served, err = r.withLocalEndpoints(ctx, service, family, backends); err != nil {
					return err
				}
			}
			if _, err := apply(ctx, r, r.seedSlices, existing, desiredSlice(existing, seed, service, family, served), service); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply creates or changes an object in the seed and returns it. If it is as desired, it returns existing and sends no
// request.
func apply[T any, P object[T]](ctx context.Context, r *reconciler, store *store[T, P], existing, desired P, service *corev1.Service) (P, error) {
	key, err := keyOf(desired), error(nil)
	switch {
	case existing == nil:
		err = r.seed.Create(ctx, desired)
	case !isFor(existing, service):
		return nil, fmt.Errorf("the seed has a %s %s that is none of cloud-controller's: delete it", store.kind, key)
	case existing.GetDeletionTimestamp() != nil:
		return nil, waiting{fmt.Errorf("the seed's %s %s is being deleted, its finalizers %v tell by whom", store.kind, key, existing.GetFinalizers()), existing.GetDeletionTimestamp().Time}
	case apiequality.Semantic.DeepEqual(existing, desired):
		return existing, nil
	default:
		// The patch has only what differs, so that fields of newer API servers stay.
		err = r.seed.Patch(ctx, desired, client.MergeFrom(existing))
	}
	switch {
	case apierrors.IsInvalid(err):
		// The same fields were fine for the shoot, so it is about what the seed does not have, such as a family.
		return nil, waiting{error: fmt.Errorf("the seed refuses the %s for %s: %w", store.kind, keyOf(service), err)}
	case err != nil:
		return nil, fmt.Errorf("writing the seed's %s %s: %w", store.kind, key, err)
	}
	store.wrote(desired)
	return desired, nil
}

// patch changes the finalizers or the status of a Service of the shoot. If nothing changes, it returns the Service itself.
func (r *reconciler) patch(ctx context.Context, service *corev1.Service, change func(*corev1.Service)) (*corev1.Service, error) {
	changed := service.DeepCopy()
	change(changed)
	if apiequality.Semantic.DeepEqual(service, changed) {
		return service, nil
	}
	// A strategic patch leaves other finalizers alone.
	if err := r.shoot.Status().Patch(ctx, changed, client.StrategicMergeFrom(service)); err != nil {
		return nil, err
	}
	change(changed) // The answer to the patch that deletes a Service has its finalizer still.
	r.services.wrote(changed)
	return changed, nil
}

// release takes finalizer and status off a Service that is not served any more, once its address is free.
func (r *reconciler) release(ctx context.Context, service *corev1.Service) error {
	if name, err := nameOf(service); err == nil { // Otherwise, there has never been any.
		// The cache may not show a new Service yet, and sweep leaves one alone whose label was taken off.
		seed, err := get[corev1.Service](ctx, r.seedLive, r.inSeed(name))
		switch {
		case err != nil:
			return fmt.Errorf("reading the seed's Service %s: %w", name, err)
		case seed != nil && isFor(seed, service):
			since := time.Now()
			if seed.DeletionTimestamp != nil {
				since = seed.DeletionTimestamp.Time
			} else if err := r.delete(ctx, seed); err != nil {
				return err
			}
			return waiting{fmt.Errorf("the seed's Service %s is still being deleted, its finalizers %v tell by whom", r.inSeed(name), seed.Finalizers), since}
		}
	}
	if _, err := r.patch(ctx, service, func(s *corev1.Service) {
		controllerutil.RemoveFinalizer(s, finalizer)
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer: %w", err)
	}
	r.events.Event(service, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer")
	return nil
}

// sweep deletes what the seed has for a name in the shoot, except for a Service that wants it. There may have been several
// Services of that name, such as one whose finalizer was removed while nobody was there to see it. It reports whether the
// seed has something for the present one.
func (r *reconciler) sweep(ctx context.Context, key types.NamespacedName, service *corev1.Service) (bool, error) {
	selected := []client.ListOption{client.InNamespace(r.namespace), client.MatchingFields{byService: key.String()}}
	services, endpointSlices := &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
	if err := errors.Join(r.seed.List(ctx, services, selected...), r.seed.List(ctx, endpointSlices, selected...)); err != nil {
		return false, err
	}
	var found []client.Object
	for i := range services.Items {
		found = append(found, &services.Items[i])
	}
	for i := range endpointSlices.Items {
		found = append(found, &endpointSlices.Items[i])
	}

	owned, deleted := false, false
	for _, obj := range found {
		uid := types.UID(obj.GetLabels()[LabelUID])
		if !isNameFor(obj.GetName(), uid) {
			continue // Somebody has changed what tells for whom it is.
		}
		if service != nil && service.UID == uid {
			owned = true
			if wantsLoadBalancer(service) {
				continue
			}
		} else if live, err := get[corev1.Service](ctx, r.shootLive, key); err != nil {
			return false, fmt.Errorf("reading Service %s of the shoot: %w", key, err)
		} else if live != nil && live.UID == uid {
			continue // The cache of the shoot is behind.
		}
		if obj.GetDeletionTimestamp() != nil {
			continue
		}
		deleted = true
		if err := r.delete(ctx, obj); err != nil {
			return false, err
		}
	}
	if owned && deleted {
		r.events.Event(service, corev1.EventTypeNormal, "DeletingLoadBalancer", "Deleting load balancer")
	}
	return owned, nil
}

// delete deletes the object that was read, not another one of its name.
func (r *reconciler) delete(ctx context.Context, obj client.Object) error {
	err := r.seed.Delete(ctx, obj, client.Preconditions{UID: new(obj.GetUID())})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting %s in the seed: %w", keyOf(obj), err)
	}
	return nil
}

// backends returns all machines that take traffic.
func (r *reconciler) backends(ctx context.Context) ([]backend, error) {
	nodes := &corev1.NodeList{}
	if err := r.shoot.List(ctx, nodes); err != nil {
		return nil, err
	}
	var out []backend
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if !takesTraffic(node) {
			continue
		}
		// A machine's Node has the name of its pod.
		pod, err := get[corev1.Pod](ctx, r.seed, r.inSeed(node.Name))
		if err != nil {
			return nil, err
		}
		if b, ok := backendOf(node, pod); ok {
			out = append(out, b)
		}
	}
	return out, nil
}

// withLocalEndpoints returns those machines that run an endpoint of a Service.
func (r *reconciler) withLocalEndpoints(ctx context.Context, service *corev1.Service, family discoveryv1.AddressType, backends []backend) ([]backend, error) {
	list := &discoveryv1.EndpointSliceList{}
	if err := r.shoot.List(ctx, list, client.InNamespace(service.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service.Name}); err != nil {
		return nil, err
	}
	nodes := localNodes(list.Items, family)
	return slices.DeleteFunc(slices.Clone(backends), func(b backend) bool { return !nodes[b.node] }), nil
}

func (r *reconciler) inSeed(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.namespace, Name: name}
}

// writeTTL is how long a write is remembered. It is far longer than a cache needs to show it.
const writeTTL = time.Minute

// object is the pointer to an API type.
type object[T any] interface {
	*T
	client.Object
}

// store reads objects of one kind from a cache. Where the cache does not show an own write yet, it returns what was written:
// the events of a new Service come so fast that a reconcile would otherwise repeat the writes of the one before.
type store[T any, P object[T]] struct {
	cache  client.Reader
	kind   string
	writes *utilcache.Expiring
}

func newStore[T any, P object[T]](cache client.Reader, kind string) *store[T, P] {
	return &store[T, P]{cache: cache, kind: kind, writes: utilcache.NewExpiring()}
}

// get returns an object, nil if there is none. It must not be changed.
func (s *store[T, P]) get(ctx context.Context, key types.NamespacedName) (P, error) {
	cached, err := get[T, P](ctx, s.cache, key)
	value, ok := s.writes.Get(key)
	if err != nil || !ok {
		return cached, err
	}
	own := value.(P)
	if cached != nil {
		if order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), own.GetResourceVersion()); err != nil || order >= 0 {
			return cached, nil
		}
	}
	return own, nil
}

// wrote remembers an object as the API server has answered.
func (s *store[T, P]) wrote(obj P) { s.writes.Set(keyOf(obj), obj, writeTTL) }

// forgetDeleted is a predicate for all events. It has the store forget objects that the cache has shown and does not any more.
func (s *store[T, P]) forgetDeleted() predicate.TypedPredicate[P] {
	return predicate.TypedFuncs[P]{DeleteFunc: func(e event.TypedDeleteEvent[P]) bool {
		if own, ok := s.writes.Get(keyOf(e.Object)); ok && own.(P).GetUID() == e.Object.GetUID() {
			s.writes.Delete(keyOf(e.Object))
		}
		return true
	}}
}

// get reads an object. It returns nil if there is none.
func get[T any, P object[T]](ctx context.Context, reader client.Reader, key types.NamespacedName) (P, error) {
	obj := P(new(T))
	if err := reader.Get(ctx, key, obj); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return obj, nil
}
