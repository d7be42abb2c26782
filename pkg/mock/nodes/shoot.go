// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeagentconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/nodeagent/v1alpha1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
)

const (
	kindPlan = "Plan"
	kindNode = "Node"
	kindPod  = "Pod"

	// planPause gathers the events that make a plan due.
	planPause = 50 * time.Millisecond
	// retryFirst and retryLast limit the back-off after errors.
	retryFirst = 50 * time.Millisecond
	retryLast  = 10 * time.Second
	// parallel is the largest number of requests for Nodes and pods of one shoot under way.
	parallel = 16
	// seenAfter is how long the cache may take to show a Node that was created. Later, the Node may be gone already.
	seenAfter = 30 * time.Second

	// LeaseDuration is that of a kubelet.
	LeaseDuration = 40 * time.Second
	// renewal is the time between two renewals of a Lease. It varies by the share renewalJitter, so that Leases which were created
	// together do not stay together.
	renewal       = 20 * time.Second
	renewalJitter = 0.1
	// leaseParallel is the number of Leases that are renewed at a time.
	leaseParallel = 8

	// indexNode finds the pods on a Node.
	indexNode = "node"
)

// item is something to look at.
type item struct {
	kind, namespace, name string
}

// write is the last write of an object: when, the version that was looked at, which is empty for a creation, and the version that
// was written, if it is known.
type write struct {
	at            time.Time
	seen, written string
}

// beat is the last write of a Node's Lease.
type beat struct {
	node    types.UID
	version string
}

// shoot keeps the Nodes of one Worker alive. The number of its goroutines does not depend on the number of Nodes.
type shoot struct {
	opts   Options
	worker string
	client kubernetes.Interface
	// access is the key of the connection (keyOf).
	access string
	log    logr.Logger

	nodes, pods, oscs cache.SharedIndexInformer
	synced            []cache.InformerSynced
	addresses         *addresses
	queue             workqueue.TypedRateLimitingInterface[item]
	leases            workqueue.TypedRateLimitingInterface[string]

	lock   sync.Mutex
	groups map[string]*group
	ranges []netip.Prefix
	// texts are those that many Nodes have in common.
	texts map[string]string
	// anew makes the next plan look at all Nodes.
	anew bool
	// missing and surplus are Nodes by the last plan.
	missing map[string]*group
	surplus sets.Set[string]
	writes  map[item]write
	beats   map[string]beat

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

func newShoot(opts Options, key client.ObjectKey, clients kubernetes.Interface, access string) *shoot {
	s := &shoot{
		opts: opts, worker: key.Name, client: clients, access: access, log: opts.Log.WithValues("worker", key),
		addresses: newAddresses(), queue: newQueue[item](opts), leases: newQueue[string](opts),
		ranges: prefixes(nodeRange), writes: map[item]write{}, beats: map[string]beat{}, cancel: func() {},
	}

	// Nobody looks at other objects, and the rest of these is not kept.
	s.nodes = coreinformers.NewFilteredNodeInformer(clients, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{LabelWorker: s.worker}.String()
	})
	s.pods = coreinformers.NewFilteredPodInformer(clients, metav1.NamespaceAll, 0, cache.Indexers{indexNode: func(obj any) ([]string, error) {
		return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
	}}, func(o *metav1.ListOptions) { o.FieldSelector = isBound })
	s.oscs = coreinformers.NewFilteredSecretInformer(clients, metav1.NamespaceSystem, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{v1beta1constants.GardenRole: v1beta1constants.GardenRoleOperatingSystemConfig}.String()
	})
	s.watch(s.nodes, s.trimNode, cache.ResourceEventHandlerDetailedFuncs{AddFunc: s.nodeAdded, UpdateFunc: s.nodeUpdated, DeleteFunc: s.nodeDeleted})
	s.watch(s.pods, trimPod, cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { s.podChanged(nil, obj) }, UpdateFunc: s.podChanged, DeleteFunc: s.podDeleted})
	s.watch(s.oscs, trimSecret, cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { s.oscChanged(nil, obj) }, UpdateFunc: s.oscChanged})
	return s
}

