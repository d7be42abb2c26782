// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes/stage"
)

const testNow = "2030-01-01T00:00:00Z"

func testPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "1-2-3", Generation: 1},
		Spec: corev1.PodSpec{
			NodeName: "node", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "app", Image: "app: latest"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func runningPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := testPod()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ObservedGeneration = 1
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Image: "app: latest", RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(0, 0)}}}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func ofJob(pod *corev1.Pod) {
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Controller: new(true)}}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
}

func deleting(pod *corev1.Pod) {
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{}, new(int64(30))
	*pod.DeletionTimestamp = metav1.Unix(1, 0)
}

func held(pod *corev1.Pod) { pod.Finalizers = []string{"batch.kubernetes.io/job-tracking"} }

func object(t *testing.T, obj any, facts map[string]any) map[string]any {
	t.Helper()
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	facts["now"] = testNow
	out["facts"] = facts
	return out
}

func builtIn(t *testing.T) *stage.Set {
	t.Helper()
	set, err := loadStages(nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return set
}

func TestPodsPassToTheirNextStage(t *testing.T) {
	set := builtIn(t)
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"a new one runs":                                 {testPod(), "pod-running"},
		"one without a phase runs":                       {testPod(func(p *corev1.Pod) { p.Status.Phase = "" }), "pod-running"},
		"one that runs stays":                            {runningPod(), ""},
		"one of a Job runs first":                        {testPod(ofJob), "pod-running"},
		"one of a Job completes":                         {runningPod(ofJob), "pod-completed"},
		"one of a Job that has completed stays":          {runningPod(ofJob, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), ""},
		"one that never restarts but has no Job stays":   {runningPod(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }), ""},
		"one that a Job owns but does not control stays": {runningPod(ofJob, func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }), ""},
		"one with another generation is changed":         {runningPod(func(p *corev1.Pod) { p.Generation = 2 }), "pod-changed"},
		"one from before generations stays":              {runningPod(func(p *corev1.Pod) { p.Generation = 0; p.Status.ObservedGeneration = 0 }), ""},
		"one that lost its readiness gets it back": {runningPod(func(p *corev1.Pod) {
			p.Status.Conditions[1].Status = corev1.ConditionFalse
		}), "pod-ready-again"},
		"one that is deleted goes":                             {runningPod(deleting), "pod-deleted"},
		"one that is deleted before it runs goes":              {testPod(deleting), "pod-deleted"},
		"one that is deleted but held ends first":              {runningPod(deleting, held), "pod-terminated"},
		"one that is held and has ended goes":                  {runningPod(deleting, held, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), "pod-deleted"},
		"one that is held and was asked to go at once is left": {runningPod(deleting, held, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed; *p.DeletionGracePeriodSeconds = 0 }), ""},
		"one that has failed stays":                            {runningPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if next := set.Match(kindPod, object(t, test.pod, map[string]any{})); next != nil {
				got = next.Name
			}
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
}

// podStatus renders the next status of a pod.
func podStatus(t *testing.T, pod *corev1.Pod) *corev1.PodStatus {
	t.Helper()
	g := NewWithT(t)
	data := object(t, pod, map[string]any{"hostIPs": []string{"10.250.0.2"}, "podIPs": []string{"10.64.0.2", "2001:db8::2"}})
	next := builtIn(t).Match(kindPod, data)
	g.Expect(next).NotTo(BeNil())
	raw, err := next.Status(data)
	g.Expect(err).NotTo(HaveOccurred())
	status := &corev1.PodStatus{}
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.DisallowUnknownFields()
	g.Expect(decoder.Decode(status)).To(Succeed())
	return status
}

