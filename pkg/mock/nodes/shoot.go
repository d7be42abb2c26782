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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeagentconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/nodeagent/v1alpha1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// planPause gathers the events that make a plan due.
	planPause = 50 * time.Millisecond
	// retryFirst and retryLast limit the back-off after errors.
	retryFirst = 50 * time.Millisecond
	retryLast  = 10 * time.Second
	// parallel is the largest number of requests for Nodes and pods of one shoot under way.
	parallel = 16
	// seenAfter limits how long the cache may take to show a Node that was created. After that, the Node may be gone already.
	seenAfter = 30 * time.Second

	// LeaseDuration is that of a kubelet.
	LeaseDuration = 40 * time.Second
	// renewal is the time between two renewals of a Lease. It varies by the share renewalJitter, so that Leases which were created
	// together do not stay together.
	renewal       = 20 * time.Second
	renewalJitter = 0.1
	// leaseParallel is the number of Leases that are renewed at a time.
	leaseParallel = 8

	// indexNode finds the pods on a Node, and indexAddress the Nodes and pods with an IP address.
	indexNode    = "node"
	indexAddress = "address"
)

// item is an item of the queue: a pod, a Node if it has no namespace, or the plan if it has no name either.
type item = types.NamespacedName

// write is the last write of an object: when, the version that was looked at, which is empty for a creation, and the version that
// was written, if it is known.
type write struct {
	at            time.Time
	seen, written string
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
	// texts are strings that many Nodes have in common (trimNode).
	texts map[string]string
	// missing and surplus are the Nodes to create and delete by the last plan.
	missing map[string]*group
	surplus sets.Set[string]
	writes  map[item]write

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

func newShoot(opts Options, key client.ObjectKey, clients kubernetes.Interface, access string) *shoot {
	s := &shoot{
		opts: opts, worker: key.Name, client: clients, access: access, log: opts.Log.WithValues("worker", key),
		queue: newQueue[item](opts), leases: newQueue[string](opts),
		ranges: prefixes(nodeRange), writes: map[item]write{}, cancel: func() {},
	}

	// The caches hold only the objects and fields that are needed.
	s.nodes = coreinformers.NewFilteredNodeInformer(clients, 0, cache.Indexers{indexAddress: func(obj any) ([]string, error) {
		return internalIPs(obj.(*corev1.Node)), nil
	}}, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{LabelWorker: s.worker}.String()
	})
	s.pods = coreinformers.NewFilteredPodInformer(clients, metav1.NamespaceAll, 0, cache.Indexers{
		indexNode:    func(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Spec.NodeName}, nil },
		indexAddress: func(obj any) ([]string, error) { return ipsOf(obj.(*corev1.Pod)), nil },
	}, func(o *metav1.ListOptions) { o.FieldSelector = isBound })
	s.oscs = coreinformers.NewFilteredSecretInformer(clients, metav1.NamespaceSystem, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{v1beta1constants.GardenRole: v1beta1constants.GardenRoleOperatingSystemConfig}.String()
	})
	s.addresses = newAddresses(func(address string) bool {
		nodes, _ := s.nodes.GetIndexer().IndexKeys(indexAddress, address) // The index exists.
		pods, _ := s.pods.GetIndexer().IndexKeys(indexAddress, address)
		return len(nodes)+len(pods) > 0
	})
	s.watch(s.nodes, s.trimNode, cache.ResourceEventHandlerDetailedFuncs{AddFunc: s.nodeAdded, UpdateFunc: s.nodeChanged, DeleteFunc: s.nodeDeleted})
	s.watch(s.pods, trimPod, cache.ResourceEventHandlerFuncs{
		AddFunc: s.podChanged, UpdateFunc: func(_, obj any) { s.podChanged(obj) }, DeleteFunc: s.podChanged,
	})
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

// want sets the wanted Nodes, and queues all Nodes.
func (s *shoot) want(groups []*group, ranges []netip.Prefix) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.groups, s.texts = map[string]*group{}, map[string]string{}
	for _, c := range nodeConditions {
		for _, text := range []string{string(c.Type), string(c.Status), c.Reason, c.Message} {
			s.texts[text] = text
		}
	}
	for _, g := range groups {
		s.groups[g.name] = g
		for _, texts := range []map[string]string{g.labels, g.annotations} {
			for name, value := range texts {
				s.texts[name], s.texts[value] = name, value
			}
		}
	}
	if len(ranges) > 0 {
		s.ranges = ranges
	}
	s.queue.AddAfter(item{}, planPause)
	s.queueNodes()
}

