// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crcluster "sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	gardenerhealthz "github.com/gardener/gardener/pkg/healthz"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	reconcilers "github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// name is the name of the controller in metrics and logs.
	name = "cloud-controller"
	// eventSource is the source of the Events. It is the one of the service controller of k8s.io/cloud-provider.
	eventSource = "service-controller"
	// retryMin and retryMax bound the back-off of a Service whose reconcile failed.
	retryMin, retryMax = 5 * time.Second, 5 * time.Minute
	// concurrentSyncs is how many Services are reconciled at a time.
	concurrentSyncs = 5
	// reconciliationTimeout is far more than the few requests of a Service take.
	reconciliationTimeout = time.Minute
	// finalizer is the one of the service controller of k8s.io/cloud-provider, which served these Services before.
	finalizer = "service.kubernetes.io/load-balancer-cleanup"
	// patience is how long a user hears nothing of a Service that waits for its address, or for its deletion. The controller
	// in pkg/controller/service takes a tenth of a second.
	patience = 5 * time.Second
	// settle is how long a machine's events are gathered: an address may be another pod's soon, so no longer.
	settle = 200 * time.Millisecond
	// retryWaiting is when a Service is reconciled that waits, should no event tell of a change.
	retryWaiting = 10 * time.Minute
	// cacheSyncTimeout is how long the process waits for the caches of the shoot before it ends. After hours without its control plane, its
	// token has expired, and the kubelet mounts the new one soonest for a container that starts again.
	cacheSyncTimeout = 30 * time.Second
	// writeTTL is how long a write is remembered. It is far longer than a cache needs to show it.
	writeTTL = time.Minute
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
	// NodePorts has the Services in the seed made with node ports.
	NodePorts bool
	// NewInformer makes the informers. Default: that of controller-runtime.
	NewInformer func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer
	// Server serves /metrics, /healthz and /readyz.
	Server metricsserver.Options
	// Healthy is what /healthz checks.
	Healthy healthz.Checker
}

// New returns a manager of the shoot that runs cloud-controller. It sends no request before it is started, waits as long as the
// API server of the seed is unreachable, and ends if the caches of the shoot have not synced within 30 seconds.
//
// Needed permissions in the shoot: get, list and watch on Services; patch on their status (which includes finalizers); list
// and watch on Nodes and EndpointSlices; create and patch on Events. In the namespace of the seed: get, list, watch,
// create, patch and delete on Services; list, watch, create, patch and delete on EndpointSlices; list and watch on Pods.
func New(opts Options) (manager.Manager, error) {
	if opts.Namespace == "" {
		return nil, errors.New("the namespace of the machines is not known")
	}
	mgr, err := manager.New(opts.Shoot, manager.Options{Logger: opts.Log, MapperProvider: newMapper, Cache: opts.cache(), Metrics: opts.Server})
	if err != nil {
		return nil, fmt.Errorf("making the manager of the shoot: %w", err)
	}
	seed, err := crcluster.New(opts.Seed, func(o *crcluster.Options) {
		o.Logger, o.MapperProvider, o.Cache = opts.Log, newMapper, opts.cache()
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

func addController(mgr manager.Manager, seed crcluster.Cluster, opts Options) error {
	r := &reconciler{
		shoot:     newCluster(mgr.GetClient(), mgr.GetAPIReader()),
		seed:      newCluster(seed.GetClient(), seed.GetAPIReader()),
		namespace: opts.Namespace,
		oneNode:   opts.OneNode,
		nodePorts: opts.NodePorts,
		// The Events API of events.k8s.io counts events of one reason as one, whatever their messages say.
		events: mgr.GetEventRecorderFor(eventSource), //nolint:staticcheck // See above.
	}
	wakeAll, wakeServed := reconcilers.WakeAfter(settle, r.all), handler.EnqueueRequestsFromMapFunc(ofSeed)
	return builder.ControllerManagedBy(mgr).Named(name).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: concurrentSyncs,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryMin, retryMax),
			ReconciliationTimeout:   reconciliationTimeout,
			CacheSyncTimeout:        cacheSyncTimeout,
			SkipNameValidation:      new(true), // There may be several in the process of a test.
			// The priority queue can hang on shutdown until controller-runtime 0.25.
			UsePriorityQueue: new(false),
		}).
		For(&corev1.Service{}, builder.WithPredicates(r.shoot.forgetDeleted(), on(ofService))).
		Watches(&corev1.Node{}, wakeAll, builder.WithPredicates(on(ofNode))).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(r.ofEndpoints)).
		WatchesRawSource(source.Kind[client.Object](seed.GetCache(), &corev1.Pod{}, wakeAll, on(ofPod))).
		WatchesRawSource(source.Kind[client.Object](seed.GetCache(), &corev1.Service{}, wakeServed, r.seed.forgetDeleted())).
		WatchesRawSource(source.Kind[client.Object](seed.GetCache(), &discoveryv1.EndpointSlice{}, wakeServed, r.seed.forgetDeleted())).
		Complete(r)
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

