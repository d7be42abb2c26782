// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package healthcheck holds the controllers that write the health conditions of a shoot's ControlPlane, Network and
// Worker. gardenlet makes conditions of the Shoot from them. Only gardenlet-extension adds these controllers.
//
// Gardener's library for health checks polls and writes every status at each poll. These controllers watch what they check
// and write a condition only when it changes: gardenlet takes the heartbeat Lease of the instance, not a condition's
// lastUpdateTime, as the sign that conditions are up to date.
package healthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	library "github.com/gardener/gardener/extensions/pkg/controller/healthcheck"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// reconciliationTimeout is far more than a write takes.
	reconciliationTimeout = time.Minute
	// settle is the delay between an event and the check: events come in bursts, for example when Machines are rolled or when
	// gardener-resource-manager sets one condition after the other. A later event does not prolong it.
	settle = time.Second
	// retryUnknown is the delay after a check that failed.
	retryUnknown = time.Minute
	// retryConflict is the delay after a write that conflicted with another one.
	retryConflict = time.Second

	// rolloutThreshold is how long a rollout may take before it counts as unhealthy.
	rolloutThreshold = 5 * time.Minute
	// scaleUpThreshold is how long a Node may take to register and to get ready, as in the library.
	scaleUpThreshold = 5 * time.Minute
	// scaleDownThreshold is how long a surplus Node may take to go, as in the library.
	scaleDownThreshold = 15 * time.Minute
)

// Options are the options of the controllers.
type Options struct {
	// Shared are the options that all controllers have in common. Only objects of class shoot have health conditions.
	reconciler.Shared
	// SyncPeriod is the time between two checks without an event.
	SyncPeriod time.Duration
	// WithoutShootWebhooks is to be set if the instance deploys no webhooks into shoots. ControlPlanes have no condition for
	// their ManagedResource then.
	WithoutShootWebhooks bool
	// WithoutWorkers is to be set if the cluster has no kinds of machine.sapcloud.io.
	WithoutWorkers bool
}

// kind is a kind of extension object and its checks.
type kind struct {
	name   string
	object client.Object
	list   client.ObjectList
	checks []check
	// obsolete is a condition to remove, since nothing is checked for it any more.
	obsolete gardencorev1beta1.ConditionType
}

// check determines one condition.
type check struct {
	condition gardencorev1beta1.ConditionType
	// run checks the namespace of a shoot. It returns an error if the check itself fails.
	run func(ctx context.Context, namespace string) (library.SingleCheckResult, error)
	// watches are the kinds of objects on which the result depends, all of them or those with the names.
	watches []client.Object
	names   []string
}

// AddToManager adds the controllers for the conditions of ControlPlanes, Networks and Workers of type local and class
// shoot; none if the instance does not serve class shoot. It is an error if it serves no class at all. The manager's cache
// needs CacheOptions, and its client must not cache Secrets.
//
// Needed permissions: get, list, watch on ControlPlanes, Networks, Workers and Clusters, patch on the status of the first
// three; get, list, watch on ManagedResources, Machines, MachineDeployments, and on the Deployments named
// machine-controller-manager.
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Classes.String() == "" {
		return errors.New("adding the health check controllers: no extension class given, name at least one")
	}
	var ok bool
	if opts.Classes, ok = opts.Classes.Only(extensionsv1alpha1.ExtensionClassShoot); !ok {
		return nil
	}
	opts.Controller.ReconciliationTimeout = cmp.Or(opts.Controller.ReconciliationTimeout, reconciliationTimeout)
	opts.ShootClusters = cmp.Or(opts.ShootClusters, reconciler.NewClusters(mgr.GetClient()))

	for _, kind := range kinds(mgr.GetCache(), opts.WithoutShootWebhooks) {
		if opts.WithoutWorkers && kind.name == "worker" {
			continue
		}
		b := builder.ControllerManagedBy(mgr).Named("healthcheck-" + kind.name).WithOptions(opts.Controller)
		watch := func(obj client.Object, names []string) {
			b.Watches(obj, reconciler.WakeAfter(settle, shootOf), builder.WithPredicates(changed(names)))
		}
		watch(kind.object, nil)
		watch(&extensionsv1alpha1.Cluster{}, nil)
		for _, check := range kind.checks {
			for _, obj := range check.watches {
				watch(obj, check.names)
			}
		}
		c := &checker{Options: opts, kind: kind, reader: mgr.GetCache(), writer: mgr.GetClient(), clock: clock.RealClock{}}
		if err := b.Complete(c); err != nil {
			return fmt.Errorf("adding the health check controller %s: %w", kind.name, err)
		}
	}
	return nil
}

