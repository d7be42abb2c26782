// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

const (
	// ControllerName is the name of the controller.
	ControllerName = "service"
	// reasonAssigned is the reason of the status True.
	reasonAssigned = "Assigned"
	// actionAssign is the action that events name.
	actionAssign = "Assign"

	// ReasonNodePortConflict means that a fixed node port is taken by something that cannot be moved.
	ReasonNodePortConflict = "NodePortConflict"
	// ReasonNodePortRange means that a fixed node port is not in the range of the API server.
	ReasonNodePortRange = "NodePortOutOfRange"
	// reasonMoved is the reason of the events of both Services if one gave a node port to the other.
	reasonMoved = "NodePortMoved"
	actionMove  = "MoveNodePort"

	// reconciliationTimeout is far more than the few requests of a Service take.
	reconciliationTimeout = time.Minute
	// retryMistake is how long a mistake in a Service is left alone. Correcting it makes an event anyway.
	retryMistake = 10 * time.Minute

	// The API server tells why it refuses a node port by these words only: see its package
	// pkg/registry/core/service/portallocator.
	messageAllocated = "provided port is already allocated"
	messageRange     = "provided port is not in the valid range"

	// moveAttempts is how many other node ports are tried for a Service that has to give one up.
	moveAttempts = 16
	// claimAttempts is how often a node port is taken from other Services in one reconcile.
	claimAttempts = 3
	maxPort       = 65535
)

// Options are what the controller needs.
type Options struct {
	// Controller are the options of the controller itself, such as its concurrency.
	Controller controller.Options
	// LoadBalancers are the addresses and node ports, with their defaults. The controller keeps none of it.
	LoadBalancers configv1alpha1.LoadBalancersConfiguration
	// Namespace is that of the instance, and CoreDNSNamespace that of the Service coredns-host.
	Namespace, CoreDNSNamespace string
	// Garden is set in the garden instance: it serves only the Services that a garden needs, while no seed instance does.
	Garden bool
}

// AddToManager adds the controller for Services of type LoadBalancer. The manager's cache has to have those; it need not
// have others, and of each only what coredns.CacheOptions leaves. Its client is to read its own writes (instance.NewClient): else
// the events of what was written last may make requests that are refused.
//
// Needed permissions: get, list, watch, patch on Services, patch on their status; create and patch on events of
// events.k8s.io. In a garden: get, list, watch on Namespaces as well, and patch only on the Services that a garden needs.
func AddToManager(mgr manager.Manager, opts Options) error {
	allocator, err := loadbalancer.NewAllocator(opts.LoadBalancers)
	if err != nil {
		return fmt.Errorf("adding the Service controller: %w", err)
	}
	opts.Controller.ReconciliationTimeout = reconciliationTimeout
	r := &reconciler{
		live:      mgr.GetAPIReader(),
		client:    mgr.GetClient(),
		events:    mgr.GetEventRecorder(ControllerName + "-controller"),
		allocator: allocator,
		namespace: opts.Namespace,
		garden:    opts.Garden,
		shared:    sets.Set[types.NamespacedName]{},
	}
	for _, service := range configv1alpha1.GardenServices(opts.CoreDNSNamespace) {
		r.shared.Insert(types.NamespacedName{Namespace: service.Namespace, Name: service.Name})
	}
	controllers := builder.ControllerManagedBy(mgr).Named(ControllerName).WithOptions(opts.Controller).For(&corev1.Service{})
	if opts.Garden {
		controllers.WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.allShared), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		}))
	}
	return controllers.
		// The controller calls it before the first reconcile.
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.wake = func(services []types.NamespacedName) {
				for _, service := range services {
					queue.Add(reconcile.Request{NamespacedName: service})
				}
			}
			return nil
		})).
		Complete(r)
}

