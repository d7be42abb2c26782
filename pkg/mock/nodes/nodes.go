// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeagentconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/nodeagent/v1alpha1"
)

// nodeRange is for Nodes of shoots that do not say where their Nodes are, and podRange for pods on Nodes without a range of
// their own. Both are for benchmarks of networks (RFC 2544), so they are nobody's.
const (
	nodeRange = "198.19.0.0/16"
	podRange  = "198.18.0.0/16"

	// heartbeat and heartbeatJitter are the time between two heartbeats in the status of a Node: at least, and how much longer at
	// most. Leases are the heartbeat that is looked at. This is for people who look at the Node, and seldom, as a Node is large.
	heartbeat       = 10 * time.Minute
	heartbeatJitter = 10 * time.Minute
)

// nodeConditions are those of a Node that is well.
var nodeConditions = []corev1.NodeCondition{
	{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "no kubelet is behind this node"},
	{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "this node has no memory to run out of"},
	{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "this node has no disk"},
	{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "this node has no processes"},
	{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "NoNetworkNeeded", Message: "this node has no network"},
}

// plan decides which Nodes are missing and which are too many, and has these looked at; all, if all are to be.
func (s *shoot) plan() {
	byGroup, due := map[string][]existing{}, sets.New[string]()
	s.lock.Lock()
	defer s.lock.Unlock()
	s.missing, s.surplus = map[string]*group{}, sets.New[string]()
	for _, obj := range s.nodes.GetStore().List() {
		node, ok := obj.(*corev1.Node)
		if !ok {
			continue
		}
		name := node.Labels[LabelGroup]
		if byGroup[name] = append(byGroup[name], existingOf(node)); s.groups[name] == nil {
			s.surplus.Insert(node.Name)
		}
		if s.anew {
			due.Insert(node.Name)
		}
	}
	for name, g := range s.groups {
		create, remove := plan(g, byGroup[name])
		for _, node := range create {
			s.missing[node] = g
		}
		s.surplus.Insert(remove...)
	}
	s.anew = false
	for name := range due.Union(s.surplus).Union(sets.KeySet(s.missing)) {
		s.queue.Add(item{kind: kindNode, name: name})
	}
}

func (s *shoot) node(name string) *corev1.Node {
	obj, ok, err := s.nodes.GetStore().GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	node, _ := obj.(*corev1.Node)
	return node
}

// syncNode does what the plan says of a Node, and else keeps it as its group says, or as it is if that has another hash by now.
func (s *shoot) syncNode(ctx context.Context, key item) error {
	node := s.node(key.name)
	s.lock.Lock()
	g, isSurplus := s.missing[key.name], s.surplus.Has(key.name)
	if node != nil {
		g = s.groups[node.Labels[LabelGroup]]
	}
	s.lock.Unlock()
	switch {
	case node == nil && g == nil, node != nil && node.DeletionTimestamp != nil:
		return nil
	case node == nil:
		if wait := s.making(key.name); wait > 0 {
			s.queue.AddAfter(key, wait)
			return nil
		}
		err := s.createNode(ctx, g, key.name)
		if err != nil {
			s.seen(key.name)
		}
		return err
	case isSurplus:
		return s.removeNode(ctx, node)
	case g != nil && g.hash != node.Labels[LabelHash]:
		g = nil
	}
	if g != nil {
		if err := s.ensureMetadata(ctx, g, node); err != nil {
			return err
		}
	}

	status := s.nodeStatus(g, node)
	if isAsWanted(&node.Status, &status) {
		due := heartbeatOf(node).Add(heartbeat + share(node.Name, heartbeatJitter))
		if wait := due.Sub(s.opts.Clock.Now()); wait > 0 {
			s.queue.AddAfter(key, wait)
			return nil
		}
	}
	if s.isOutdated(key, node.ResourceVersion) {
		return nil
	}
	patch, err := statusPatch(node.UID, status)
	if err != nil {
		return err
	}
	answer, err := s.client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return s.patched(key, node.ResourceVersion, answer, err)
}

// nodeStatus returns the status that a Node is to have now, of which it keeps all but the conditions and addresses if it is about
// to be replaced and has no group therefore.
func (s *shoot) nodeStatus(g *group, node *corev1.Node) corev1.NodeStatus {
	now := metav1.NewTime(s.opts.Clock.Now())
	status := corev1.NodeStatus{Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable, NodeInfo: node.Status.NodeInfo, Addresses: s.nodeAddresses(node)}
	if g != nil {
		status.Capacity, status.Allocatable, status.NodeInfo = g.capacity, g.allocatable, g.nodeInfo(node.Name)
	}
	if s.opts.Kubelet.Host != "" {
		status.DaemonEndpoints.KubeletEndpoint.Port = s.opts.Kubelet.Port
	}
	status.Conditions = slices.Clone(nodeConditions)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		for _, has := range node.Status.Conditions {
			if has.Type == c.Type && has.Status == c.Status && !has.LastTransitionTime.IsZero() {
				c.LastTransitionTime = has.LastTransitionTime
			}
		}
	}
	return status
}

