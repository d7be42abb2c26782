// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeagentconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/nodeagent/v1alpha1"
	"github.com/gardener/gardener/pkg/utils"
)

const (
	// nodeRange is for Nodes of shoots without spec.networking.nodes, and podRange for pods on Nodes without podCIDRs. Both are for
	// benchmarks of networks (RFC 2544), so nobody has these addresses.
	nodeRange = "198.19.0.0/16"
	podRange  = "198.18.0.0/16"

	// heartbeat is the time between two heartbeats in the status of a Node, and heartbeatJitter the longest extra time.
	// kube-controller-manager looks at Leases. These are for people, and rare, as a Node is large.
	heartbeat       = 10 * time.Minute
	heartbeatJitter = 10 * time.Minute
)

// nodeConditions are those of a healthy Node.
var nodeConditions = []corev1.NodeCondition{
	{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "no kubelet is behind this node"},
	{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "this node has no memory to run out of"},
	{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "this node has no disk"},
	{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "this node has no processes"},
	{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "NoNetworkNeeded", Message: "this node has no network"},
}

// plan decides which Nodes are missing and which are surplus, and queues these.
func (s *shoot) plan() {
	s.lock.Lock()
	defer s.lock.Unlock()
	byGroup := map[string][]existing{}
	s.missing, s.surplus = map[string]*group{}, sets.New[string]()
	for _, obj := range s.nodes.GetStore().List() {
		node := obj.(*corev1.Node)
		if node.Labels == nil {
			continue // It is too large to be served.
		}
		name := node.Labels[LabelGroup]
		if byGroup[name] = append(byGroup[name], existingOf(node)); s.groups[name] == nil {
			s.surplus.Insert(node.Name)
		}
	}
	for name, g := range s.groups {
		create, remove := plan(g, byGroup[name])
		for _, node := range create {
			s.missing[node] = g
		}
		s.surplus.Insert(remove...)
	}
	for name := range s.surplus.Union(sets.KeySet(s.missing)) {
		s.queue.Add(item{Name: name})
	}
}

// node returns a Node from the cache, or nil.
func (s *shoot) node(name string) *corev1.Node {
	obj, _, _ := s.nodes.GetStore().GetByKey(name) // It has no errors.
	node, _ := obj.(*corev1.Node)
	return node
}

// syncNode creates or deletes a Node by the plan, or else keeps it as its group says. A Node with another hash than its group
// will be replaced, and stays as it is.
func (s *shoot) syncNode(ctx context.Context, key item) error {
	node := s.node(key.Name)
	s.lock.Lock()
	g, isSurplus := s.missing[key.Name], s.surplus.Has(key.Name)
	if node != nil {
		g = s.groups[node.Labels[LabelGroup]]
	}
	s.lock.Unlock()
	switch {
	case node == nil && g == nil, node != nil && (node.DeletionTimestamp != nil || node.Labels == nil): // trimNode leaves no labels of a Node that is too large.
		return nil
	case node == nil && s.isOutdated(key, ""):
		s.queue.AddAfter(key, seenAfter)
		return nil
	case node == nil:
		s.wrote(key, "", "") // The event may come before the answer.
		err := s.createNode(ctx, g, key.Name)
		if err != nil {
			s.forget(key)
		}
		return err
	case isSurplus:
		return s.removeNode(ctx, node)
	case g != nil && g.hash != node.Labels[LabelHash]:
		g = nil
	case g != nil:
		if err := s.ensureMetadata(ctx, g, node); err != nil {
			return err
		}
	}

	status := s.nodeStatus(g, node)
	if isAsWanted(&node.Status, &status) {
		due := readyOf(&node.Status).LastHeartbeatTime.Add(heartbeat + share(node.Name, heartbeatJitter))
		if wait := due.Sub(s.opts.Clock.Now()); wait > 0 {
			s.queue.AddAfter(key, wait)
			return nil
		}
	}
	if s.isOutdated(key, node.ResourceVersion) {
		return nil
	}
	return patchStatus(ctx, s, key, node, status, s.client.CoreV1().Nodes().Patch)
}

// nodeStatus returns the wanted status of a Node. Without a group, as the Node will be replaced, only its conditions and addresses
// change.
func (s *shoot) nodeStatus(g *group, node *corev1.Node) corev1.NodeStatus {
	now := metav1.NewTime(s.opts.Clock.Now())
	status := corev1.NodeStatus{Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable, NodeInfo: node.Status.NodeInfo, Addresses: s.nodeAddresses(node)}
	if g != nil {
		status.Capacity, status.Allocatable, status.NodeInfo = g.capacity, g.allocatable, g.nodeInfo(node.Name)
	}
	status.DaemonEndpoints.KubeletEndpoint.Port = s.opts.Kubelet.Port
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

// isAsWanted reports whether a Node needs nothing but a heartbeat. A Node is not ready before its first status, and after
// kube-controller-manager has missed its heartbeats. A patch version of Kubernetes, the CloudProfile, the reserved resources and the
// address of the fake kubelet may change while Nodes stay.
func isAsWanted(has, wanted *corev1.NodeStatus) bool {
	return readyOf(has).Status == corev1.ConditionTrue &&
		has.NodeInfo.KubeletVersion == wanted.NodeInfo.KubeletVersion &&
		hasCapacity(has.Capacity, wanted.Capacity) && hasCapacity(has.Allocatable, wanted.Allocatable) &&
		has.DaemonEndpoints == wanted.DaemonEndpoints &&
		// An address of a type that is not wanted any more stays, as addresses are merged by type.
		!slices.ContainsFunc(wanted.Addresses, func(address corev1.NodeAddress) bool { return !slices.Contains(has.Addresses, address) })
}

// readyOf returns the condition Ready in a status, or an empty one.
func readyOf(status *corev1.NodeStatus) (ready corev1.NodeCondition) {
	if i := slices.IndexFunc(status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }); i >= 0 {
		ready = status.Conditions[i]
	}
	return ready
}

