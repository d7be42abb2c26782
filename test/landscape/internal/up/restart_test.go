// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func unstructuredOf(g Gomega, objects ...any) []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, unstructured.Unstructured{Object: content})
	}
	return all
}

func TestPodsOfBeforeTheStartDoNotCount(t *testing.T) {
	g := NewWithT(t)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pod := func(name string, ready corev1.ConditionStatus, started time.Time) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: name}, Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
			ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}}}},
		}}
	}
	after := pod("after", corev1.ConditionTrue, start)
	ended := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}

	done, text := runSince(start, unstructuredOf(g, after, ended))
	g.Expect(done).To(BeTrue(), text)
	g.Expect(text).To(Equal("1 pods"))
	done, _ = runSince(start, nil)
	g.Expect(done).To(BeTrue(), "a landscape without Gardener has none")
	for _, other := range []*corev1.Pod{
		pod("before", corev1.ConditionTrue, start.Add(-time.Second)),
		pod("unready", corev1.ConditionFalse, start),
		{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "pending"}, Status: corev1.PodStatus{Phase: corev1.PodPending}},
	} {
		done, text = runSince(start, unstructuredOf(g, after, other))
		g.Expect(done).To(BeFalse())
		g.Expect(text).To(Equal("Pod garden/" + other.Name + " is not Ready yet"))
	}
}

func TestStopAndStartNeedALandscape(t *testing.T) {
	g := NewWithT(t)
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}, Out: io.Discard, Now: time.Now}
	for _, act := range []func(context.Context) error{l.Stop, l.Start} {
		err := act(t.Context())
		if os.Geteuid() == 0 {
			g.Expect(err).To(MatchError(ContainSubstring("there is no landscape; bring it up with make up")))
		} else {
			g.Expect(err).To(MatchError(ContainSubstring("run it with sudo")))
		}
		g.Expect(l.Layout.State()).NotTo(BeADirectory(), "nothing was made")
	}
}

func TestNodesSayThemselvesThatTheyAreReady(t *testing.T) {
	g := NewWithT(t)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	node := func(status corev1.ConditionStatus, heartbeat time.Time) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "machine"}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(heartbeat)}},
		}}
	}
	done, _ := readySince(start, unstructuredOf(g, node(corev1.ConditionTrue, start.Add(time.Second))))
	g.Expect(done).To(BeTrue())
	for _, other := range []*corev1.Node{node(corev1.ConditionTrue, start.Add(-time.Second)), node(corev1.ConditionUnknown, start.Add(time.Second))} {
		done, text := readySince(start, unstructuredOf(g, other))
		g.Expect(done).To(BeFalse())
		g.Expect(text).To(Equal("Node machine is not Ready yet"))
	}
}