// kinds is the table in docs/operations/observability.md, section "Health checks".
func kinds(reader client.Reader, withoutShootWebhooks bool) []kind {
	managedResource := func(hint string, names ...string) check {
		return objectCheck(reader, gardencorev1beta1.ShootSystemComponentsHealthy, &resourcesv1alpha1.ManagedResource{}, hint, names...)
	}
	controlPlane := kind{name: "controlplane", object: &extensionsv1alpha1.ControlPlane{}, list: &extensionsv1alpha1.ControlPlaneList{}}
	if withoutShootWebhooks {
		controlPlane.obsolete = gardencorev1beta1.ShootSystemComponentsHealthy
	} else {
		controlPlane.checks = []check{managedResource("", "extension-controlplane-shoot-webhooks")}
	}
	return []kind{
		controlPlane,
		{
			name: "network", object: &extensionsv1alpha1.Network{}, list: &extensionsv1alpha1.NetworkList{},
			checks: []check{managedResource(": this extension has no controller for Networks, choose another networking type", "extension-networking-local")},
		},
		{
			name: "worker", object: &extensionsv1alpha1.Worker{}, list: &extensionsv1alpha1.WorkerList{},
			checks: []check{
				// The permissions of machine-controller-manager in the shoot: gardenlet deploys them in the second one.
				managedResource("", "extension-worker-mcm-shoot", "shoot-core-machine-controller-manager"),
				objectCheck(reader, gardencorev1beta1.ShootControlPlaneHealthy, &appsv1.Deployment{}, "", v1beta1constants.DeploymentNameMachineControllerManager),
				nodesCheck(reader),
			},
		},
	}
}

// shootOf returns the namespace of a shoot for an object in it, or for its Cluster.
func shootOf(_ context.Context, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: cmp.Or(obj.GetNamespace(), obj.GetName())}}}
}

// changed passes the events that may change a condition, of all objects or of those with the names.
func changed(names []string) predicate.Predicate {
	named := func(obj client.Object) bool { return len(names) == 0 || slices.Contains(names, obj.GetName()) }
	return predicate.And(predicate.NewPredicateFuncs(named), reconciler.Changed(aspect))
}

// aspect returns the part of an object on which conditions depend.
func aspect(obj client.Object) any {
	switch o := obj.(type) {
	case *machinev1alpha1.MachineDeployment:
		return []any{o.DeletionTimestamp != nil, o.Spec.Replicas, failedMachine(*o), health.CheckMachineDeployment(o)}
	case *machinev1alpha1.Machine:
		return []any{o.Labels[machinev1alpha1.NodeLabelKey], stateOfNode(o)}
	case *extensionsv1alpha1.Cluster:
		return o.Spec.Shoot.Raw
	case extensionsv1alpha1.Object:
		last := ptr.Deref(o.GetExtensionStatus().GetLastOperation(), gardencorev1beta1.LastOperation{})
		return []any{o.GetGeneration(), o.GetAnnotations()[v1beta1constants.GardenerOperation], last.Type, last.State}
	default:
		return objectHealth(obj)
	}
}