// queueNodes queues all Nodes.
func (s *shoot) queueNodes() {
	for _, name := range s.nodes.GetStore().ListKeys() {
		s.queue.Add(item{Name: name})
	}
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
	switch {
	case next.Namespace != "":
		return s.syncPod(ctx, next)
	case next.Name != "":
		return s.syncNode(ctx, next)
	}
	s.plan()
	return nil
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
	answer, err := patch(ctx, key.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
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

// cachedMax is the size of a cached Node or Pod. Who owns the shoot decides how large they are: larger ones are not served.
const cachedMax = 64 << 10

// trimNode drops fields that are not needed. As thousands of cached Nodes differ in little more than their names, the rest is
// kept once. Transform functions may change their objects.
func (s *shoot) trimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	status := &node.Status
	node.ManagedFields = nil
	status.Images, status.VolumesInUse, status.VolumesAttached = nil, nil, nil
	if node.Size() > cachedMax {
		return &corev1.Node{ObjectMeta: identity(node)}, nil
	}

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
	// Who owns the shoot decides how large the rest is.
	pod.ManagedFields, pod.Labels, pod.Annotations = nil, nil, nil
	trim := func(containers []corev1.Container) (out []corev1.Container) {
		for _, c := range containers {
			out = append(out, corev1.Container{Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy, Resources: c.Resources})
		}
		return out
	}
	var ephemeral []corev1.EphemeralContainer
	for _, c := range pod.Spec.EphemeralContainers {
		ephemeral = append(ephemeral, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Image: c.Image}})
	}
	pod.Spec = corev1.PodSpec{
		NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork, RestartPolicy: pod.Spec.RestartPolicy, ReadinessGates: pod.Spec.ReadinessGates,
		Containers: trim(pod.Spec.Containers), InitContainers: trim(pod.Spec.InitContainers), EphemeralContainers: ephemeral,
	}
	if pod.Size() > cachedMax {
		return &corev1.Pod{ObjectMeta: identity(pod)}, nil
	}
	return pod, nil
}

func identity(obj metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion()}
}

func trimSecret(obj any) (any, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return obj, nil
	}
	out := &corev1.Secret{ObjectMeta: identity(secret)}
	// Who owns the shoot decides how long it is. gardenlet's has 64 letters.
	if sum := checksumOf(secret); len(sum) <= 128 {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, nodeagentconfigv1alpha1.AnnotationKeyChecksumDownloadedOperatingSystemConfig, sum)
	}
	return out, nil
}

func (s *shoot) nodeAdded(obj any, before bool) {
	node := obj.(*corev1.Node)
	s.nodeComesOrGoes(item{Name: node.Name})
	// Spread, so that not all Leases are due at once. That of a Node from before our start is the more urgent one: a new Node
	// has the grace period of kube-controller-manager from its creation on, and other Nodes may yet be waiting to be created.
	share := rand.Float64() / 2 // #nosec G404 -- jitter
	if !before {
		share += 0.5
	}
	s.leases.AddAfter(node.Name, time.Duration(share*float64(renewal)))
	for _, pod := range s.podsOn(node.Name) {
		s.queue.Add(client.ObjectKeyFromObject(pod))
	}
}

func (s *shoot) nodeDeleted(obj any) {
	name, _ := cache.DeletionHandlingObjectToName(obj) // What an informer hands out has a name.
	s.nodeComesOrGoes(item(name))
}

func (s *shoot) nodeComesOrGoes(key item) {
	s.forget(key)
	s.queue.Add(key)
	s.queue.AddAfter(item{}, planPause)
}

func (s *shoot) nodeChanged(old, obj any) {
	before, after := old.(*corev1.Node), obj.(*corev1.Node)
	s.queue.Add(item{Name: after.Name})
	if existingOf(before) != existingOf(after) || before.Labels[LabelGroup] != after.Labels[LabelGroup] {
		s.queue.AddAfter(item{}, planPause)
	}
}

// podsOn returns the bound pods of a Node.
func (s *shoot) podsOn(node string) (pods []*corev1.Pod) {
	objs, _ := s.pods.GetIndexer().ByIndex(indexNode, node) // The index exists.
	for _, obj := range objs {
		pods = append(pods, obj.(*corev1.Pod))
	}
	return pods
}

// podChanged queues a pod, also one that is gone: what is under way for it ends before it is forgotten.
func (s *shoot) podChanged(obj any) {
	name, _ := cache.DeletionHandlingObjectToName(obj) // What an informer hands out has a name.
	s.queue.Add(item(name))
}

func (s *shoot) oscChanged(before, after any) {
	if before == nil || checksumOf(before) != checksumOf(after) {
		s.queueNodes()
	}
}

// checksumOf returns the checksum of the operating system config in a Secret, which annotates Nodes that have applied it.
func checksumOf(secret any) string {
	return secret.(*corev1.Secret).Annotations[nodeagentconfigv1alpha1.AnnotationKeyChecksumDownloadedOperatingSystemConfig]
}

// beat renews the Lease of a Node as long as the Node exists. That is one request, whether or not there is a Lease, and whoever has
// written it. Each renewal waits in the queue for the next.
func (s *shoot) beat(ctx context.Context, name string) error {
	node := s.node(name)
	if node == nil {
		return nil // The garbage collector deletes the Lease.
	}
	lease := coordinationv1ac.Lease(name, corev1.NamespaceNodeLease).
		WithLabels(map[string]string{LabelWorker: s.worker}).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Node").WithName(name).WithUID(node.UID)).
		WithSpec(coordinationv1ac.LeaseSpec().
			WithHolderIdentity(name).
			WithLeaseDurationSeconds(int32(LeaseDuration / time.Second)).
			WithRenewTime(metav1.NewMicroTime(s.opts.Clock.Now())))
	_, err := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Apply(ctx, lease, metav1.ApplyOptions{FieldManager: reconciler.FieldOwner, Force: true})
	if err != nil {
		return fmt.Errorf("renewing the Lease of Node %s: %w", name, err)
	}
	share := 1 + renewalJitter*(2*rand.Float64()-1) // #nosec G404 -- jitter
	s.leases.AddAfter(name, time.Duration(share*float64(renewal)))
	return nil
}