func newQueue[T comparable](opts Options) workqueue.TypedRateLimitingInterface[T] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[T](retryFirst, retryLast)
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[T]{Clock: opts.Clock})
}

func (s *shoot) watch(informer cache.SharedIndexInformer, transform cache.TransformFunc, handler cache.ResourceEventHandler) {
	registration, err := informer.AddEventHandler(handler)
	for _, err := range []error{
		err,
		informer.SetTransform(transform),
		informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			s.log.V(1).Info("A watch has ended", "reason", fmt.Sprint(err))
		}),
	} {
		if err != nil { // This only happens to an informer that runs already.
			s.log.Error(err, "Setting up a cache")
		}
	}
	s.synced = append(s.synced, registration.HasSynced)
}

// want sets the wanted Nodes, and has all Nodes looked at.
func (s *shoot) want(groups []*group, ranges []netip.Prefix) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.groups, s.texts = map[string]*group{}, map[string]string{}
	share := func(texts ...string) {
		for _, text := range texts {
			s.texts[text] = text
		}
	}
	for _, c := range nodeConditions {
		share(string(c.Type), string(c.Status), c.Reason, c.Message)
	}
	for _, g := range groups {
		s.groups[g.name] = g
		for name, value := range g.labels {
			share(name, value)
		}
		for name, value := range g.annotations {
			share(name, value)
		}
	}
	if len(ranges) > 0 {
		s.ranges = ranges
	}
	s.lookAtAll()
}

// lookAtAll has all Nodes looked at. The lock is held.
func (s *shoot) lookAtAll() {
	s.anew = true
	s.queue.AddAfter(item{kind: kindPlan}, planPause)
}

// start starts everything. It runs until stop.
func (s *shoot) start() {
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	for _, informer := range []cache.SharedIndexInformer{s.nodes, s.pods, s.oscs} {
		s.ended.Go(func() { informer.RunWithContext(ctx) })
	}
	s.ended.Go(func() {
		// With an incomplete cache, existing Nodes would be created, and addresses given out twice.
		if !cache.WaitForCacheSync(ctx.Done(), s.synced...) {
			return
		}
		for range parallel {
			s.ended.Go(func() { work(ctx, s, s.queue, s.process) })
		}
		for range leaseParallel {
			s.ended.Go(func() { work(ctx, s, s.leases, s.beat) })
		}
	})
}

// stop returns when nothing runs any more. A shoot that was stopped cannot be started again.
func (s *shoot) stop() {
	s.cancel()
	s.queue.ShutDown()
	s.leases.ShutDown()
	s.ended.Wait()
}

// work handles items until the queue is shut down.
func work[T comparable](ctx context.Context, s *shoot, queue workqueue.TypedRateLimitingInterface[T], do func(context.Context, T) error) {
	for {
		next, shutdown := queue.Get()
		if shutdown {
			return
		}
		err := do(ctx, next)
		switch {
		case err == nil:
			queue.Forget(next)
		case ctx.Err() == nil:
			s.log.V(1).Info("Trying again", "item", next, "reason", err.Error(), "failures", queue.NumRequeues(next))
			queue.AddRateLimited(next)
		}
		queue.Done(next)
	}
}

func (s *shoot) process(ctx context.Context, next item) error {
	switch next.kind {
	case kindPlan:
		s.plan()
		return nil
	case kindNode:
		return s.syncNode(ctx, next)
	default:
		return s.syncPod(ctx, next)
	}
}

// isOutdated reports whether the cache shows an object as it was before the last write, of which an event will come. version is
// empty for an object that the cache does not show.
func (s *shoot) isOutdated(key item, version string) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	last, ok := s.writes[key]
	switch {
	case !ok:
		return false
	case version == "":
		return last.seen == "" && s.opts.Clock.Since(last.at) < seenAfter
	}
	order, err := resourceversion.CompareResourceVersion(version, last.written)
	return last.seen == version || err == nil && order < 0
}

func (s *shoot) wrote(key item, seen, written string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.writes[key] = write{at: s.opts.Clock.Now(), seen: seen, written: written}
}

func (s *shoot) forget(key item) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.writes, key)
}