// checker writes the conditions of one kind of extension object.
type checker struct {
	Options
	kind
	// reader reads from the manager's cache.
	reader client.Reader
	writer client.StatusClient
	clock  clock.Clock
}

// Reconcile implements reconcile.Reconciler. The request has the name of a shoot's namespace.
func (c *checker) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	objects, err := c.objects(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(objects) == 0 {
		return reconcile.Result{}, nil
	}
	cluster, err := c.ShootClusters.Get(ctx, request.Name)
	if err != nil || cluster == nil {
		return reconcile.Result{}, err
	}

	next, hibernated := c.SyncPeriod, cluster.IsHibernated()
	if hibernated || len(c.checks) == 0 {
		next = 0
	}
	results := make([]library.SingleCheckResult, len(c.checks))
	for i, check := range c.checks {
		if hibernated {
			results[i] = library.SingleCheckResult{Status: gardencorev1beta1.ConditionTrue, Detail: "Shoot is hibernated"}
		} else if results[i], err = check.run(ctx, request.Name); err != nil {
			results[i] = library.SingleCheckResult{Status: gardencorev1beta1.ConditionUnknown, Detail: err.Error()}
			next = min(next, retryUnknown)
		}
	}
	for _, obj := range objects {
		due, err := c.write(ctx, obj, results)
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: retryConflict}, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("writing the conditions of %s: %w", obj.GetName(), err)
		}
		next = min(next, due)
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// objects returns the objects of type local and of our classes in a namespace, without those that are being deleted or
// migrated: their parts go in an order of their own.
func (c *checker) objects(ctx context.Context, namespace string) ([]extensionsv1alpha1.Object, error) {
	list := c.list.DeepCopyObject().(client.ObjectList)
	if err := c.reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var out []extensionsv1alpha1.Object
	err := meta.EachListItem(list, func(item runtime.Object) error {
		obj := item.(extensionsv1alpha1.Object)
		isOurs := obj.GetExtensionSpec().GetExtensionType() == localv1alpha1.Type && c.Classes.Has(obj)
		if isOurs && obj.GetDeletionTimestamp() == nil && !reconciler.IsLeaving(obj) {
			out = append(out, obj)
		}
		return nil
	})
	return out, err
}

// write writes the conditions of an object if they have changed. It returns the delay until a condition changes without an
// event. The merge patch replaces the whole list, so it has a resourceVersion; the rest of the status is not in it.
func (c *checker) write(ctx context.Context, obj extensionsv1alpha1.Object, results []library.SingleCheckResult) (time.Duration, error) {
	next := c.SyncPeriod
	old := obj.GetExtensionStatus().GetConditions()
	conditions := v1beta1helper.RemoveConditions(old, c.obsolete)
	for i, check := range c.checks {
		condition, due := newCondition(c.clock, cmp.Or(v1beta1helper.GetCondition(old, check.condition), &gardencorev1beta1.Condition{Type: check.condition}), results[i])
		conditions = v1beta1helper.MergeConditions(conditions, condition)
		if due > 0 {
			// Times in conditions have no fractions of a second.
			next = min(next, due+time.Second)
		}
	}
	if apiequality.Semantic.DeepEqual(old, conditions) {
		return next, nil
	}

	before := obj.DeepCopyObject().(client.Object)
	obj.GetExtensionStatus().SetConditions(conditions)
	if err := c.writer.Status().Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return 0, err
	}
	for _, condition := range conditions {
		if before := v1beta1helper.GetCondition(old, condition.Type); before == nil || before.Status != condition.Status {
			logf.FromContext(ctx).Info("Health has changed", "object", obj.GetName(), "conditionType", condition.Type,
				"status", condition.Status, "message", condition.Message)
		}
	}
	return next, nil
}

