// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

func TestPodsPassToTheirNextStage(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want podStage
	}{
		"a new one runs":                                 {testPod(), podRuns},
		"one without a phase runs":                       {testPod(func(p *corev1.Pod) { p.Status.Phase = "" }), podRuns},
		"one that runs stays":                            {runningPod(), podStays},
		"one of a Job runs first":                        {testPod(ofJob), podRuns},
		"one of a Job completes":                         {runningPod(ofJob), podSucceeds},
		"one of a Job that has completed stays":          {runningPod(ofJob, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), podStays},
		"one that never restarts but has no Job stays":   {runningPod(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }), podStays},
		"one that a Job owns but does not control stays": {runningPod(ofJob, func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }), podStays},
		"one with another generation is changed":         {runningPod(func(p *corev1.Pod) { p.Generation = 2 }), podRuns},
		"one from before generations stays":              {runningPod(func(p *corev1.Pod) { p.Generation = 0; p.Status.ObservedGeneration = 0 }), podStays},
		"one that lost its readiness gets it back": {runningPod(func(p *corev1.Pod) {
			p.Status.Conditions[1].Status = corev1.ConditionFalse
		}), podRuns},
		"one that is deleted goes":                             {runningPod(deleting), podGoes},
		"one that is deleted before it runs goes":              {testPod(deleting), podGoes},
		"one that is deleted but held ends first":              {runningPod(deleting, held), podEnds},
		"one that is held and has ended goes":                  {runningPod(deleting, held, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), podGoes},
		"one that is held and was asked to go at once is left": {runningPod(deleting, held, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed; *p.DeletionGracePeriodSeconds = 0 }), podStays},
		"one that has failed stays":                            {runningPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), podStays},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(nextStage(test.pod)).To(Equal(test.want))
		})
	}
}

// podStatus returns the next status of a pod, as it is sent.
func podStatus(t *testing.T, pod *corev1.Pod) *corev1.PodStatus {
	t.Helper()
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	f := newTestFleet(t, func(o *Options) { o.Clock = clock })
	s := newShoot(f.opts, client.ObjectKey{Name: "w"}, f.shoot, "")
	t.Cleanup(s.stop)
	g.Expect(s.nodes.GetStore().Add(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.64.0.0/24", "2001:db8::/64"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.250.0.2"}}},
	})).To(Succeed())
	g.Expect(s.pods.GetStore().Add(pod)).To(Succeed())
	var sent []byte
	f.shoot.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		sent = action.(clienttesting.PatchAction).GetPatch()
		return true, pod, nil
	})
	g.Expect(s.syncPod(t.Context(), item{Namespace: pod.Namespace, Name: pod.Name})).To(Succeed())
	patch := &corev1.Pod{}
	decoder := json.NewDecoder(bytes.NewReader(sent))
	decoder.DisallowUnknownFields()
	g.Expect(decoder.Decode(patch)).To(Succeed())
	g.Expect(patch.UID).To(Equal(pod.UID), "it is for no other pod of the name")
	return &patch.Status
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
	now := time.Unix(1000, 0)
	set := func(change ...func(*corev1.Node)) func(*corev1.Node) {
		return func(n *corev1.Node) {
			for _, c := range change {
				c(n)
			}
		}
	}
	for name, test := range map[string]struct {
		change  func(*corev1.Node)
		after   time.Duration
		patches int
	}{
		"one without a status becomes ready": {func(n *corev1.Node) { n.Status = corev1.NodeStatus{} }, 0, 1},
		"one that was lost becomes ready":    {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, 0, 1},
		"one that is ready beats":            {set(), heartbeat + heartbeatJitter, 1},
		"but not yet":                        {set(), heartbeat - time.Second, 0},
		"another version of the kubelet":     {func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.0" }, 0, 1},
		"another size":                       {func(n *corev1.Node) { n.Status.Capacity = corev1.ResourceList{} }, 0, 1},
		"a resource that somebody added": {func(n *corev1.Node) {
			n.Status.Capacity = n.Status.Capacity.DeepCopy()
			n.Status.Capacity["example.org/a"] = resource.MustParse("1")
		}, 0, 0},
		"another address":             {func(n *corev1.Node) { n.Status.Addresses[0].Address = "192.0.2.1" }, 0, 1},
		"another port":                {func(n *corev1.Node) { n.Status.DaemonEndpoints.KubeletEndpoint.Port++ }, 0, 1},
		"one that is deleted is left": {func(n *corev1.Node) { n.DeletionTimestamp = new(metav1.Unix(1, 0)) }, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			clock := testclock.NewFakeClock(now)
			f, s, groups := newTestShoot(t, func(o *Options) { o.Clock = clock })
			s.want(groups, nil)
			node := existingNode(s, groups[0])
			test.change(node)
			g.Expect(s.nodes.GetStore().Add(node)).To(Succeed())
			s.plan()
			var patch *corev1.Node
			f.shoot.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
				patch = &corev1.Node{}
				g.Expect(json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), patch)).To(Succeed())
				return true, node, nil
			})
			clock.Step(test.after)
			g.Expect(s.syncNode(t.Context(), item{Name: node.Name})).To(Succeed())
			g.Expect(f.requests("patch", "nodes")).To(Equal(test.patches))
			if patch != nil {
				g.Expect(existingOf(patch).ready).To(BeTrue())
				g.Expect(patch.Status.NodeInfo.KubeletVersion).To(Equal(groups[0].version))
				g.Expect(patch.Status.Addresses[0].Address).To(HavePrefix("198.19."))
				g.Expect(patch.Status.DaemonEndpoints.KubeletEndpoint.Port).To(BeEquivalentTo(10250))
				g.Expect(patch.Status.Conditions[0].LastHeartbeatTime.Unix()).To(Equal(clock.Now().Unix()))
			}
		})
	}
}