// share returns a part of a duration, which depends on the name: objects that were created together do not stay together.
func share(name string, of time.Duration) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	return time.Duration(float64(of) * float64(hash.Sum32()) / math.MaxUint32)
}

// createNode creates a Node with its first status, as a kubelet does it, so that one request makes a Ready Node.
func (s *shoot) createNode(ctx context.Context, g *group, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: g.providerID + name}}
	s.setMetadata(g, node)
	node.Labels[corev1.LabelHostname] = name
	node.Status = s.nodeStatus(g, node)
	if _, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Node %s: %w", name, err)
	}
	return nil
}

// ensureMetadata updates labels, annotations and taints of a Node that stays. Those that a pool does not have any more stay, too. The
// patch is for the version that was read, as it has all taints, and others set theirs.
func (s *shoot) ensureMetadata(ctx context.Context, g *group, node *corev1.Node) error {
	wanted := *node
	wanted.Spec.Taints = slices.Clone(node.Spec.Taints)
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

// setMetadata sets on a Node the labels, annotations and taints of its group.
func (s *shoot) setMetadata(g *group, node *corev1.Node) {
	node.Labels = utils.MergeStringMaps(node.Labels, g.labels)
	node.Annotations = utils.MergeStringMaps(node.Annotations, g.annotations)
	if osc, ok, _ := s.oscs.GetStore().GetByKey(metav1.NamespaceSystem + "/" + g.oscSecret); ok && checksumOf(osc) != "" {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, nodeagentconfigv1alpha1.AnnotationKeyChecksumAppliedOperatingSystemConfig, checksumOf(osc))
	}
	for _, taint := range g.taints {
		if i := slices.IndexFunc(node.Spec.Taints, func(has corev1.Taint) bool { return has.MatchTaint(&taint) }); i >= 0 {
			node.Spec.Taints[i].Value = taint.Value
		} else {
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
	}
}

// removeNode deletes a Node and the pods on it, for which garbage collection takes the better part of a minute.
func (s *shoot) removeNode(ctx context.Context, node *corev1.Node) error {
	err := s.client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(node.UID))})
	if gone(err) != nil {
		return fmt.Errorf("deleting Node %s: %w", node.Name, err)
	}
	for _, pod := range s.podsOn(node.Name) {
		if err := deletePod(ctx, s.client, pod); err != nil {
			return err
		}
	}
	return nil
}

// nodeAddresses returns the addresses of a Node, as KubeletEndpoint describes them.
func (s *shoot) nodeAddresses(node *corev1.Node) []corev1.NodeAddress {
	s.lock.Lock()
	ranges := s.ranges
	s.lock.Unlock()
	var out []corev1.NodeAddress
	for _, own := range s.addresses.next(internalIPs(node), ranges...) {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: own})
	}
	return append(out,
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: node.Name},
		corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: s.opts.Kubelet.Host})
}

// internalIPs returns the IP addresses of a Node.
func internalIPs(node *corev1.Node) (out []string) {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			out = append(out, address.Address)
		}
	}
	return out
}

// addresses hands out addresses of Nodes and pods. The search continues behind the last address, so one that no cache shows yet is
// not handed out again, and addresses are reused late.
type addresses struct {
	// isUsed reports whether a cached object has an address.
	isUsed func(address string) bool
	lock   sync.Mutex
	last   map[netip.Prefix]netip.Addr
}

func newAddresses(isUsed func(string) bool) *addresses {
	return &addresses{isUsed: isUsed, last: map[netip.Prefix]netip.Addr{}}
}

// next returns an address from each range: one that the object has, or one that is free. A range that is full gives none.
func (a *addresses) next(has []string, ranges ...netip.Prefix) []string {
	a.lock.Lock()
	defer a.lock.Unlock()
	var out []string
	for _, prefix := range ranges {
		if i := slices.IndexFunc(has, func(text string) bool {
			address, err := netip.ParseAddr(text)
			return err == nil && prefix.Contains(address)
		}); i >= 0 {
			out = append(out, has[i])
		} else if address, ok := a.free(prefix.Masked()); ok {
			out = append(out, address.String())
		}
	}
	return out
}

// searchBits limits how many addresses of a range are tried: as many as a range has that leaves so many bits to its hosts.
const searchBits = 16

func (a *addresses) free(prefix netip.Prefix) (netip.Addr, bool) {
	first := prefix.Addr().Next()
	next := first
	if last, ok := a.last[prefix]; ok {
		next = last.Next()
	}
	// After the last address of a family comes none, which is in no range.
	for range 1 << min(searchBits, prefix.Addr().BitLen()-prefix.Bits()) {
		// Not the address of the network, that of the gateway, and the broadcast address of IPv4.
		if !prefix.Contains(next) || (next.Is4() && !prefix.Contains(next.Next())) {
			next = first.Next()
		}
		if next != first && prefix.Contains(next) && !a.isUsed(next.String()) {
			// It is only where to go on, and who owns the shoot decides which ranges Nodes have.
			if len(a.last) > 2*nodesMax {
				clear(a.last)
			}
			a.last[prefix] = next
			return next, true
		}
		next = next.Next()
	}
	return netip.Addr{}, false
}

// prefixes returns the texts that are ranges of addresses, parsed.
func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			out = append(out, prefix)
		}
	}
	return out
}