// CacheOptions returns how a manager must cache what the controllers read: of all Deployments those named
// machine-controller-manager without their pod template, and ManagedResources without the list of their objects.
//
// The manager's cache has no other Deployments then. So Deployment belongs in CacheOptions.DisableFor of its client, which
// makes other readers use the API server. The controllers here read from the cache itself.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&appsv1.Deployment{}: {
			Field:     fields.OneTermEqualSelector(metav1.ObjectNameField, v1beta1constants.DeploymentNameMachineControllerManager),
			Transform: strip,
		},
		&resourcesv1alpha1.ManagedResource{}: {Transform: strip},
		&machinev1alpha1.Machine{}:           {Transform: strip},
	}
}

// strip keeps the part of a Deployment on which its health depends, and removes from a ManagedResource only what no write of
// its spec can lose: the status is a subresource. From a Machine, whose spec nobody writes, it removes what the owner of the shoot can
// make large: the template has the annotations of the pool, and machine-controller-manager copies the conditions of the Node.
func strip(object any) (any, error) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		o.Labels, o.Annotations, o.ManagedFields = nil, nil, nil
		o.Spec = appsv1.DeploymentSpec{Replicas: o.Spec.Replicas}
	case *resourcesv1alpha1.ManagedResource:
		o.ManagedFields, o.Status.Resources = nil, nil
	case *machinev1alpha1.Machine:
		o.ManagedFields, o.Spec.NodeTemplateSpec = nil, machinev1alpha1.NodeTemplateSpec{}
		// Whatever it is, the first says that the Node has registered.
		conditions := make([]corev1.NodeCondition, min(1, len(o.Status.Conditions)))
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.NodeReady || c.Type == machinev1alpha1.NodeInPlaceUpdate {
				conditions = append(conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status, Reason: reconciler.Shorten(c.Reason)})
			}
		}
		o.Status.Conditions = conditions
	}
	return object, nil
}

func healthy() library.SingleCheckResult {
	return library.SingleCheckResult{Status: gardencorev1beta1.ConditionTrue, Detail: "All health checks successful"}
}

func unhealthy(format string, args ...any) library.SingleCheckResult {
	return library.SingleCheckResult{Status: gardencorev1beta1.ConditionFalse, Detail: fmt.Sprintf(format, args...)}
}

// progressing returns a result that becomes unhealthy after the threshold.
func progressing(threshold time.Duration, format string, args ...any) library.SingleCheckResult {
	return library.SingleCheckResult{
		Status: gardencorev1beta1.ConditionProgressing, Detail: fmt.Sprintf(format, args...), ProgressingThreshold: &threshold,
	}
}

// objectCheck checks the first object that exists, of the type of obj. If none exists, the message ends with the hint.
func objectCheck(reader client.Reader, condition gardencorev1beta1.ConditionType, obj client.Object, hint string, names ...string) check {
	return check{condition: condition, watches: []client.Object{obj}, names: names, run: func(ctx context.Context, namespace string) (library.SingleCheckResult, error) {
		for _, name := range names {
			found := obj.DeepCopyObject().(client.Object)
			if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found); !apierrors.IsNotFound(err) {
				return objectHealth(found), err
			}
		}
		return unhealthy("%s %s/%s does not exist%s", reflect.TypeOf(obj).Elem().Name(), namespace, names[0], hint), nil
	}}
}

// objectHealth returns the health of a ManagedResource or of a Deployment.
func objectHealth(obj client.Object) library.SingleCheckResult {
	var err error
	var inProgress bool
	switch o := obj.(type) {
	case *resourcesv1alpha1.ManagedResource:
		err, inProgress = health.CheckManagedResource(o), isBeingApplied(o)
	case *appsv1.Deployment:
		err, inProgress = health.CheckDeployment(o), isRollingOut(o)
	}
	if err == nil {
		return healthy()
	}

	out := unhealthy("%s %s/%s is unhealthy: %s", reflect.TypeOf(obj).Elem().Name(), obj.GetNamespace(), obj.GetName(), err)
	if inProgress {
		out = progressing(rolloutThreshold, "%s", out.Detail)
	}
	// The API server did not accept an object as valid.
	if strings.Contains(out.Detail, "error during apply of object") && strings.Contains(out.Detail, " is invalid:") {
		out.Codes = []gardencorev1beta1.ErrorCode{gardencorev1beta1.ErrorConfigurationProblem}
	}
	return out
}