func TestANodeThatIsAboutToBeReplacedKeepsItsStatus(t *testing.T) {
	g := NewWithT(t)
	_, s, groups := newTestShoot(t, nil)
	node := existingNode(s, groups[0])
	status := s.nodeStatus(nil, node)
	g.Expect(status.NodeInfo).To(Equal(node.Status.NodeInfo))
	g.Expect(status.Capacity).To(Equal(node.Status.Capacity))
	g.Expect(status.Addresses).To(Equal(node.Status.Addresses))
	g.Expect(isAsWanted(&node.Status, &status)).To(BeTrue())
}

func TestANodeThatIsTooLargeIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	f, s, groups := newTestShoot(t, nil)
	node := existingNode(s, groups[0])
	node.Annotations["large"] = strings.Repeat("x", cachedMax)
	trimmed, err := s.trimNode(node)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.nodes.GetStore().Add(trimmed)).To(Succeed())
	g.Expect(s.syncNode(t.Context(), item{Name: node.Name})).To(Succeed())
	g.Expect(f.shoot.Actions()).To(BeEmpty(), "each write would have another address, so the next one would follow")
}

// newTestShoot is a shoot of one Node's size, whose caches are the test's to fill.
func newTestShoot(t *testing.T, change func(*Options)) (*testFleet, *shoot, []*group) {
	t.Helper()
	f := newTestFleet(t, change)
	s := newShoot(f.opts, client.ObjectKey{Name: "w"}, f.shoot, "")
	t.Cleanup(s.stop)
	groups, err := groupsFor(testWorker(1), testCluster())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return f, s, groups
}

// existingNode is a Node as the API server has it once it was created.
func existingNode(s *shoot, g *group) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: g.nodeName(0), UID: "1", ResourceVersion: "5", Labels: maps.Clone(g.labels), Annotations: maps.Clone(g.annotations)}}
	node.Status = s.nodeStatus(g, node)
	return node
}

func TestAPodThatIsGoneIsForgottenThoughItsEventCameDuringTheWrite(t *testing.T) {
	g := NewWithT(t)
	f := newTestFleet(t, nil)
	s := newShoot(f.opts, client.ObjectKey{Name: "w"}, f.shoot, "")
	t.Cleanup(s.stop)
	pod := runningPod(deleting)
	g.Expect(s.nodes.GetStore().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Spec.NodeName}})).To(Succeed())
	g.Expect(s.pods.GetStore().Add(pod)).To(Succeed())
	f.shoot.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		g.Expect(s.pods.GetStore().Delete(pod)).To(Succeed())
		s.podChanged(pod)
		return true, nil, nil
	})

	key := client.ObjectKeyFromObject(pod)
	g.Expect(s.syncPod(t.Context(), key)).To(Succeed())
	g.Expect(s.queue.Len()).To(Equal(1), "the event has queued it")
	g.Expect(s.syncPod(t.Context(), key)).To(Succeed())
	g.Expect(s.writes).To(BeEmpty())
}