// patchStatus writes the status of an object by the method Patch of its client. It is no error that the object is gone by now, or
// another one has its name.
func patchStatus[T client.Object](ctx context.Context, s *shoot, key item, obj T, status any,
	patch func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error),
) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": obj.GetUID()}, "status": status})
	if err != nil {
		return err
	}
	written := ""
	answer, err := patch(ctx, key.name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	if err == nil {
		written = answer.GetResourceVersion()
	} else if gone(err) != nil {
		return err
	}
	s.wrote(key, obj.GetResourceVersion(), written)
	return nil
}

// gone returns nil for an object that is gone, or replaced by another one of its name: there is an event for that.
func gone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// trimNode drops what nobody looks at. As thousands of Nodes are cached that differ in little more than their names, all else is
// kept once. Functions of this kind are passed objects that nobody else has.
func (s *shoot) trimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	status := &node.Status
	node.ManagedFields = nil
	status.Images, status.VolumesInUse, status.VolumesAttached = nil, nil, nil

	s.lock.Lock()
	g, texts := s.groups[node.Labels[LabelGroup]], s.texts
	s.lock.Unlock()
	share := func(text string) string { return cmp.Or(texts[text], text) }
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.Type, c.Status = corev1.NodeConditionType(share(string(c.Type))), corev1.ConditionStatus(share(string(c.Status)))
		c.Reason, c.Message = share(c.Reason), share(c.Message)
	}
	if g == nil {
		return node, nil
	}
	for _, texts := range []*map[string]string{&node.Labels, &node.Annotations} {
		shared := make(map[string]string, len(*texts))
		for name, value := range *texts {
			shared[share(name)] = share(value)
		}
		*texts = shared
	}
	if len(status.Capacity) == len(g.capacity) && hasCapacity(status.Capacity, g.capacity) {
		status.Capacity = g.capacity
	}
	if len(status.Allocatable) == len(g.allocatable) && hasCapacity(status.Allocatable, g.allocatable) {
		status.Allocatable = g.allocatable
	}
	if info := g.nodeInfo(node.Name); status.NodeInfo == info {
		status.NodeInfo = info
	}
	return node, nil
}

func trimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields = nil
	spec := corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork, RestartPolicy: pod.Spec.RestartPolicy, ReadinessGates: pod.Spec.ReadinessGates}
	trim := func(containers []corev1.Container) (out []corev1.Container) {
		for _, c := range containers {
			out = append(out, corev1.Container{Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy, Resources: c.Resources})
		}
		return out
	}
	spec.Containers, spec.InitContainers = trim(pod.Spec.Containers), trim(pod.Spec.InitContainers)
	for _, c := range pod.Spec.EphemeralContainers {
		spec.EphemeralContainers = append(spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Image: c.Image}})
	}
	pod.Spec = spec
	return pod, nil
}

func trimSecret(obj any) (any, error) {
	if secret, ok := obj.(*corev1.Secret); ok {
		secret.ManagedFields, secret.Data = nil, nil
	}
	return obj, nil
}

func (s *shoot) nodeAdded(obj any, before bool) {
	node := obj.(*corev1.Node)
	s.nodeChanged(node.Name, nil, internalIPs(node))
	s.forget(item{kind: kindNode, name: node.Name})
	s.queue.AddAfter(item{kind: kindPlan}, planPause)
	// Spread, so that not all Leases are due at once. That of a Node from before our start is the more urgent one: a new Node
	// has the grace period of kube-controller-manager from its creation on, and other Nodes may yet be waiting to be created.
	share := rand.Float64() / 2 // #nosec G404 -- jitter
	if !before {
		share += 0.5
	}
	s.leases.AddAfter(node.Name, time.Duration(share*float64(renewal)))
	for _, pod := range s.podsOn(node.Name) {
		s.queue.Add(item{kind: kindPod, namespace: pod.Namespace, name: pod.Name})
	}
}

func (s *shoot) nodeUpdated(before, after any) {
	old, node := before.(*corev1.Node), after.(*corev1.Node)
	if old.ResourceVersion == node.ResourceVersion && old.ResourceVersion != "" {
		return
	}
	s.nodeChanged(node.Name, internalIPs(old), internalIPs(node))
	if existingOf(old) != existingOf(node) || old.Labels[LabelGroup] != node.Labels[LabelGroup] {
		s.queue.AddAfter(item{kind: kindPlan}, planPause)
	}
}