// isBeingApplied reports whether gardener-resource-manager has no result yet, as after each change of a ManagedResource.
func isBeingApplied(mr *resourcesv1alpha1.ManagedResource) bool {
	if mr.Status.ObservedGeneration != mr.Generation {
		return true
	}
	for _, conditionType := range []gardencorev1beta1.ConditionType{resourcesv1alpha1.ResourcesApplied, resourcesv1alpha1.ResourcesHealthy} {
		condition := v1beta1helper.GetCondition(mr.Status.Conditions, conditionType)
		if condition == nil || condition.Status != gardencorev1beta1.ConditionTrue {
			return condition == nil || condition.Status != gardencorev1beta1.ConditionFalse
		}
	}
	return false
}

// isRollingOut reports whether a rollout is under way. Kubernetes sets another reason once it is complete, and another status
// once it takes too long.
func isRollingOut(deployment *appsv1.Deployment) bool {
	return deployment.Status.ObservedGeneration < deployment.Generation ||
		slices.ContainsFunc(deployment.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionTrue && c.Reason != "NewReplicaSetAvailable"
		})
}

// newCondition returns the condition for a result, and the delay until it changes without an event; 0 for never. As in the
// library, False does not become Progressing, and Progressing becomes False after the threshold.
func newCondition(c clock.Clock, old *gardencorev1beta1.Condition, result library.SingleCheckResult) (gardencorev1beta1.Condition, time.Duration) {
	var due time.Duration
	if result.Status == gardencorev1beta1.ConditionProgressing {
		due = *result.ProgressingThreshold
		if old.Status == gardencorev1beta1.ConditionProgressing {
			due -= c.Since(old.LastTransitionTime.Time)
		}
		if due <= 0 || old.Status == gardencorev1beta1.ConditionFalse {
			due, result.Status = 0, gardencorev1beta1.ConditionFalse
		}
	}
	reason := map[gardencorev1beta1.ConditionStatus]string{
		gardencorev1beta1.ConditionTrue:        library.ReasonSuccessful,
		gardencorev1beta1.ConditionProgressing: library.ReasonProgressing,
		gardencorev1beta1.ConditionFalse:       library.ReasonUnsuccessful,
		gardencorev1beta1.ConditionUnknown:     gardencorev1beta1.ConditionCheckError,
	}[result.Status]
	return v1beta1helper.UpdatedConditionWithClock(c, *old, result.Status, reason, reconciler.Shorten(result.Detail), result.Codes...), due
}

// nodesCheck checks whether all Nodes of the Worker's machines are there and ready. The library's check is not enough: in
// Gardener v1.149 it lists the Nodes, but its result depends on the MachineDeployments only.
//
// It takes the state of a Node from its Machine, to which machine-controller-manager copies the Node's conditions. So it reads
// nothing that the owner of a shoot can make large. gardenlet lists the Nodes themselves for the condition of the Shoot.
func nodesCheck(reader client.Reader) check {
	return check{
		condition: gardencorev1beta1.ShootEveryNodeReady,
		watches:   []client.Object{&machinev1alpha1.Machine{}, &machinev1alpha1.MachineDeployment{}},
		run: func(ctx context.Context, namespace string) (library.SingleCheckResult, error) {
			deployments, machines := &machinev1alpha1.MachineDeploymentList{}, &machinev1alpha1.MachineList{}
			if err := reader.List(ctx, deployments, client.InNamespace(namespace)); err != nil {
				return library.SingleCheckResult{}, fmt.Errorf("listing MachineDeployments: %w", err)
			}
			if err := reader.List(ctx, machines, client.InNamespace(namespace)); err != nil {
				return library.SingleCheckResult{}, fmt.Errorf("listing Machines: %w", err)
			}
			if failed := failedMachine(deployments.Items...); failed != "" {
				return unhealthy("%s", failed), nil
			}
			return nodesHealth(deployments.Items, machines.Items), nil
		},
	}
}

