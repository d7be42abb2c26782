// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsconfigv1alpha1 "github.com/gardener/gardener/extensions/pkg/apis/config/v1alpha1"
	library "github.com/gardener/gardener/extensions/pkg/controller/healthcheck"
	"github.com/gardener/gardener/extensions/pkg/controller/healthcheck/worker"
	"github.com/gardener/gardener/extensions/pkg/util"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// rolloutThreshold is how long a rollout may take before it counts as unhealthy.
	rolloutThreshold = 5 * time.Minute
	// scaleUpThreshold is how long a Node may take to register and to get ready, as in the library.
	scaleUpThreshold = 5 * time.Minute
	// scaleDownThreshold is how long a surplus Node may take to go, as in the library.
	scaleDownThreshold = 15 * time.Minute
	// namesMax is how many Nodes a message names.
	namesMax = 5
	// pageSize is the number of Nodes in one answer, at some 10 KB each.
	pageSize = 100
	// shootsMax is how many clients are kept. The least recently used one goes first.
	shootsMax = 512
	// requestTimeout is how long a shoot's API server may take for all its Nodes.
	requestTimeout = 5 * time.Second
	// pauseAfterFailure is how long a shoot's API server is not asked after it did not answer. Its Machines change a lot then.
	pauseAfterFailure = 15 * time.Second
)

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
	}
}

// strip keeps the part of a Deployment on which its health depends, and removes from a ManagedResource only what no write of
// its spec can lose: the status is a subresource.
func strip(object any) (any, error) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		o.Labels, o.Annotations, o.ManagedFields = nil, nil, nil
		o.Spec = appsv1.DeploymentSpec{Replicas: o.Spec.Replicas}
	case *resourcesv1alpha1.ManagedResource:
		o.ManagedFields, o.Status.Resources = nil, nil
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
func newCondition(c clock.Clock, conditionType gardencorev1beta1.ConditionType, old *gardencorev1beta1.Condition, result library.SingleCheckResult) (gardencorev1beta1.Condition, time.Duration) {
	if old == nil {
		old = &gardencorev1beta1.Condition{Type: conditionType}
	}
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
// The Machines show changes of Nodes: machine-controller-manager copies the conditions of a Node to its Machine.
func nodesCheck(reader client.Reader, shoots *shoots) check {
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
			nodes, err := shoots.nodes(ctx, namespace)
			if err != nil {
				return library.SingleCheckResult{}, fmt.Errorf("asking the shoot's API server for its Nodes: %w", err)
			}
			return nodesHealth(shoots.clock.Now(), deployments.Items, machines.Items, nodes), nil
		},
	}
}

// nodesHealth looks at the worst first. An unhealthy MachineDeployment with healthy Nodes is mostly just out of date.
func nodesHealth(now time.Time, deployments []machinev1alpha1.MachineDeployment, machines []machinev1alpha1.Machine, nodes []node) library.SingleCheckResult {
	leaving := sets.New[string]()
	for _, machine := range machines {
		if machine.DeletionTimestamp != nil {
			leaving.Insert(machine.Labels[machinev1alpha1.NodeLabelKey])
		}
	}
	var notReady, starting []string
	registered, wanted := 0, 0
	for _, node := range nodes {
		if leaving.Has(node.name) {
			continue
		}
		registered++
		if !node.ready && now.Sub(node.created) < scaleUpThreshold {
			starting = append(starting, node.name)
		} else if !node.ready {
			notReady = append(notReady, node.name)
		}
	}
	for _, deployment := range deployments {
		if deployment.DeletionTimestamp == nil {
			wanted += int(deployment.Spec.Replicas)
		}
	}

	switch {
	case len(notReady) > 0:
		return unhealthy("not ready: Node %s", join(notReady))
	case registered < wanted:
		return progressing(scaleUpThreshold, "%d of %d Nodes have registered", registered, wanted)
	case len(starting) > 0:
		return progressing(scaleUpThreshold, "starting: Node %s", join(starting))
	case registered > wanted:
		return progressing(scaleDownThreshold, "%d Nodes are registered, %d are wanted", registered, wanted)
	}
	for i := range deployments {
		if err := health.CheckMachineDeployment(&deployments[i]); err != nil {
			return progressing(scaleUpThreshold, "MachineDeployment %s is unhealthy: %s", deployments[i].Name, err)
		}
	}
	return healthy()
}

