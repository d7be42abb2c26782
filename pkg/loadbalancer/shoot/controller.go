// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	gardenerhealthz "github.com/gardener/gardener/pkg/healthz"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

const (
	// name is the name of the controller in metrics and logs.
	name = "cloud-controller"
	// eventSource is the source of the Events. It is the one of the service controller of k8s.io/cloud-provider.
	eventSource = "service-controller"
	// retryMin and retryMax bound the back-off of a Service whose reconcile failed.
	retryMin, retryMax = 5 * time.Second, 5 * time.Minute
	// reconciliationTimeout is far more than the few requests of a Service take.
	reconciliationTimeout = time.Minute
	// byService is the index of objects by NAMESPACE/NAME of the Service of the shoot for which they are.
	byService = "shootService"
)

// Options configure cloud-controller.
type Options struct {
	// Log is the root of all logs.
	Log logr.Logger
	// Shoot is the cluster whose Services are served, Seed the one in which its machines are.
	Shoot, Seed *rest.Config
	// Namespace is the namespace of the machines in the seed.
	Namespace string
	// OneNode is true if the seed has exactly one node. Only then can a Service with externalTrafficPolicy Local keep the
	// addresses of its clients: see docs/usage/loadbalancers.md.
	OneNode bool
	// ConcurrentSyncs is how many Services are reconciled in parallel. Default 1.
	ConcurrentSyncs int
	// Server serves /metrics, /healthz and /readyz.
	Server metricsserver.Options
	// Healthy is what /healthz checks.
	Healthy healthz.Checker
}

// New returns a manager of the shoot that runs cloud-controller. It sends no request before it is started, and waits as
// long as an API server is unreachable.
//
// Needed permissions in the shoot: get, list and watch on Services; patch on their status (which includes finalizers); list
// and watch on Nodes and EndpointSlices; create and patch on Events. In the namespace of the seed: get, list, watch,
// create, patch and delete on Services; list, watch, create, patch and delete on EndpointSlices; list and watch on Pods.
func New(opts Options) (manager.Manager, error) {
	if opts.Namespace == "" {
		return nil, errors.New("the namespace of the machines is not known")
	}
	mgr, err := manager.New(opts.Shoot, manager.Options{Logger: opts.Log, MapperProvider: newMapper, Cache: newCache(), Metrics: opts.Server})
	if err != nil {
		return nil, fmt.Errorf("making the manager of the shoot: %w", err)
	}
	seed, err := cluster.New(opts.Seed, func(o *cluster.Options) {
		o.Logger, o.MapperProvider, o.Cache = opts.Log, newMapper, newCache()
		o.Cache.DefaultNamespaces = map[string]cache.Config{opts.Namespace: {}}
		o.Cache.ByObject = map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: labels.SelectorFromSet(machine.Selector())}}
	})
	if err != nil {
		return nil, fmt.Errorf("making the clients of the seed: %w", err)
	}
	ready := func(r *http.Request) error {
		return errors.Join(gardenerhealthz.NewCacheSyncHealthz(mgr.GetCache())(r), gardenerhealthz.NewCacheSyncHealthz(seed.GetCache())(r))
	}
	return mgr, errors.Join(
		mgr.Add(seed),
		mgr.AddMetricsServerExtraHandler("/healthz", healthz.CheckHandler{Checker: opts.Healthy}),
		mgr.AddMetricsServerExtraHandler("/readyz", healthz.CheckHandler{Checker: ready}),
		seed.GetCache().IndexField(context.Background(), &corev1.Service{}, byService, indexServed),
		seed.GetCache().IndexField(context.Background(), &discoveryv1.EndpointSlice{}, byService, indexServed),
		addController(mgr, seed, opts),
	)
}

