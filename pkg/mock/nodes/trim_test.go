// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTrim(t *testing.T) {
	g := NewWithT(t)
	trimmer := &nodeTrimmer{}
	node := func(cpu string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, ManagedFields: []metav1.ManagedFieldsEntry{{}}},
			Status: corev1.NodeStatus{
				Capacity:   corev1.ResourceList{"cpu": resource.MustParse(cpu)},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "r", Message: "m"}},
				Images:     []corev1.ContainerImage{{}},
				NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", MachineID: "own"},
			},
		}
	}
	for range 2 {
		trimmed, err := trimmer.trim(node("2"))
		g.Expect(err).NotTo(HaveOccurred())
		want := node("2")
		want.ManagedFields, want.Status.Images = nil, nil
		g.Expect(trimmed).To(Equal(want))
	}
	g.Expect(trimmer.seen).To(HaveLen(2), "a capacity, and none for allocatable")

	for cpu := range 2 * maxShared {
		trimmed, err := trimmer.trim(node(fmt.Sprint(cpu + 1)))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(trimmed.(*corev1.Node).Status.Capacity.Cpu().Value()).To(BeEquivalentTo(cpu + 1))
	}
	g.Expect(len(trimmer.seen)).To(BeNumerically("<=", maxShared))

	other, err := trimmer.trim("something else")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(other).To(Equal("something else"))
}
