// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"strings"
	"testing"
	"unsafe"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTrim(t *testing.T) {
	g := NewWithT(t)
	_, s, groups := newTestShoot(t, nil)
	s.want(groups, nil)
	received := func(change func(*corev1.Node)) *corev1.Node {
		node := existingNode(s, groups[0])
		for i := range node.Status.Conditions {
			c := &node.Status.Conditions[i]
			c.Reason, c.Message = strings.Clone(c.Reason), strings.Clone(c.Message)
		}
		node.Status.Capacity, node.Status.NodeInfo.OSImage = node.Status.Capacity.DeepCopy(), strings.Clone(node.Status.NodeInfo.OSImage)
		if change != nil {
			change(node)
		}
		return node
	}
	for name, change := range map[string]func(*corev1.Node){
		"a Node as it was created":        nil,
		"one that others have written to": func(n *corev1.Node) { n.Labels["other"], n.Annotations["other"] = "a", "b" },
		"one of a group that is gone":     func(n *corev1.Node) { n.Labels[LabelGroup] = "gone" },
		"one that is lost, of another size": func(n *corev1.Node) {
			n.Status.Conditions[0].Message, n.Status.Capacity["cpu"] = "lost", resource.MustParse("77")
		},
		"one with another system than wanted": func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1" },
	} {
		node := received(change)
		want := node.DeepCopy()
		node.ManagedFields, node.Status.Images = []metav1.ManagedFieldsEntry{{}}, []corev1.ContainerImage{{}}
		trimmed, err := s.trimNode(node)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(trimmed).To(Equal(want), name)
	}

	trimmed, err := s.trimNode(received(nil))
	g.Expect(err).NotTo(HaveOccurred())
	node := trimmed.(*corev1.Node)
	g.Expect(unsafe.StringData(node.Status.Conditions[0].Message)).To(BeIdenticalTo(unsafe.StringData(nodeConditions[0].Message)), "kept once")
	g.Expect(unsafe.StringData(node.Status.NodeInfo.OSImage)).To(BeIdenticalTo(unsafe.StringData(groups[0].osImage)), "kept once")

	other, err := s.trimNode("something else")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(other).To(Equal("something else"))
}

func TestTrimPod(t *testing.T) {
	g := NewWithT(t)
	pod := testPod(func(p *corev1.Pod) {
		p.Labels, p.Annotations = map[string]string{"app": "a"}, map[string]string{"large": "text"}
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "d", Args: []string{"large"}}}}
	})
	want := pod.DeepCopy()
	want.Labels, want.Annotations, want.Spec.EphemeralContainers[0].Args = nil, nil, nil
	trimmed, err := trimPod(pod)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(trimmed.(*corev1.Pod).ObjectMeta).To(Equal(want.ObjectMeta))
	g.Expect(trimmed.(*corev1.Pod).Spec.EphemeralContainers).To(Equal(want.Spec.EphemeralContainers))
}