type reconciler struct {
	// live has all Services, client reads all those of type LoadBalancer from the cache.
	live      client.Reader
	client    client.Client
	events    events.EventRecorder
	allocator *loadbalancer.Allocator
	// wake puts Services into the queue.
	wake func([]types.NamespacedName)
	// namespace is that of the instance, which is the garden's or a seed's.
	namespace string
	garden    bool
	// shared are the Services that either instance may serve: those that a garden needs.
	shared sets.Set[types.NamespacedName]

	restoring sync.Mutex
	restored  bool
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if err := r.restore(ctx); err != nil {
		return reconcile.Result{}, err
	}

	service := &corev1.Service{}
	if err := r.client.Get(ctx, request.NamespacedName, service); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, err
		}
		r.wake(r.allocator.Release(request.NamespacedName))
		return reconcile.Result{}, nil
	}

	switch {
	case service.DeletionTimestamp != nil:
		// It keeps its address until it is gone.
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
	service, isClaimed, err := r.claim(ctx, service)
	if err != nil || !isClaimed {
		return reconcile.Result{}, err
	}
	service, portProblem, portErr := r.fixNodePorts(ctx, service)
	if isOutdated(portErr) {
		return reconcile.Result{}, portErr
	}

	ingress, problem := r.allocator.Assign(service)
	problem = join(problem, portProblem)
	// With an error that is no problem yet, the next attempt finds out whether it has its node ports.
	if err := r.writeStatus(ctx, service, ingress, problem, portErr == nil || problem != nil); err != nil {
		return reconcile.Result{}, errors.Join(err, portErr)
	}
	r.wake(r.allocator.Keep(client.ObjectKeyFromObject(service), loadbalancer.AddressesOf(ingress)...))

	if portErr == nil && portProblem != nil {
		// Nobody tells when another Service of whatever type gives a node port back.
		return reconcile.Result{RequeueAfter: retryMistake}, nil
	}
	return reconcile.Result{}, portErr
}

// allShared are requests for the Services that the garden instance takes over if the Namespace that is gone was a seed instance's.
func (r *reconciler) allShared(context.Context, client.Object) []reconcile.Request {
	var out []reconcile.Request
	for service := range r.shared {
		out = append(out, reconcile.Request{NamespacedName: service})
	}
	return out
}

// claim reports whether a Service is this instance's to write, and returns it as it is then. A shared one names its instance. The
// seed instance takes it over whenever it sees it.
func (r *reconciler) claim(ctx context.Context, service *corev1.Service) (*corev1.Service, bool, error) {
	if !r.shared.Has(client.ObjectKeyFromObject(service)) {
		return service, !r.garden, nil
	}
	before := service.Annotations[loadbalancer.AnnotationInstance]
	if before == r.namespace {
		return service, true, nil
	}
	if r.garden {
		isFree, err := r.isFree(ctx, service)
		if err != nil || !isFree {
			return service, false, err
		}
	}

	claimed := service.DeepCopy()
	metav1.SetMetaDataAnnotation(&claimed.ObjectMeta, loadbalancer.AnnotationInstance, r.namespace)
	if err := r.client.Patch(ctx, claimed, client.MergeFromWithOptions(service, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, false, fmt.Errorf("taking the Service over: %w", err)
	}
	logf.FromContext(ctx).Info("Serving this Service from now on", "instanceBefore", before)
	return claimed, true, nil
}

// isFree reports whether the garden instance may take a shared Service over. It may not as long as one of them names an instance
// whose Namespace exists: in a Namespace that is being deleted a pod may still write. That one takes new ones, too, at once: the API
// server loses a node port for minutes if the write that allocates it meets another one. Nor may the garden instance take a Service
// to which somebody who names nobody has given another address.
func (r *reconciler) isFree(ctx context.Context, service *corev1.Service) (bool, error) {
	for key := range r.shared {
		other := &corev1.Service{}
		if err := r.client.Get(ctx, key, other); client.IgnoreNotFound(err) != nil {
			return false, err
		}
		instance := other.Annotations[loadbalancer.AnnotationInstance]
		if instance == "" || instance == r.namespace {
			continue
		}
		err := r.live.Get(ctx, client.ObjectKey{Name: instance}, &corev1.Namespace{})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading Namespace %s, whose instance serves Service %s: %w", instance, key, err)
		}
		if err == nil {
			return false, nil
		}
	}
	ours, _ := r.allocator.Assign(service)
	ingress := service.Status.LoadBalancer.Ingress
	return service.Annotations[loadbalancer.AnnotationInstance] != "" || len(ingress) == 0 || apiequality.Semantic.DeepEqual(ingress, ours), nil
}

