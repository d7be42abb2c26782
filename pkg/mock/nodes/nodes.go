// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	nodeagentconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/nodeagent/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes/stage"
)

// nodeRange is for Nodes of shoots that do not say where their Nodes are, and podRange for pods on Nodes without a range of
// their own. Both are for benchmarks of networks (RFC 2544), so they are nobody's.
const (
	nodeRange = "198.19.0.0/16"
	podRange  = "198.18.0.0/16"
)

// plan decides which Nodes there are to be next, and has those looked at of which it decided something.
func (s *shoot) plan() {
	byGroup := map[string][]existing{}
	all := s.nodes.GetStore().List()
	for _, obj := range all {
		if node, ok := obj.(*corev1.Node); ok {
			name := node.Labels[LabelGroup]
			byGroup[name] = append(byGroup[name], existingOf(node))
		}
	}

	s.lock.Lock()
	defer s.lock.Unlock()
	intents, due := make(map[string]intent, len(all)), []string{}
	for name, nodes := range byGroup {
		g := s.groups[name]
		for _, node := range nodes {
			switch {
			case g == nil:
				intents[node.name] = intent{remove: true}
				due = append(due, node.name)
				continue
			case node.hash == g.hash:
				intents[node.name] = intent{group: g}
			default:
				intents[node.name] = intent{}
			}
			if s.anew {
				due = append(due, node.name)
			}
		}
	}
	for name, g := range s.groups {
		create, remove := plan(g, byGroup[name])
		for _, node := range create {
			intents[node] = intent{group: g}
		}
		for _, node := range remove {
			intents[node] = intent{remove: true}
		}
		due = append(append(due, create...), remove...)
	}
	s.intents, s.anew = intents, false
	for _, name := range due {
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

// syncNode does what the plan says of a Node, and takes it to its next stage.
func (s *shoot) syncNode(ctx context.Context, key item) error {
	s.lock.Lock()
	want, planned := s.intents[key.name]
	s.lock.Unlock()
	node := s.node(key.name)
	switch {
	case !planned || (node != nil && node.DeletionTimestamp != nil):
		return nil
	case want.remove:
		return s.removeNode(ctx, node)
	case node == nil && want.group == nil:
		return nil
	case node == nil:
		if wait := s.making(key.name); wait > 0 {
			s.queue.AddAfter(key, wait)
			return nil
		}
		err := s.createNode(ctx, want.group, key.name)
		if err != nil {
			s.seen(key.name)
		}
		return err
	}
	if want.group != nil && want.group.hash == node.Labels[LabelHash] {
		if err := s.ensureMetadata(ctx, want.group, node); err != nil {
			return err
		}
	}
	object, err := s.nodeObject(want.group, node)
	if err != nil {
		return err
	}
	return s.pass(key, string(node.UID), node.ResourceVersion, object, func(next *stage.Compiled) (string, error) {
		if next.Next.Delete {
			return "", s.removeNode(ctx, node)
		}
		status, err := next.Status(object)
		if err != nil {
			return "", err
		}
		patched, err := s.client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, statusPatch(node.UID, status), metav1.PatchOptions{}, "status")
		return versionOf(patched, gone(err)), gone(err)
	})
}

// createNode creates a Node in the state to which its first stage leads.
func (s *shoot) createNode(ctx context.Context, g *group, name string) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(g.labels), Annotations: maps.Clone(g.annotations)},
		Spec:       corev1.NodeSpec{ProviderID: g.providerID + name, Taints: slices.Clone(g.taints)},
	}
	node.Labels[LabelHash] = g.hash
	node.Labels[corev1.LabelHostname] = hostname(name)
	if checksum := s.checksum(g); checksum != "" {
		node.Annotations[nodeagentconfigv1alpha1.AnnotationKeyChecksumAppliedOperatingSystemConfig] = checksum
	}
	object, err := s.nodeObject(g, node)
	if err != nil {
		return err
	}
	if first := s.stages.Match(kindNode, object); first != nil && !first.Next.Delete {
		status, err := first.Status(object)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(status, &node.Status); err != nil {
			return fmt.Errorf("stage %q does not make a status of a Node: %w", first.Name, err)
		}
	}
	if _, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Node %s: %w", name, err)
	}
	return nil
}