// isAsWanted reports whether a Node needs nothing but a heartbeat. It is not ready before its first status, and after
// kube-controller-manager has missed its heartbeats. A patch version of Kubernetes, the CloudProfile and the reserved resources change
// for machines that stay, and the fake kubelet may be reached elsewhere.
func isAsWanted(has, wanted *corev1.NodeStatus) bool {
	return slices.ContainsFunc(has.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}) &&
		has.NodeInfo.KubeletVersion == wanted.NodeInfo.KubeletVersion &&
		hasCapacity(has.Capacity, wanted.Capacity) && hasCapacity(has.Allocatable, wanted.Allocatable) &&
		has.DaemonEndpoints == wanted.DaemonEndpoints &&
		// An address of a type that is not wanted any more stays, as addresses are merged by type.
		!slices.ContainsFunc(wanted.Addresses, func(address corev1.NodeAddress) bool { return !slices.Contains(has.Addresses, address) })
}

// heartbeatOf is the last heartbeat in the status of a Node.
func heartbeatOf(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastHeartbeatTime.Time
		}
	}
	return time.Time{}
}

// share is a part of a duration, always the same for a name and different for others, so that what was created together does not
// stay together.
func share(name string, of time.Duration) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	return time.Duration(float64(of) * float64(hash.Sum32()) / math.MaxUint32)
}

// createNode creates a Node with its first status, as a kubelet does it, so that one request makes a Ready Node.
func (s *shoot) createNode(ctx context.Context, g *group, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: g.providerID + name}}
	s.setMetadata(g, node)
	node.Labels[corev1.LabelHostname] = hostname(name)
	node.Status = s.nodeStatus(g, node)
	if _, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Node %s: %w", name, err)
	}
	return nil
}

// ensureMetadata brings labels, annotations and taints that changed to a Node that stays. What a pool has no longer stays. The
// patch is for the version that was looked at, as it has all taints and others set theirs.
func (s *shoot) ensureMetadata(ctx context.Context, g *group, node *corev1.Node) error {
	wanted := *node
	wanted.Labels, wanted.Annotations, wanted.Spec.Taints = maps.Clone(node.Labels), maps.Clone(node.Annotations), slices.Clone(node.Spec.Taints)
	s.setMetadata(g, &wanted)
	if maps.Equal(node.Labels, wanted.Labels) && maps.Equal(node.Annotations, wanted.Annotations) && slices.Equal(node.Spec.Taints, wanted.Spec.Taints) {
		return nil
	}
	before := *node
	before.UID, before.ResourceVersion = "", "" // so that the patch has them
	patch, err := client.MergeFrom(&before).Data(&wanted)
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return client.IgnoreNotFound(err)
}

// setMetadata gives a Node the labels, annotations and taints of its group.
func (s *shoot) setMetadata(g *group, node *corev1.Node) {
	for name, value := range g.labels {
		metav1.SetMetaDataLabel(&node.ObjectMeta, name, value)
	}
	for name, value := range g.annotations {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, name, value)
	}
	if checksum := s.checksum(g); checksum != "" {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, nodeagentconfigv1alpha1.AnnotationKeyChecksumAppliedOperatingSystemConfig, checksum)
	}
	for _, taint := range g.taints {
		if i := slices.IndexFunc(node.Spec.Taints, func(has corev1.Taint) bool { return has.MatchTaint(&taint) }); i >= 0 {
			node.Spec.Taints[i].Value = taint.Value
		} else {
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
	}
}

// checksum is that of the operating system config which the Nodes of a group claim to have applied, once it is there.
func (s *shoot) checksum(g *group) string {
	obj, ok, err := s.oscs.GetStore().GetByKey(metav1.NamespaceSystem + "/" + g.oscSecret)
	if err != nil || !ok {
		return ""
	}
	return checksumOf(obj)
}

// removeNode deletes a Node and the pods on it, which nobody else would do for the better part of a minute.
func (s *shoot) removeNode(ctx context.Context, node *corev1.Node) error {
	err := s.client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(node.UID))})
	if gone(err) != nil {
		return fmt.Errorf("deleting Node %s: %w", node.Name, err)
	}
	pods, err := s.pods.GetIndexer().ByIndex(indexNode, node.Name)
	if err != nil {
		return err
	}
	for _, obj := range pods {
		if pod, ok := obj.(*corev1.Pod); ok {
			if err := deletePod(ctx, s.client, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// nodeAddresses are what a Node reports. KubeletEndpoint tells them.
func (s *shoot) nodeAddresses(node *corev1.Node) []corev1.NodeAddress {
	host, hostname := s.opts.Kubelet.Host, corev1.NodeAddress{Type: corev1.NodeHostName, Address: node.Name}
	if _, err := netip.ParseAddr(host); err == nil {
		return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}, hostname}
	}
	s.lock.Lock()
	ranges := s.ranges
	s.lock.Unlock()
	var out []corev1.NodeAddress
	for _, own := range s.addresses.next(internalIPs(node), ranges...) {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: own})
	}
	out = append(out, hostname)
	if host != "" {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: host})
	}
	return out
}

// statusPatch is a patch of a status that does not apply to another object of the same name.
func statusPatch(uid types.UID, status any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
}

// gone returns nil for an object that is gone, or replaced by another one of its name: an event tells, or has told.
func gone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
