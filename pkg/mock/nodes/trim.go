// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"slices"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
)

// maxShared is how many different capacities are remembered. There are few groups of Nodes, and others when one is replaced.
const maxShared = 64

// nodeTrimmer keeps of Nodes what stages, templates and plans look at. Nodes of a group differ in little more than their names,
// and there are thousands of them in the cache, so what they have in common is kept once. What it has seen is not to be changed.
type nodeTrimmer struct {
	lock sync.Mutex
	seen []corev1.ResourceList
}

// trim is for an informer, which hands over objects that nobody else has.
func (t *nodeTrimmer) trim(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	node.ManagedFields = nil
	node.Status.Images, node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil, nil
	node.Labels, node.Annotations = sharedMap(node.Labels), sharedMap(node.Annotations)
	for i := range node.Status.Conditions {
		condition := &node.Status.Conditions[i]
		condition.Type, condition.Status = shared(condition.Type), shared(condition.Status)
		condition.Reason, condition.Message = shared(condition.Reason), shared(condition.Message)
	}
	node.Status.Capacity, node.Status.Allocatable = t.resources(node.Status.Capacity), t.resources(node.Status.Allocatable)
	info := &node.Status.NodeInfo
	for _, text := range []*string{&info.KernelVersion, &info.OSImage, &info.ContainerRuntimeVersion, &info.KubeletVersion, &info.OperatingSystem, &info.Architecture} {
		*text = shared(*text)
	}
	return node, nil
}

func (t *nodeTrimmer) resources(list corev1.ResourceList) corev1.ResourceList {
	t.lock.Lock()
	defer t.lock.Unlock()
	if i := slices.IndexFunc(t.seen, func(other corev1.ResourceList) bool { return sameCapacity(other, list) }); i >= 0 {
		return t.seen[i]
	}
	if len(t.seen) == maxShared {
		t.seen = t.seen[1:]
	}
	t.seen = append(t.seen, list)
	return list
}

// shared returns the same text, of which there is one in memory.
func shared[T ~string](text T) T { return unique.Make(text).Value() }

func sharedMap(texts map[string]string) map[string]string {
	out := make(map[string]string, len(texts))
	for name, value := range texts {
		out[shared(name)] = shared(value)
	}
	return out
}