// isOutdated reports whether a patch was for a version of our Service that is not the current one any more. The event of the
// current version makes another reconcile.
func isOutdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// writeStatus writes addresses, and the condition if it is known, if they differ from those of the Service, and an Event for a
// problem that is new.
func (r *reconciler) writeStatus(ctx context.Context, service *corev1.Service, ingress []corev1.LoadBalancerIngress, problem *loadbalancer.Problem, isKnown bool) error {
	condition := metav1.Condition{Type: loadbalancer.ConditionReady, Status: metav1.ConditionTrue, Reason: reasonAssigned, Message: "It has all addresses and fixed node ports"}
	if problem != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, problem.Reason, problem.Message
	}

	changed := service.DeepCopy()
	isNew := isKnown && meta.SetStatusCondition(&changed.Status.Conditions, condition)
	changed.Status.LoadBalancer.Ingress = ingress
	if !isNew && apiequality.Semantic.DeepEqual(service.Status.LoadBalancer.Ingress, ingress) {
		return nil
	}

	if err := r.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(service, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	if isNew && problem != nil {
		r.events.Eventf(service, nil, corev1.EventTypeWarning, problem.Reason, actionAssign, "%s", problem.Message)
	}
	return nil
}

// restore reads before the first reconcile which addresses are in use. It asks the API server, as the cache may not know
// yet what another instance wrote that was the leader a moment ago.
func (r *reconciler) restore(ctx context.Context) error {
	r.restoring.Lock()
	defer r.restoring.Unlock()
	if r.restored {
		return nil
	}

	services, err := r.list(ctx, corev1.ServiceTypeLoadBalancer)
	if err != nil {
		return fmt.Errorf("reading which addresses are in use: %w", err)
	}
	r.allocator.Restore(services)
	r.restored = true
	return nil
}

// list returns all Services of these types as the API server has them.
func (r *reconciler) list(ctx context.Context, serviceTypes ...corev1.ServiceType) ([]corev1.Service, error) {
	var out []corev1.Service
	for _, serviceType := range serviceTypes {
		list := &corev1.ServiceList{}
		if err := r.live.List(ctx, list, client.MatchingFields{"spec.type": string(serviceType)}); err != nil {
			return nil, fmt.Errorf("listing Services of type %s: %w", serviceType, err)
		}
		out = append(out, list.Items...)
	}
	return out, nil
}

// join makes one problem of two.
func join(a, b *loadbalancer.Problem) *loadbalancer.Problem {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return &loadbalancer.Problem{Reason: a.Reason, Message: a.Message + "; " + b.Message}
}

// fixNodePorts sets the node ports that a well-known Service is to have, and returns the Service as it is after that.
// Ports that the Service does not have are no concern. With an error or a problem, as many as can be are set.
func (r *reconciler) fixNodePorts(ctx context.Context, service *corev1.Service) (*corev1.Service, *loadbalancer.Problem, error) {
	entry, ok := r.allocator.WellKnown(client.ObjectKeyFromObject(service))
	if !ok || len(entry.NodePorts) == 0 {
		return service, nil, nil
	}

	var (
		wanted  = maps.Clone(entry.NodePorts)
		refused = map[int32]int{}
		problem *loadbalancer.Problem
		errs    []error
	)
	for {
		changes := portChanges(service, wanted)
		if len(changes) == 0 {
			return service, problem, errors.Join(errs...)
		}
		patched, err := r.patchPorts(ctx, service, changes)
		if err == nil {
			return patched, problem, errors.Join(errs...)
		}
		nodePort, message := refusedNodePort(service, wanted, err)
		if nodePort == 0 {
			return service, problem, errors.Join(err, errors.Join(errs...))
		}
		next, err := r.resolve(ctx, service, nodePort, message)
		if err != nil {
			errs = append(errs, err)
		}
		problem = join(problem, next)
		if refused[nodePort]++; next != nil || err != nil || refused[nodePort] == claimAttempts {
			maps.DeleteFunc(wanted, func(_, fixed int32) bool { return fixed == nodePort })
		}
		if refused[nodePort] == claimAttempts {
			errs = append(errs, fmt.Errorf("node port %d is taken again and again", nodePort))
		}
	}
}