func (o Options) cache() cache.Options {
	return cache.Options{NewInformer: o.NewInformer, DefaultTransform: strip, DefaultUnsafeDisableDeepCopy: new(true)}
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

// indexServed returns the Service of the shoot, as NAMESPACE/NAME, for which an object in the seed is.
func indexServed(obj client.Object) []string {
	return []string{obj.GetAnnotations()[AnnotationService]}
}

// on is a predicate for all events but updates that change nothing of what is relevant.
func on[T client.Object](relevant func(T) any) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !apiequality.Semantic.DeepEqual(relevant(e.ObjectOld.(T)), relevant(e.ObjectNew.(T)))
	}}
}

// ofService leaves the status out: a second controller that writes it must not keep this one busy.
func ofService(s *corev1.Service) any {
	return []any{s.UID, s.Spec, s.Annotations, s.Finalizers, s.DeletionTimestamp}
}

func ofNode(n *corev1.Node) any { return []any{takesTraffic(n), n.Status.Addresses} }

func ofPod(p *corev1.Pod) any {
	return []any{p.UID, p.Spec.NodeName, machine.HasEnded(p), p.Status.PodIPs, p.DeletionTimestamp}
}

// all returns every Service that is served.
func (r *reconciler) all(ctx context.Context, _ client.Object) (out []reconcile.Request) {
	list := &corev1.ServiceList{}
	if err := r.shoot.List(ctx, list); err != nil {
		return nil // A cache has no errors.
	}
	for i := range list.Items {
		if wantsLoadBalancer(&list.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// ofEndpoints returns the Service whose endpoints have changed if it matters on which machine they are.
func (r *reconciler) ofEndpoints(ctx context.Context, slice client.Object) []reconcile.Request {
	key := types.NamespacedName{Namespace: slice.GetNamespace(), Name: slice.GetLabels()[discoveryv1.LabelServiceName]}
	service, err := reconcilers.Find[corev1.Service](ctx, r.shoot, key)
	if err != nil || service == nil || !wantsLoadBalancer(service) || service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// ofSeed returns the Service of the shoot for which an object in the seed is.
func ofSeed(_ context.Context, obj client.Object) []reconcile.Request {
	namespace, name, err := toolscache.SplitMetaNamespaceKey(obj.GetAnnotations()[AnnotationService])
	if err != nil || namespace == "" || name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

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
	shoot, seed *cluster
	namespace   string
	oneNode     bool
	nodePorts   bool
	events      record.EventRecorder
}

// Reconcile implements reconcile.Reconciler. Its requests are Services of the shoot.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	service, err := reconcilers.Find[corev1.Service](ctx, r.shoot, request.NamespacedName)
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

// ensure serves a Service. One that can't be served as it is keeps what it has in the seed, but no address that is no machine's any more:
// it may be another shoot's by now.
func (r *reconciler) ensure(ctx context.Context, service *corev1.Service) error {
	err := r.serve(ctx, service)
	if err != nil {
		// That is tried again, whatever else is waited for.
		if err := r.prune(ctx, service); err != nil {
			return err
		}
	}
	return err
}

// prune removes addresses that are no machine's from the EndpointSlices of a Service.
func (r *reconciler) prune(ctx context.Context, service *corev1.Service) error {
	backends, err := r.backends(ctx)
	if err != nil {
		return err
	}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		existing, err := reconcilers.Find[discoveryv1.EndpointSlice](ctx, r.seed, r.inSeed(sliceName(nameOf(service.UID), family)))
		if existing != nil && isFor(existing, service) {
			pruned := existing.DeepCopy()
			pruned.Endpoints = slices.DeleteFunc(pruned.Endpoints, func(e discoveryv1.Endpoint) bool {
				return !slices.ContainsFunc(backends, func(b backend) bool { return slices.Equal(e.Addresses, []string{b.addresses[family].String()}) })
			})
			_, err = r.apply(ctx, existing, pruned, service)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// serve brings the seed in line with a Service, and the status of the Service in line with the seed.
func (r *reconciler) serve(ctx context.Context, service *corev1.Service) error {
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

	existing, err := reconcilers.Find[corev1.Service](ctx, r.seed, r.inSeed(nameOf(service.UID)))
	if err != nil {
		return err
	}
	seed, err := desiredService(existing, service, r.namespace, local && r.oneNode && onOneNode(backends), r.nodePorts)
	if err != nil {
		return err
	}
	if err := r.checkBounds(ctx, existing, seed, len(backends)); err != nil {
		return err
	}
	if existing != nil && isFor(existing, service) && mustBeReplaced(existing, seed) {
		return errors.Join(r.delete(ctx, existing), waiting{errors.New("the seed's Service is replaced"), time.Now()})
	}
	changed, err := r.apply(ctx, existing, seed, service)
	if err != nil {
		return err
	}
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

// checkBounds refuses what would be too much for all load balancers of the shoot.
func (r *reconciler) checkBounds(ctx context.Context, existing, desired *corev1.Service, machines int) error {
	served := &corev1.ServiceList{}
	if err := r.seed.List(ctx, served, client.InNamespace(r.namespace), client.HasLabels{LabelUID}); err != nil {
		return err
	}
	total := rules(desired, machines)
	for i := range served.Items {
		if other := &served.Items[i]; other.Name != desired.Name {
			total += rules(other, machines)
		}
	}
	switch {
	case existing == nil && len(served.Items) >= maxServices:
		return waiting{error: fmt.Errorf("the shoot has %d load balancers already, which are all that it may have: delete another one", len(served.Items))}
	case total > maxRules && (existing == nil || rules(desired, machines) > rules(existing, machines)):
		return waiting{error: fmt.Errorf("all load balancers of the shoot may have %d rules, one for each port and source range or machine, and these would be %d: use fewer ports or ranges", maxRules, total)}
	}
	return nil
}

// ensureSlices brings the EndpointSlices in the seed in line with the backends. With local, only those take traffic that run an
// endpoint of the Service.
func (r *reconciler) ensureSlices(ctx context.Context, seed, service *corev1.Service, backends []backend, local bool) error {
	endpoints := &discoveryv1.EndpointSliceList{}
	if local {
		selected := client.MatchingLabels{discoveryv1.LabelServiceName: service.Name}
		if err := r.shoot.List(ctx, endpoints, client.InNamespace(service.Namespace), selected); err != nil {
			return err
		}
	}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		existing, err := reconcilers.Find[discoveryv1.EndpointSlice](ctx, r.seed, r.inSeed(sliceName(seed.Name, family)))
		switch {
		case err != nil:
			return err
		case hasFamily(seed, family):
			served := backends
			if local {
				nodes := localNodes(endpoints.Items, family)
				served = slices.DeleteFunc(slices.Clone(backends), func(b backend) bool { return !nodes[b.node] })
			}
			_, err = r.apply(ctx, existing, desiredSlice(existing, seed, service, family, served), service)
		case existing != nil && isFor(existing, service):
			err = r.delete(ctx, existing)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// apply creates the desired object in the seed or, if that was made of an existing one, changes that, and reports whether
// it did. If existing is as desired, it sends no request.
func (r *reconciler) apply(ctx context.Context, existing, desired client.Object, service *corev1.Service) (bool, error) {
	kind, key, err := reflect.TypeOf(desired).Elem().Name(), client.ObjectKeyFromObject(desired), error(nil)
	switch {
	case desired.GetResourceVersion() == "":
		err = r.seed.Create(ctx, desired)
	case !isFor(existing, service):
		return false, fmt.Errorf("the seed has a %s %s that is none of cloud-controller's: delete it", kind, key)
	case existing.GetDeletionTimestamp() != nil:
		return false, waiting{fmt.Errorf("the seed's %s %s is being deleted, its finalizers %v tell by whom", kind, key, existing.GetFinalizers()), existing.GetDeletionTimestamp().Time}
	case apiequality.Semantic.DeepEqual(existing, desired):
		return false, nil
	default:
		// The patch has only what differs, so that fields of newer API servers stay.
		err = r.seed.Patch(ctx, desired, client.MergeFrom(existing))
	}
	switch {
	case apierrors.IsInvalid(err):
		// The same fields were fine for the shoot, so it is about what the seed does not have, such as a family.
		return false, waiting{error: fmt.Errorf("the seed refuses the %s for %s: %w", kind, client.ObjectKeyFromObject(service), err)}
	case err != nil:
		return false, fmt.Errorf("writing the seed's %s %s: %w", kind, key, err)
	}
	r.seed.wrote(desired)
	return true, nil
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
	r.shoot.wrote(changed)
	return changed, nil
}

// release takes finalizer and status off a Service that is not served any more, once its address is free.
func (r *reconciler) release(ctx context.Context, service *corev1.Service) error {
	// The cache may not show a new Service yet, and sweep leaves one alone whose label was taken off.
	key := r.inSeed(nameOf(service.UID))
	seed, err := reconcilers.Find[corev1.Service](ctx, r.seed.live, key)
	switch {
	case err != nil:
		return fmt.Errorf("reading the seed's Service %s: %w", key, err)
	case seed != nil && isFor(seed, service):
		since := time.Now()
		if seed.DeletionTimestamp != nil {
			since = seed.DeletionTimestamp.Time
		} else if err := r.delete(ctx, seed); err != nil {
			return err
		}
		return waiting{fmt.Errorf("the seed's Service %s is still being deleted, its finalizers %v tell by whom", key, seed.Finalizers), since}
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
	var found []client.Object
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}} {
		if err := r.seed.List(ctx, list, selected...); err != nil {
			return false, err
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			found = append(found, item.(client.Object))
			return nil
		})
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
		} else if live, err := reconcilers.Find[corev1.Service](ctx, r.shoot.live, key); err != nil {
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
		return fmt.Errorf("deleting %s in the seed: %w", client.ObjectKeyFromObject(obj), err)
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
		pod, err := reconcilers.Find[corev1.Pod](ctx, r.seed, r.inSeed(node.Name))
		if err != nil {
			return nil, err
		}
		if b, ok := backendOf(node, pod); ok {
			out = append(out, b)
		}
	}
	return out, nil
}

func (r *reconciler) inSeed(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.namespace, Name: name}
}

// cluster reads from the cache of a cluster and writes to its API server. Where the cache does not show an own write yet, Get
// returns what was written: the events of a new Service come so fast that a reconcile would otherwise repeat the writes of
// the one before.
type cluster struct {
	client.Client
	// live reads from the API server.
	live   client.Reader
	writes *utilcache.Expiring
}

// written identifies an object that was written.
type written struct {
	kind reflect.Type
	key  types.NamespacedName
}

func newCluster(cached client.Client, live client.Reader) *cluster {
	return &cluster{Client: cached, live: live, writes: utilcache.NewExpiring()}
}

// Get implements client.Reader. What it returns must not be changed.
func (c *cluster) Get(ctx context.Context, key types.NamespacedName, obj client.Object, opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, obj, opts...)
	own, ok := c.writes.Get(written{reflect.TypeOf(obj), key})
	if client.IgnoreNotFound(err) != nil || !ok {
		return err
	}
	if err == nil {
		order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), own.(client.Object).GetResourceVersion())
		if err != nil || order >= 0 {
			return nil
		}
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(own).Elem())
	return nil
}

// wrote remembers an object as the API server has answered.
func (c *cluster) wrote(obj client.Object) {
	c.writes.Set(written{reflect.TypeOf(obj), client.ObjectKeyFromObject(obj)}, obj, writeTTL)
}

// forgetDeleted is a predicate for all events. It forgets objects that the cache has shown and does not any more.
func (c *cluster) forgetDeleted() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		key := written{reflect.TypeOf(e.Object), client.ObjectKeyFromObject(e.Object)}
		if own, ok := c.writes.Get(key); ok && own.(client.Object).GetUID() == e.Object.GetUID() {
			c.writes.Delete(key)
		}
		return true
	}}
}