func failedMachine(deployments ...machinev1alpha1.MachineDeployment) string {
	for _, deployment := range deployments {
		for _, machine := range deployment.Status.FailedMachines {
			return fmt.Sprintf("machine %s failed: %s", machine.Name, machine.LastOperation.Description)
		}
	}
	return ""
}

// join joins the first names, always in the same order.
func join(names []string) string {
	slices.Sort(names)
	if len(names) > namesMax {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namesMax], ", "), len(names)-namesMax)
	}
	return strings.Join(names, ", ")
}

// node is the part of a Node that the check needs.
type node struct {
	name    string
	ready   bool
	created time.Time
}

// listNodes returns the Nodes of machine-controller-manager. It keeps no more than one page of them in memory.
func listNodes(ctx context.Context, c corev1client.NodeInterface) ([]node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, opts) })
	// Never all at once: who owns the shoot makes as many Nodes as they like, of any size.
	pages.PageSize, pages.PageBufferSize, pages.FullListIfExpired = pageSize, 0, false

	var out []node
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		if n := obj.(*corev1.Node); n.Annotations[worker.AnnotationKeyNotManagedByMCM] != "1" {
			out = append(out, node{name: n.Name, created: n.CreationTimestamp.Time, ready: slices.ContainsFunc(n.Status.Conditions, isReady)})
		}
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s", requestTimeout)
	}
	return out, err
}

func isReady(condition corev1.NodeCondition) bool {
	return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
}

// openNodes returns a client for the Nodes of the shoot whose control plane is in a namespace.
type openNodes func(ctx context.Context, namespace string) (corev1client.NodeInterface, error)

// nodesBySecret uses the Secret gardener-internal or gardener, which gardenlet writes for extensions.
func nodesBySecret(seed client.Client) openNodes {
	return func(ctx context.Context, namespace string) (corev1client.NodeInterface, error) {
		config, _, err := util.NewClientForShoot(ctx, seed, namespace, client.Options{}, extensionsconfigv1alpha1.RESTOptions{})
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("the Secret with its kubeconfig is missing: %w", err)
		}
		if err != nil {
			return nil, err
		}
		// The API server limits the rate, and the library's client makes a discovery request.
		config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
		c, err := corev1client.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return c.Nodes(), nil
	}
}

// shoots lists the Nodes of shoots. It keeps a client for each of them until a request fails, since nothing else shows that
// the Secret has changed. So a list of Nodes costs one request.
type shoots struct {
	open  openNodes
	clock clock.Clock
	// known has a shoot per namespace.
	known *lru.Cache
}

// shoot has either a client, or an error that is valid for a while.
type shoot struct {
	nodes corev1client.NodeInterface
	err   error
	until time.Time
}

func newShoots(open openNodes, clock clock.Clock) *shoots {
	return &shoots{open: open, clock: clock, known: lru.New(shootsMax)}
}

// nodes returns the Nodes of the shoot in a namespace. It asks at most twice, with a new client the second time.
func (s *shoots) nodes(ctx context.Context, namespace string) ([]node, error) {
	value, _ := s.known.Get(namespace)
	known, _ := value.(shoot)
	if known.err != nil && s.clock.Now().Before(known.until) {
		return nil, known.err
	}
	if known.nodes != nil {
		if nodes, err := listNodes(ctx, known.nodes); err == nil {
			return nodes, nil
		}
	}

	var nodes []node
	c, err := s.open(ctx, namespace)
	if err == nil {
		nodes, err = listNodes(ctx, c)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		err = constant(err)
		s.known.Add(namespace, shoot{err: err, until: s.clock.Now().Add(pauseAfterFailure)})
		return nil, err
	}
	s.known.Add(namespace, shoot{nodes: c})
	return nodes, nil
}

// constant returns an error without the parts that differ between attempts, the port of a connection and the time: each new
// message would be a write.
func constant(err error) error {
	text := regexp.MustCompile(`\S+:\d+->`).ReplaceAllString(err.Error(), "")
	return errors.New(regexp.MustCompile(`current time \S+`).ReplaceAllString(text, "current time"))
}
