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

	for informer, setUp := range map[cache.SharedIndexInformer]struct {
		transform cache.TransformFunc
		handler   cache.ResourceEventHandler
	}{
		s.nodes: {(&nodeTrimmer{}).trim, cache.ResourceEventHandlerDetailedFuncs{AddFunc: s.nodeAdded, UpdateFunc: s.nodeUpdated, DeleteFunc: s.nodeDeleted}},
		s.pods:  {trimPod, cache.ResourceEventHandlerFuncs{AddFunc: s.podAdded, UpdateFunc: func(_, obj any) { s.podAdded(obj) }, DeleteFunc: s.podDeleted}},
		s.oscs:  {trimSecret, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { s.lookAtAll() }, UpdateFunc: s.oscUpdated}},
	} {
		s.must(informer.SetTransform(setUp.transform))
		s.must(informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			s.log.V(1).Info("A watch has ended", "reason", fmt.Sprint(err))
		}))
		_, err := informer.AddEventHandler(setUp.handler)
		s.must(err)
	}
}

// must notes what can only happen to informers that run already.
func (s *shoot) must(err error) {
	if err != nil {
		s.log.Error(err, "Setting up a cache")
	}
}

// trimPod and trimSecret keep what stages, templates and plans look at. They are handed objects of the right kind.
func trimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields = nil
	pod.Spec = corev1.PodSpec{
		NodeName:            pod.Spec.NodeName,
		HostNetwork:         pod.Spec.HostNetwork,
		RestartPolicy:       pod.Spec.RestartPolicy,
		ReadinessGates:      pod.Spec.ReadinessGates,
		Containers:          trimContainers(pod.Spec.Containers),
		InitContainers:      trimContainers(pod.Spec.InitContainers),
		EphemeralContainers: trimEphemeral(pod.Spec.EphemeralContainers),
	}
	return pod, nil
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range containers {
		out = append(out, corev1.Container{Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy, Resources: c.Resources})
	}
	return out
}

func trimEphemeral(containers []corev1.EphemeralContainer) []corev1.EphemeralContainer {
	var out []corev1.EphemeralContainer
	for _, c := range containers {
		out = append(out, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Image: c.Image}})
	}
	return out
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
	s.queue.Add(item{kind: kindNode, name: node.Name})
	s.queue.AddAfter(item{kind: kindPlan}, planPause)
	// Spread, so that not all Leases are due at once. That of a Node from before our start is the more urgent one: a new Node
	// has the grace period of kube-controller-manager from its creation on, and other Nodes may yet be waiting to be created.
	share := rand.Float64() / 2 // #nosec G404 -- jitter
	if !before {
		share += 0.5
	}
	s.leases.AddAfter(node.Name, time.Duration(share*float64(s.opts.Renewal)))
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
	s.seen(key)
	s.addresses.release(kindNode + "/" + key)
	s.forget(item{kind: kindNode, name: key})
	s.queue.Add(item{kind: kindNode, name: key})
	s.queue.AddAfter(item{kind: kindPlan}, planPause)
}

func (s *shoot) podAdded(obj any) {
	if pod, ok := obj.(*corev1.Pod); ok {
		s.queue.Add(item{kind: kindPod, namespace: pod.Namespace, name: pod.Name})
	}
}

func (s *shoot) podDeleted(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		s.addresses.release(string(pod.UID))
		s.forget(item{kind: kindPod, namespace: pod.Namespace, name: pod.Name})
	}
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

// holdAddresses notes the addresses that Nodes and pods have from an earlier run.
func (s *shoot) holdAddresses() {
	for _, obj := range s.nodes.GetStore().List() {
		if node, ok := obj.(*corev1.Node); ok {
			for _, address := range node.Status.Addresses {
				if address.Type == corev1.NodeInternalIP {
					s.addresses.hold(kindNode+"/"+node.Name, address.Address)
				}
			}
		}
	}
	for _, obj := range s.pods.GetStore().List() {
		if pod, ok := obj.(*corev1.Pod); ok && !pod.Spec.HostNetwork {
			for _, ip := range pod.Status.PodIPs {
				s.addresses.hold(string(pod.UID), ip.IP)
			}
		}
	}
}
