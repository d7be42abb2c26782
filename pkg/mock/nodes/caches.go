// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	nodeagentconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/nodeagent/v1alpha1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
)

// indexNode finds the pods on a Node.
const indexNode = "node"

// newInformers makes the caches: Nodes by our label, pods that are bound, and the Secrets of operating system configs. What
// nobody here looks at is not kept.
func (s *shoot) newInformers() {
	s.nodes = coreinformers.NewFilteredNodeInformer(s.client, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.SelectorFromSet(labels.Set{LabelWorker: s.worker}).String()
	})
	s.pods = coreinformers.NewFilteredPodInformer(s.client, metav1.NamespaceAll, 0, cache.Indexers{indexNode: func(obj any) ([]string, error) {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			return []string{pod.Spec.NodeName}, nil
		}
		return nil, nil
	}}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	})
	s.oscs = coreinformers.NewFilteredSecretInformer(s.client, metav1.NamespaceSystem, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.SelectorFromSet(labels.Set{v1beta1constants.GardenRole: v1beta1constants.GardenRoleOperatingSystemConfig}).String()
	})

	for _, c := range []struct {
		informer  cache.SharedIndexInformer
		transform cache.TransformFunc
		handler   cache.ResourceEventHandler
	}{
		{s.nodes, s.trimNode, cache.ResourceEventHandlerDetailedFuncs{AddFunc: s.nodeAdded, UpdateFunc: s.nodeUpdated, DeleteFunc: s.nodeDeleted}},
		{s.pods, trimPod, cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { s.podChanged(nil, obj) }, UpdateFunc: s.podChanged, DeleteFunc: s.podDeleted}},
		{s.oscs, trimSecret, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { s.lookAtAll() }, UpdateFunc: s.oscUpdated}},
	} {
		s.must(c.informer.SetTransform(c.transform))
		s.must(c.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			s.log.V(1).Info("A watch has ended", "reason", fmt.Sprint(err))
		}))
		registration, err := c.informer.AddEventHandler(c.handler)
		s.must(err)
		s.synced = append(s.synced, registration.HasSynced)
	}
}

// must notes what can only happen to informers that run already.
func (s *shoot) must(err error) {
	if err != nil {
		s.log.Error(err, "Setting up a cache")
	}
}

// trimNode keeps what is looked at. Nodes of a group differ in little more than their names, and there are thousands of them in
// the cache, so what a Node has in common with its group is kept once. As all functions of this kind it is handed objects that
// nobody else has.
func (s *shoot) trimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	status := &node.Status
	node.ManagedFields = nil
	status.Images, status.VolumesInUse, status.VolumesAttached = nil, nil, nil
	for i := range status.Conditions {
		c := &status.Conditions[i]
		for _, ours := range nodeConditions {
			if c.Type == ours.Type && c.Status == ours.Status && c.Reason == ours.Reason && c.Message == ours.Message {
				c.Type, c.Status, c.Reason, c.Message = ours.Type, ours.Status, ours.Reason, ours.Message
			}
		}
	}

	s.lock.Lock()
	g := s.groups[node.Labels[LabelGroup]]
	s.lock.Unlock()
	if g == nil {
		return node, nil
	}
	node.Labels, node.Annotations = sharing(node.Labels, g.labels), sharing(node.Annotations, g.annotations)
	if sameCapacity(status.Capacity, g.capacity) {
		status.Capacity = g.capacity
	}
	if sameCapacity(status.Allocatable, g.allocatable) {
		status.Allocatable = g.allocatable
	}
	if info := g.nodeInfo(node.Name); status.NodeInfo == info {
		status.NodeInfo = info
	}
	return node, nil
}

// sharing returns a map with the texts of another one where they are the same.
func sharing(own, other map[string]string) map[string]string {
	out := make(map[string]string, len(own))
	for name, value := range other {
		if own[name] == value {
			out[name] = value
		}
	}
	for name, value := range own {
		if _, ok := out[name]; !ok {
			out[name] = value
		}
	}
	return out
}