// refusedNodePort returns which of the wanted node ports the API server refuses, and why. It is 0 if the error is about
// something else.
func refusedNodePort(service *corev1.Service, wanted map[int32]int32, err error) (int32, string) {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return 0, ""
	}
	for _, cause := range status.Status().Details.Causes {
		for i, port := range service.Spec.Ports {
			if cause.Field == fmt.Sprintf("spec.ports[%d].nodePort", i) && wanted[port.Port] != 0 {
				return wanted[port.Port], cause.Message
			}
		}
	}
	return 0, ""
}

// resolve makes way for a node port of a Service, or returns why it cannot. With an error, another try may be of use.
func (r *reconciler) resolve(ctx context.Context, service *corev1.Service, nodePort int32, message string) (*loadbalancer.Problem, error) {
	switch {
	case strings.Contains(message, messageRange):
		return &loadbalancer.Problem{Reason: ReasonNodePortRange, Message: fmt.Sprintf("node port %d is not in the API server's --service-node-port-range", nodePort)}, nil
	case !strings.Contains(message, messageAllocated):
		return &loadbalancer.Problem{Reason: ReasonNodePortConflict, Message: fmt.Sprintf("the API server refuses node port %d: %s", nodePort, message)}, nil
	}

	holder, used, err := r.findHolder(ctx, nodePort)
	if err != nil {
		return nil, err
	}
	if holder == nil {
		// It may have been deleted right now. If not, the API server finds out within minutes.
		err := fmt.Errorf("node port %d is allocated, but no Service has it", nodePort)
		return &loadbalancer.Problem{Reason: ReasonNodePortConflict, Message: err.Error()}, err
	}

	key := client.ObjectKeyFromObject(holder)
	if holder.Spec.HealthCheckNodePort == nodePort {
		return &loadbalancer.Problem{Reason: ReasonNodePortConflict, Message: fmt.Sprintf("node port %d is the health check node port of Service %s: delete that one, or configure another node port", nodePort, key)}, nil
	}
	if other, ok := r.allocator.WellKnown(key); ok && slices.ContainsFunc(holder.Spec.Ports, func(port corev1.ServicePort) bool {
		return other.NodePorts[port.Port] == nodePort
	}) {
		return &loadbalancer.Problem{Reason: ReasonNodePortConflict, Message: fmt.Sprintf("node port %d is fixed for Service %s, too: configure another node port for one of them", nodePort, key)}, nil
	}

	if r.garden && holder.Annotations[loadbalancer.AnnotationInstance] != r.namespace {
		return &loadbalancer.Problem{Reason: ReasonNodePortConflict, Message: fmt.Sprintf("node port %d is that of Service %s: give that one another node port", nodePort, key)}, nil
	}

	moved, err := r.move(ctx, holder, nodePort, used)
	if err != nil {
		// It is not wrapped, since a conflict on that Service is none on this one.
		return nil, fmt.Errorf("taking node port %d from Service %s: %s", nodePort, key, err.Error())
	}
	logf.FromContext(ctx).Info("Moved a Service to another node port", "nodePort", nodePort, "from", key, "to", moved)
	r.events.Eventf(holder, service, corev1.EventTypeWarning, reasonMoved, actionMove, "Node port %d is fixed for Service %s, this one has %d now", nodePort, client.ObjectKeyFromObject(service), moved)
	r.events.Eventf(service, holder, corev1.EventTypeNormal, reasonMoved, actionMove, "Took node port %d from Service %s, which has %d now", nodePort, key, moved)
	return nil, nil
}