func (s *shoot) nodeDeleted(obj any) {
	name, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	var had []string
	if node := lastState[*corev1.Node](obj); node != nil {
		had = internalIPs(node)
	}
	s.forget(item{kind: kindNode, name: name})
	s.nodeChanged(name, had, nil)
	s.queue.AddAfter(item{kind: kindPlan}, planPause)
}

func (s *shoot) nodeChanged(name string, had, has []string) {
	s.addresses.replace(had, has)
	s.queue.Add(item{kind: kindNode, name: name})
}

// podsOn returns the bound pods of a Node.
func (s *shoot) podsOn(node string) (pods []*corev1.Pod) {
	objs, _ := s.pods.GetIndexer().ByIndex(indexNode, node) // The index exists.
	for _, obj := range objs {
		pods = append(pods, obj.(*corev1.Pod))
	}
	return pods
}

func (s *shoot) podChanged(before, after any) {
	var had []string
	if before != nil {
		had = ipsOf(before.(*corev1.Pod))
	}
	pod := after.(*corev1.Pod)
	s.addresses.replace(had, ipsOf(pod))
	s.queue.Add(item{kind: kindPod, namespace: pod.Namespace, name: pod.Name})
}

func (s *shoot) podDeleted(obj any) {
	if pod := lastState[*corev1.Pod](obj); pod != nil {
		s.addresses.replace(ipsOf(pod), nil)
		s.forget(item{kind: kindPod, namespace: pod.Namespace, name: pod.Name})
	}
}

// lastState returns the object that was deleted, as it was seen last.
func lastState[T any](obj any) T {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	state, _ := obj.(T)
	return state
}

func (s *shoot) oscChanged(before, after any) {
	if before == nil || checksumOf(before) != checksumOf(after) {
		s.lock.Lock()
		defer s.lock.Unlock()
		s.lookAtAll()
	}
}

// checksumOf returns the checksum of the operating system config in a Secret, which annotates Nodes that have applied it.
func checksumOf(secret any) string {
	return secret.(*corev1.Secret).Annotations[nodeagentconfigv1alpha1.AnnotationKeyChecksumDownloadedOperatingSystemConfig]
}

// beat renews the Lease of a Node as long as the Node exists. That is one request, as a rule, as nobody else writes the Lease. Each
// renewal waits in the queue for the next.
func (s *shoot) beat(ctx context.Context, name string) error {
	node := s.node(name)
	s.lock.Lock()
	last, isKnown := s.beats[name]
	if node == nil {
		delete(s.beats, name)
	}
	s.lock.Unlock()
	if node == nil {
		return nil // The garbage collector deletes the Lease.
	}

	leases := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: name, Labels: map[string]string{LabelWorker: s.worker},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &name, LeaseDurationSeconds: new(int32(LeaseDuration / time.Second)), RenewTime: &metav1.MicroTime{Time: s.opts.Clock.Now()},
		},
	}
	create := func() (*coordinationv1.Lease, error) { return leases.Create(ctx, lease, metav1.CreateOptions{}) }
	update := func(version string) (*coordinationv1.Lease, error) {
		lease.ResourceVersion = version
		return leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	var (
		written *coordinationv1.Lease
		err     error
	)
	if isKnown && last.node == node.UID {
		written, err = update(last.version)
	} else {
		written, err = create()
	}
	switch {
	case apierrors.IsNotFound(err):
		lease.ResourceVersion = ""
		written, err = create()
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		// It is from an earlier run, or somebody else has written it.
		if written, err = leases.Get(ctx, name, metav1.GetOptions{}); err == nil {
			written, err = update(written.ResourceVersion)
		}
	}
	if err != nil {
		return fmt.Errorf("renewing the Lease of Node %s: %w", name, err)
	}

	s.lock.Lock()
	s.beats[name] = beat{node: node.UID, version: written.ResourceVersion}
	s.lock.Unlock()
	share := 1 + renewalJitter*(2*rand.Float64()-1) // #nosec G404 -- jitter
	s.leases.AddAfter(name, time.Duration(share*float64(renewal)))
	return nil
}