func addController(mgr manager.Manager, seed cluster.Cluster, opts Options) error {
	// The Events API of events.k8s.io counts events of one reason as one, whatever their messages say.
	recorder := mgr.GetEventRecorderFor(eventSource) //nolint:staticcheck // See above.
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), seed.GetClient(), seed.GetAPIReader(), opts.Namespace, opts.OneNode, recorder)
	c, err := controller.New(name, mgr, controller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: opts.ConcurrentSyncs,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryMin, retryMax),
		ReconciliationTimeout:   reconciliationTimeout,
		SkipNameValidation:      new(true), // There may be several in the process of a test.
		// The priority queue can hang on shutdown until controller-runtime 0.25.
		UsePriorityQueue: new(false),
	})
	if err != nil {
		return err
	}
	for _, src := range []source.Source{
		source.Kind(mgr.GetCache(), &corev1.Service{}, &handler.TypedEnqueueRequestForObject[*corev1.Service]{}, r.services.forgetDeleted(), on(ofService)),
		source.Kind(mgr.GetCache(), &corev1.Node{}, handler.TypedEnqueueRequestsFromMapFunc(all[*corev1.Node](r)), on(ofNode)),
		source.Kind(mgr.GetCache(), &discoveryv1.EndpointSlice{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofEndpoints)),
		source.Kind(seed.GetCache(), &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(all[*corev1.Pod](r)), on(ofPod)),
		source.Kind(seed.GetCache(), &corev1.Service{}, handler.TypedEnqueueRequestsFromMapFunc(ofSeed[*corev1.Service]), r.seedServices.forgetDeleted()),
		source.Kind(seed.GetCache(), &discoveryv1.EndpointSlice{}, handler.TypedEnqueueRequestsFromMapFunc(ofSeed[*discoveryv1.EndpointSlice]), r.seedSlices.forgetDeleted()),
	} {
		if err := c.Watch(src); err != nil {
			return err
		}
	}
	return nil
}

// newMapper returns a RESTMapper of the kinds that are used, so that New needs no discovery.
func newMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	for _, kind := range []string{"Pod", "PodList", "Service", "ServiceList"} { // A cache looks at the scope of lists, too.
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"EndpointSlice", "EndpointSliceList"} {
		mapper.Add(discoveryv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	return mapper, nil
}

func newCache() cache.Options {
	return cache.Options{DefaultTransform: strip, DefaultUnsafeDisableDeepCopy: new(true)}
}

// strip drops what takes memory and is not read. Services and EndpointSlices stay whole, since they are the base of patches.
func strip(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Node:
		o.ManagedFields, o.Annotations = nil, nil
		o.Status.Images, o.Status.VolumesInUse, o.Status.VolumesAttached = nil, nil, nil
	case *corev1.Pod:
		o.ManagedFields, o.Annotations = nil, nil
		o.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName}
		o.Status = corev1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs}
	case client.Object:
		o.SetManagedFields(nil)
	}
	return obj, nil
}

func indexServed(obj client.Object) []string {
	if key, ok := servedKey(obj); ok {
		return []string{key.String()}
	}
	return nil
}

// on is a predicate for all events but updates that change nothing of what is relevant.
func on[T client.Object](relevant func(T) any) predicate.TypedPredicate[T] {
	return predicate.TypedFuncs[T]{UpdateFunc: func(e event.TypedUpdateEvent[T]) bool {
		return !apiequality.Semantic.DeepEqual(relevant(e.ObjectOld), relevant(e.ObjectNew))
	}}
}

// ofService leaves the status out: a second controller that writes it must not keep this one busy.
func ofService(s *corev1.Service) any {
	return []any{s.UID, s.Spec, s.Annotations, s.Finalizers, s.DeletionTimestamp}
}

func ofNode(n *corev1.Node) any { return []any{takesTraffic(n), n.Status.Addresses} }

func ofPod(p *corev1.Pod) any {
	return []any{p.UID, p.Spec.NodeName, hasEnded(p), p.Status.PodIPs, p.DeletionTimestamp}
}

// all returns every Service that is served.
func all[T client.Object](r *reconciler) handler.TypedMapFunc[T, reconcile.Request] {
	return func(ctx context.Context, _ T) (out []reconcile.Request) {
		list := &corev1.ServiceList{}
		if err := r.shoot.List(ctx, list); err != nil {
			return nil // A cache has no errors.
		}
		for i := range list.Items {
			if wantsLoadBalancer(&list.Items[i]) {
				out = append(out, reconcile.Request{NamespacedName: keyOf(&list.Items[i])})
			}
		}
		return out
	}
}

// ofEndpoints returns the Service whose endpoints have changed if it matters on which machine they are.
func (r *reconciler) ofEndpoints(ctx context.Context, slice *discoveryv1.EndpointSlice) []reconcile.Request {
	key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	service, err := r.services.get(ctx, key)
	if err != nil || service == nil || !wantsLoadBalancer(service) || service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// ofSeed returns the Service of the shoot for which an object in the seed is.
func ofSeed[T client.Object](_ context.Context, obj T) []reconcile.Request {
	if key, ok := servedKey(obj); ok {
		return []reconcile.Request{{NamespacedName: key}}
	}
	return nil
}