// findHolder returns the Service that has a node port, and all node ports in use.
func (r *reconciler) findHolder(ctx context.Context, nodePort int32) (*corev1.Service, sets.Set[int32], error) {
	services, err := r.list(ctx, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer)
	if err != nil {
		return nil, nil, err
	}
	var holder *corev1.Service
	used := sets.Set[int32]{}
	for _, service := range services {
		nodePorts := []int32{service.Spec.HealthCheckNodePort}
		for _, port := range service.Spec.Ports {
			nodePorts = append(nodePorts, port.NodePort)
		}
		if slices.Contains(nodePorts, nodePort) {
			holder = &service
		}
		used.Insert(nodePorts...)
	}
	return holder, used, nil
}

// move gives a Service another node port instead of one, which it returns. The API server cannot be asked to choose: it
// keeps the node port of a port for which a write has none. So the nearest are tried, which it has most likely.
func (r *reconciler) move(ctx context.Context, holder *corev1.Service, nodePort int32, used sets.Set[int32]) (int32, error) {
	var err error
	attempts := 0
	for distance := int32(1); distance < maxPort && attempts < moveAttempts; distance++ {
		for _, candidate := range []int32{nodePort + distance, nodePort - distance} {
			if candidate < 1 || candidate > maxPort || used.Has(candidate) || r.allocator.IsFixed(candidate) {
				continue
			}
			changes := map[int]int32{}
			for i, port := range holder.Spec.Ports {
				if port.NodePort == nodePort {
					changes[i] = candidate
				}
			}
			attempts++
			if _, err = r.patchPorts(ctx, holder, changes); err == nil {
				return candidate, nil
			}
			if !apierrors.IsInvalid(err) {
				return 0, err
			}
		}
	}
	return 0, fmt.Errorf("finding another node port for it: %w", err)
}

// portChanges returns, by the position of a port, which node ports of a Service are to be others, given the wanted ones by
// port. Zero has the API server choose one for a port that is in the way of another.
func portChanges(service *corev1.Service, wanted map[int32]int32) map[int]int32 {
	changes := map[int]int32{}
	for i, port := range service.Spec.Ports {
		nodePort := wanted[port.Port]
		isOfAnother := func(other corev1.ServicePort) bool { return wanted[other.Port] == port.NodePort }
		switch {
		case nodePort != 0 && nodePort != port.NodePort:
			changes[i] = nodePort
		case nodePort == 0 && port.NodePort != 0 && slices.ContainsFunc(service.Spec.Ports, isOfAnother):
			changes[i] = 0
		}
	}
	return changes
}

// patchPorts changes node ports, given by the positions of their ports, and returns the Service as it is after that. A merge patch
// would need the whole list of ports, of which the cache has not every field that there may be one day, and a strategic one takes two
// ports of one number for one.
func (r *reconciler) patchPorts(ctx context.Context, service *corev1.Service, changes map[int]int32) (*corev1.Service, error) {
	// As it addresses ports by position, it only holds for the version of the Service that was read.
	operations := []map[string]any{{"op": "replace", "path": "/metadata/resourceVersion", "value": service.ResourceVersion}}
	for i, nodePort := range changes {
		operations = append(operations, map[string]any{"op": "add", "path": fmt.Sprintf("/spec/ports/%d/nodePort", i), "value": nodePort})
	}
	data, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	patched := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name}}
	if err := r.client.Patch(ctx, patched, client.RawPatch(types.JSONPatchType, data)); err != nil {
		return nil, fmt.Errorf("setting node ports: %w", err)
	}
	return patched, nil
}