// ensureMetadata brings labels, annotations and taints that changed to a Node that stays. What a pool has no longer stays.
func (s *shoot) ensureMetadata(ctx context.Context, g *group, node *corev1.Node) error {
	annotations := maps.Clone(g.annotations)
	if checksum := s.checksum(g); checksum != "" {
		annotations[nodeagentconfigv1alpha1.AnnotationKeyChecksumAppliedOperatingSystemConfig] = checksum
	}
	metadata, spec := map[string]any{}, map[string]any{}
	if missing := missingFrom(node.Labels, g.labels); len(missing) > 0 {
		metadata["labels"] = missing
	}
	if missing := missingFrom(node.Annotations, annotations); len(missing) > 0 {
		metadata["annotations"] = missing
	}
	for _, taint := range g.taints {
		if !slices.ContainsFunc(node.Spec.Taints, func(has corev1.Taint) bool { return has.MatchTaint(&taint) && has.Value == taint.Value }) {
			// All at once, on the version that was looked at: taints are merged by key alone, and others set theirs.
			spec["taints"] = withTaints(node.Spec.Taints, g.taints)
			metadata["resourceVersion"] = node.ResourceVersion
		}
	}
	if len(metadata) == 0 && len(spec) == 0 {
		return nil
	}
	metadata["uid"] = node.UID
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if len(spec) > 0 && apierrors.IsConflict(err) {
		return err
	}
	return gone(err)
}

func missingFrom(has, wanted map[string]string) map[string]string {
	missing := map[string]string{}
	for name, value := range wanted {
		if current, ok := has[name]; !ok || current != value {
			missing[name] = value
		}
	}
	return missing
}

func withTaints(has, wanted []corev1.Taint) []corev1.Taint {
	out := slices.Clone(wanted)
	for _, taint := range has {
		if !slices.ContainsFunc(wanted, func(w corev1.Taint) bool { return w.MatchTaint(&taint) }) {
			out = append(out, taint)
		}
	}
	return out
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
	if node == nil {
		return nil
	}
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

// nodeObject is a Node as stages see it. Without a group, which is so for Nodes that are about to be replaced, the facts are
// what is on the Node.
func (s *shoot) nodeObject(g *group, node *corev1.Node) (map[string]any, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(node)
	if err != nil {
		return nil, fmt.Errorf("reading Node %s: %w", node.Name, err)
	}
	capacity, allocatable := node.Status.Capacity, node.Status.Allocatable
	info := node.Status.NodeInfo
	version, architecture, osImage := info.KubeletVersion, info.Architecture, info.OSImage
	if g != nil {
		capacity, allocatable, version, architecture, osImage = g.capacity, g.allocatable, g.version, g.architecture, g.osImage
	}
	facts := map[string]any{
		"now":            s.opts.Clock.Now().UTC().Format(time.RFC3339),
		"kubeletVersion": version,
		"architecture":   architecture,
		"osImage":        osImage,
		"capacity":       capacity,
		"allocatable":    allocatable,
		"addresses":      s.nodeAddresses(node.Name),
		"resized":        !sameCapacity(capacity, node.Status.Capacity) || !sameCapacity(allocatable, node.Status.Allocatable),
	}
	if s.opts.Kubelet.Host != "" {
		facts["kubeletPort"] = int64(s.opts.Kubelet.Port)
	}
	object["facts"] = facts
	return object, nil
}

// nodeAddresses are what a Node reports. KubeletEndpoint tells them.
func (s *shoot) nodeAddresses(name string) []any {
	address := func(kind corev1.NodeAddressType, value string) any {
		return map[string]any{"type": string(kind), "address": value}
	}
	var out []any
	host := s.opts.Kubelet.Host
	if _, err := netip.ParseAddr(host); err == nil {
		return append(out, address(corev1.NodeInternalIP, host), address(corev1.NodeHostName, name))
	}
	s.lock.Lock()
	ranges := s.ranges
	s.lock.Unlock()
	if len(ranges) == 0 {
		ranges = prefixes(nodeRange)
	}
	for _, own := range s.addresses.get(kindNode+"/"+name, ranges...) {
		out = append(out, address(corev1.NodeInternalIP, own))
	}
	out = append(out, address(corev1.NodeHostName, name))
	if host != "" {
		out = append(out, address(corev1.NodeExternalDNS, host))
	}
	return out
}

// statusPatch is a patch of a status that does not apply to another object of the same name.
func statusPatch(uid types.UID, status []byte) []byte {
	return fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":%s}`, uid, status)
}

// gone takes it for no error that an object is gone, or another one has its name by now: an event tells, or has told.
func gone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func versionOf(obj metav1.Object, err error) string {
	if err != nil || obj == nil {
		return ""
	}
	return obj.GetResourceVersion()
}