// trimPod and trimSecret keep what is looked at.
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
		secret.ManagedFields = nil
		secret.Data, secret.StringData = nil, nil
	}
	return obj, nil
}

func (s *shoot) nodeAdded(obj any, before bool) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	s.seen(node.Name)
	s.addresses.replace(nil, internalIPs(node))
	s.queue.Add(item{kind: kindNode, name: node.Name})
	s.queue.AddAfter(item{kind: kindPlan}, planPause)
	// Spread, so that not all Leases are due at once. That of a Node from before our start is the more urgent one: a new Node
	// has the grace period of kube-controller-manager from its creation on, and other Nodes may yet be waiting to be created.
	share := rand.Float64() / 2 // #nosec G404 -- jitter
	if !before {
		share += 0.5
	}
	s.leases.AddAfter(node.Name, time.Duration(share*float64(renewal)))
	pods, err := s.pods.GetIndexer().IndexKeys(indexNode, node.Name)
	s.must(err)
	for _, key := range pods {
		namespace, name, err := cache.SplitMetaNamespaceKey(key)
		s.must(err)
		s.queue.Add(item{kind: kindPod, namespace: namespace, name: name})
	}
}

func (s *shoot) nodeUpdated(before, after any) {
	old, ok := before.(*corev1.Node)
	node, isNode := after.(*corev1.Node)
	if !ok || !isNode || old.ResourceVersion == node.ResourceVersion && old.ResourceVersion != "" {
		return
	}
	s.addresses.replace(internalIPs(old), internalIPs(node))
	s.queue.Add(item{kind: kindNode, name: node.Name})
	if existingOf(old) != existingOf(node) || old.Labels[LabelGroup] != node.Labels[LabelGroup] {
		s.queue.AddAfter(item{kind: kindPlan}, planPause)
	}
}

func (s *shoot) nodeDeleted(obj any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return
	}
	if node, ok := lastState(obj).(*corev1.Node); ok {
		s.addresses.replace(internalIPs(node), nil)
	}
	s.seen(key)
	s.forget(item{kind: kindNode, name: key})
	s.queue.Add(item{kind: kindNode, name: key})
	s.queue.AddAfter(item{kind: kindPlan}, planPause)
}

func (s *shoot) podChanged(before, after any) {
	var had []string
	if old, ok := before.(*corev1.Pod); ok {
		had = ipsOf(old)
	}
	if pod, ok := after.(*corev1.Pod); ok {
		s.addresses.replace(had, ipsOf(pod))
		s.queue.Add(item{kind: kindPod, namespace: pod.Namespace, name: pod.Name})
	}
}

func (s *shoot) podDeleted(obj any) {
	if pod, ok := lastState(obj).(*corev1.Pod); ok {
		s.addresses.replace(ipsOf(pod), nil)
		s.forget(item{kind: kindPod, namespace: pod.Namespace, name: pod.Name})
	}
}

// lastState returns the object that was deleted, as it was seen last.
func lastState(obj any) any {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return obj
}

func (s *shoot) oscUpdated(before, after any) {
	if checksumOf(before) != checksumOf(after) {
		s.lookAtAll()
	}
}

// checksumOf is what a Node that has applied the operating system config of a Secret is annotated with.
func checksumOf(secret any) string {
	if secret, ok := secret.(*corev1.Secret); ok {
		return secret.Annotations[nodeagentconfigv1alpha1.AnnotationKeyChecksumDownloadedOperatingSystemConfig]
	}
	return ""
}

// existingOf is what a plan has to know of a Node.
func existingOf(node *corev1.Node) existing {
	out := existing{name: node.Name, hash: node.Labels[LabelHash], going: node.DeletionTimestamp != nil}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			out.ready = condition.Status == corev1.ConditionTrue
		}
	}
	return out
}

// internalIPs are the addresses of a Node's own.
func internalIPs(node *corev1.Node) []string {
	var out []string
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			out = append(out, address.Address)
		}
	}
	return out
}