func TestPodStatuses(t *testing.T) {
	t.Run("a pod runs, with its init containers, sidecars, gates and addresses", func(t *testing.T) {
		g := NewWithT(t)
		status := podStatus(t, testPod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "i"}, {Name: "sidecar", Image: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.org/gate"}}
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "d"}}}
		}))
		g.Expect(status.Phase).To(Equal(corev1.PodRunning))
		g.Expect(status.ObservedGeneration).To(BeEquivalentTo(1))
		g.Expect(status.PodIP).To(Equal("10.64.0.2"))
		g.Expect(status.PodIPs).To(Equal([]corev1.PodIP{{IP: "10.64.0.2"}, {IP: "2001:db8::2"}}))
		g.Expect(status.HostIP).To(Equal("10.250.0.2"))
		g.Expect(status.StartTime.UTC().Format("2006-01-02T15:04:05Z")).To(Equal(testNow))
		for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized, corev1.PodReadyToStartContainers, "example.org/gate"} {
			g.Expect(status.Conditions).To(ContainElement(And(HaveField("Type", kind), HaveField("Status", corev1.ConditionTrue))))
		}
		g.Expect(status.ContainerStatuses).To(ConsistOf(And(HaveField("Image", "app: latest"), HaveField("Ready", true), HaveField("Started", HaveValue(BeTrue())), HaveField("ContainerID", "mock://1-2-3-app"))))
		g.Expect(status.InitContainerStatuses[0].State.Terminated.Reason).To(Equal("Completed"))
		g.Expect(status.InitContainerStatuses[1].State.Running).NotTo(BeNil())
		g.Expect(status.EphemeralContainerStatuses).To(HaveLen(1))
	})

	t.Run("a new image restarts its container and no other", func(t *testing.T) {
		g := NewWithT(t)
		status := podStatus(t, runningPod(func(p *corev1.Pod) {
			p.Generation = 2
			p.Spec.Containers[0].Image = "app:new"
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "same", Image: "same"})
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "same", Image: "same", State: p.Status.ContainerStatuses[0].State})
		}))
		g.Expect(status.ObservedGeneration).To(BeEquivalentTo(2))
		g.Expect(status.ContainerStatuses[0].RestartCount).To(BeEquivalentTo(3))
		g.Expect(status.ContainerStatuses[0].State.Running.StartedAt.Year()).To(Equal(2030))
		g.Expect(status.ContainerStatuses[1].RestartCount).To(BeZero())
		g.Expect(status.ContainerStatuses[1].State.Running.StartedAt.Unix()).To(BeZero())
	})

	t.Run("a pod of a Job succeeds", func(t *testing.T) {
		g := NewWithT(t)
		status := podStatus(t, runningPod(ofJob))
		g.Expect(status.Phase).To(Equal(corev1.PodSucceeded))
		g.Expect(status.ContainerStatuses[0].State.Terminated.ExitCode).To(BeZero())
		g.Expect(status.Conditions).To(ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionFalse))))
	})

	t.Run("a pod that is held has been ended, not succeeded", func(t *testing.T) {
		g := NewWithT(t)
		status := podStatus(t, runningPod(ofJob, deleting, held))
		g.Expect(status.Phase).To(Equal(corev1.PodFailed))
		g.Expect(status.ContainerStatuses[0].State.Terminated.ExitCode).To(BeEquivalentTo(143))
	})
}

func TestNodesPassToTheirNextStage(t *testing.T) {
	set := builtIn(t)
	ready := func(change ...func(*corev1.Node)) *corev1.Node {
		node := &corev1.Node{Status: corev1.NodeStatus{
			Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			NodeInfo:        corev1.NodeSystemInfo{KubeletVersion: "v1.36.3"},
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		}}
		for _, c := range change {
			c(node)
		}
		return node
	}
	for name, test := range map[string]struct {
		node  *corev1.Node
		facts map[string]any
		want  string
	}{
		"a new one becomes ready":         {&corev1.Node{}, nil, "node-ready"},
		"one that was lost becomes ready": {ready(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }), nil, "node-ready"},
		"one that is ready beats":         {ready(), nil, "node-heartbeat"},
		"another version of the kubelet":  {ready(), map[string]any{"kubeletVersion": "v1.36.4"}, "node-kubelet-updated"},
		"another size":                    {ready(), map[string]any{"resized": true}, "node-resized"},
		"another address":                 {ready(), map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": "10.0.0.2"}}}, "node-moved"},
		"another port":                    {ready(), map[string]any{"kubeletPort": int64(10251)}, "node-port-changed"},
		"one that is deleted is left":     {ready(func(n *corev1.Node) { n.DeletionTimestamp = new(metav1.Unix(1, 0)) }), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			facts := map[string]any{
				"kubeletVersion": "v1.36.3", "resized": false, "kubeletPort": int64(10250),
				"addresses": []any{map[string]any{"type": "InternalIP", "address": "10.0.0.1"}},
			}
			for key, value := range test.facts {
				facts[key] = value
			}
			got := ""
			if next := set.Match(kindNode, object(t, test.node, facts)); next != nil {
				got = next.Name
			}
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
}