// nodesHealth looks at the worst first. An unhealthy MachineDeployment with healthy Nodes is mostly just out of date.
func nodesHealth(deployments []machinev1alpha1.MachineDeployment, machines []machinev1alpha1.Machine) library.SingleCheckResult {
	nodes := map[nodeState][]string{}
	for i := range machines {
		state := stateOfNode(&machines[i])
		nodes[state] = append(nodes[state], machines[i].Labels[machinev1alpha1.NodeLabelKey])
	}
	registered, wanted := len(nodes[nodeReady])+len(nodes[nodeStarting])+len(nodes[nodeNotReady]), 0
	for _, deployment := range deployments {
		if deployment.DeletionTimestamp == nil {
			wanted += int(deployment.Spec.Replicas)
		}
	}
	names := func(state nodeState) string {
		return reconciler.JoinSome(slices.Sorted(slices.Values(nodes[state])), ", ")
	}

	switch {
	case len(nodes[nodeNotReady]) > 0:
		return unhealthy("not ready: Node %s", names(nodeNotReady))
	case registered < wanted:
		return progressing(scaleUpThreshold, "%d of %d Nodes have registered", registered, wanted)
	// A rolling update has such Nodes and starting ones all the time.
	case registered > wanted:
		return progressing(scaleDownThreshold, "%d Nodes are registered, %d are wanted", registered, wanted)
	case len(nodes[nodeStarting]) > 0:
		return progressing(scaleUpThreshold, "starting: Node %s", names(nodeStarting))
	}
	for i := range deployments {
		if err := health.CheckMachineDeployment(&deployments[i]); err != nil {
			return progressing(scaleUpThreshold, "MachineDeployment %s is unhealthy: %s", deployments[i].Name, err)
		}
	}
	return healthy()
}

// failedMachine returns the first of the machines that failed. The cache has the deployments in any order.
func failedMachine(deployments ...machinev1alpha1.MachineDeployment) string {
	deployments = slices.SortedFunc(slices.Values(deployments), func(a, b machinev1alpha1.MachineDeployment) int { return cmp.Compare(a.Name, b.Name) })
	for _, deployment := range deployments {
		for _, machine := range deployment.Status.FailedMachines {
			return fmt.Sprintf("machine %s failed: %s", machine.Name, machine.LastOperation.Description)
		}
	}
	return ""
}

// nodeState is the state of a Machine's Node.
type nodeState int

const (
	// nodeMissing means that the Node has not registered.
	nodeMissing nodeState = iota
	// nodeStarting means that it has registered, but has never been ready.
	nodeStarting
	nodeReady
	nodeNotReady
	// nodeLeaving means that its Machine is being deleted.
	nodeLeaving
)

// stateOfNode returns the state of a Machine's Node as machine-controller-manager sees it. Phase Unknown also stands for a
// Node that has gone: its conditions stay.
func stateOfNode(machine *machinev1alpha1.Machine) nodeState {
	switch phase := machine.Status.CurrentStatus.Phase; {
	case machine.DeletionTimestamp != nil:
		return nodeLeaving
	case len(machine.Status.Conditions) == 0:
		return nodeMissing
	case phase != machinev1alpha1.MachineUnknown && slices.ContainsFunc(machine.Status.Conditions, isReady):
		return nodeReady
	case phase == machinev1alpha1.MachinePending || phase == "":
		return nodeStarting
	}
	return nodeNotReady
}

func isReady(condition corev1.NodeCondition) bool {
	return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
}
