// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

// testFleet is a Fleet whose shoots are all the same fake one.
type testFleet struct {
	*Fleet
	shoot *fake.Clientset

	lock   sync.Mutex
	config rest.Config
	err    error
	made   int
}

func newTestFleet(t *testing.T, change func(*Options), objects ...runtime.Object) *testFleet {
	t.Helper()
	f := &testFleet{shoot: fake.NewClientset(objects...)}
	opts := Options{
		Connect: func(context.Context, string) (*rest.Config, error) {
			f.lock.Lock()
			defer f.lock.Unlock()
			return rest.CopyConfig(&f.config), f.err
		},
		Kubelet: KubeletEndpoint{Host: "kubelet.example.org", Port: 10250},
		Log:     logr.Discard(),
		newClient: func(*rest.Config, string, Connector) (kubernetes.Interface, error) {
			f.lock.Lock()
			defer f.lock.Unlock()
			f.made++
			return f.shoot, nil
		},
	}
	if change != nil {
		change(&opts)
	}
	f.Fleet = New(opts)
	return f
}

// run starts the Fleet until the test ends.
func (f *testFleet) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Eventually(ended, "10s").Should(Receive(BeNil()), "all that runs ends")
	})
}

// applied is a Cluster as the reconcilers have it.
func applied(cluster *extensionscontroller.Cluster) *extensioncluster.Cluster {
	return extensioncluster.From(cluster)
}

func (f *testFleet) nodes(t *testing.T) map[string]*corev1.Node {
	t.Helper()
	list, err := f.shoot.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	out := map[string]*corev1.Node{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}

func (f *testFleet) requests(verb, resource string) int {
	count := 0
	for _, action := range f.shoot.Actions() {
		if action.GetVerb() == verb && action.GetResource().Resource == resource {
			count++
		}
	}
	return count
}

func TestNodesAreMadeByOneRequestEach(t *testing.T) {
	g := NewWithT(t)
	f := newTestFleet(t, nil,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "gardener-node-agent-pool-1",
			Labels: map[string]string{"gardener.cloud/role": "operating-system-config"}, Annotations: map[string]string{"checksum/data-script": "sum"},
		}})
	g.Expect(f.Apply(t.Context(), logr.Discard(), testWorker(3), applied(testCluster()))).To(Succeed(), "before the start")
	f.run(t)
	g.Eventually(func() map[string]*corev1.Node { return f.nodes(t) }, "10s").Should(HaveLen(3))
	for name, node := range f.nodes(t) {
		g.Expect(existingOf(node).ready).To(BeTrue())
		g.Expect(node.Spec.ProviderID).To(Equal("mock://shoot--foo--bar/" + name))
		g.Expect(node.Annotations).To(HaveKeyWithValue("checksum/cloud-config-data", "sum"))
		g.Expect(node.Status.DaemonEndpoints.KubeletEndpoint.Port).To(BeEquivalentTo(10250))
		g.Expect(node.Status.Addresses).To(HaveExactElements(
			And(HaveField("Type", corev1.NodeInternalIP), HaveField("Address", HavePrefix("198.19."))),
			corev1.NodeAddress{Type: corev1.NodeHostName, Address: name},
			corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: "kubelet.example.org"},
		))
		g.Expect(node.Status.Capacity.Cpu().Value()).To(BeEquivalentTo(2))
	}
	g.Consistently(func() int { return f.requests("patch", "nodes") }, "200ms").Should(BeZero())
	g.Expect(f.requests("create", "nodes")).To(Equal(3))
}

func TestNodesAreMadeInSpiteOfErrors(t *testing.T) {
	g := NewWithT(t)
	f := newTestFleet(t, nil)
	failures := 0
	f.shoot.PrependReactor("create", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		f.lock.Lock()
		defer f.lock.Unlock()
		failures++
		return failures <= 3, nil, apierrors.NewInternalError(errors.New("trouble"))
	})
	f.run(t)
	g.Expect(f.Apply(t.Context(), logr.Discard(), testWorker(2), applied(testCluster()))).To(Succeed())
	g.Eventually(func() map[string]*corev1.Node { return f.nodes(t) }, "10s").Should(HaveLen(2))
}

func TestNodesAreMadeOnceThoughTheCacheIsBehind(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	f := newTestFleet(t, func(o *Options) { o.Clock = clock })
	s := newShoot(f.opts, client.ObjectKey{Name: "w"}, f.shoot, "")
	t.Cleanup(s.stop)
	groups, err := groupsFor(testWorker(1), testCluster())
	g.Expect(err).NotTo(HaveOccurred())
	s.want(groups, nil)
	key := item{Name: groups[0].nodeName(0)}
	again := func() int {
		s.plan()
		g.Expect(s.syncNode(t.Context(), key)).To(Succeed())
		return f.requests("create", "nodes")
	}
	g.Expect(again()).To(Equal(1))
	g.Expect(again()).To(Equal(1))
	clock.Step(seenAfter)
	g.Expect(again()).To(Equal(2), "it may be gone without that the cache saw it")

	s.nodeDeleted(cache.DeletedFinalStateUnknown{Key: key.Name})
	g.Expect(again()).To(Equal(3), "it is gone")
}

func TestNodesThatStayAreBroughtUpToDate(t *testing.T) {
	g := NewWithT(t)
	f := newTestFleet(t, nil)
	f.run(t)
	g.Expect(f.Apply(t.Context(), logr.Discard(), testWorker(1), applied(testCluster()))).To(Succeed())
	g.Eventually(func() map[string]*corev1.Node { return f.nodes(t) }, "10s").Should(HaveLen(1))

	conflicts := 0
	f.shoot.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchAction)
		if !ok || patch.GetSubresource() != "" || !strings.Contains(string(patch.GetPatch()), "taints") {
			return false, nil, nil
		}
		f.lock.Lock()
		defer f.lock.Unlock()
		conflicts++
		return conflicts == 1, nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "node", errors.New("somebody was faster"))
	})
	w := testWorker(1, func(p *extensionsv1alpha1.WorkerPool) {
		p.Labels = map[string]string{"own": "other"}
		p.Annotations = map[string]string{"new": "annotation"}
		p.Taints = []corev1.Taint{{Key: "new", Value: "taint", Effect: corev1.TaintEffectNoSchedule}}
		p.KubernetesVersion = new("1.36.4")
		p.KubeletConfig = &gardencorev1beta1.KubeletConfig{MaxPods: new(int32(200))}
	})
	g.Expect(f.Apply(t.Context(), logr.Discard(), w, applied(testCluster()))).To(Succeed())
	g.Eventually(func(g Gomega) {
		for _, node := range f.nodes(t) {
			g.Expect(node.Labels).To(HaveKeyWithValue("own", "other"))
			g.Expect(node.Annotations).To(HaveKeyWithValue("new", "annotation"))
			g.Expect(node.Spec.Taints).To(ConsistOf(HaveField("Value", "taint")))
			g.Expect(node.Status.NodeInfo.KubeletVersion).To(Equal("v1.36.4"))
			g.Expect(node.Status.Capacity.Pods().Value()).To(BeEquivalentTo(200))
		}
	}, "10s").Should(Succeed())
	g.Expect(f.requests("create", "nodes")).To(Equal(1))
}

func TestPodsElsewhereAreLeftAlone(t *testing.T) {
	g := NewWithT(t)
	f := newTestFleet(t, nil, testPod(func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "other", "a-real-node" }), testPod(func(p *corev1.Pod) { p.Spec.NodeName = "pool-z1-x" }),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a-real-node"}})
	f.run(t)
	g.Expect(f.Apply(t.Context(), logr.Discard(), testWorker(1), applied(testCluster()))).To(Succeed())
	g.Eventually(func() map[string]*corev1.Node { return f.nodes(t) }, "10s").Should(HaveLen(2))
	var ours string
	for name := range f.nodes(t) {
		if name != "a-real-node" {
			ours = name
		}
	}
	_, err := f.shoot.CoreV1().Pods("default").Create(t.Context(), testPod(func(p *corev1.Pod) { p.Name, p.UID, p.Spec.NodeName = "ours", "4", ours }), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	phase := func(name string) corev1.PodPhase {
		pod, err := f.shoot.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		return pod.Status.Phase
	}
	g.Eventually(func() corev1.PodPhase { return phase("ours") }, "10s").Should(Equal(corev1.PodRunning))
	g.Expect(phase("other")).To(Equal(corev1.PodPending))
	g.Expect(f.nodes(t)["a-real-node"].Status.Conditions).To(BeEmpty())
}

func TestDelays(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	f := newTestFleet(t, func(o *Options) { o.Clock = clock }, testPod(ofJob, func(p *corev1.Pod) { p.Spec.NodeName = "" }))
	s := newShoot(f.opts, client.ObjectKey{Name: "w"}, f.shoot, "")
	g.Expect(s.nodes.GetStore().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})).To(Succeed())
	pod := runningPod(ofJob, func(p *corev1.Pod) { p.ResourceVersion, p.Status.StartTime = "5", new(metav1.NewTime(clock.Now())) })
	g.Expect(s.pods.GetStore().Add(pod)).To(Succeed())
	key := item{Namespace: "default", Name: "pod"}

	g.Expect(s.syncPod(t.Context(), key)).To(Succeed())
	g.Expect(f.requests("patch", "pods")).To(BeZero(), "a Job takes a moment")
	clock.Step(400 * time.Millisecond)
	g.Expect(s.syncPod(t.Context(), key)).To(Succeed())
	g.Expect(f.requests("patch", "pods")).To(BeZero(), "an event in between is no reason to hurry, or to begin anew")
	clock.Step(600 * time.Millisecond)
	g.Expect(s.syncPod(t.Context(), key)).To(Succeed())
	g.Expect(f.requests("patch", "pods")).To(Equal(1))

	g.Expect(s.syncPod(t.Context(), key)).To(Succeed())
	clock.Step(time.Hour)
	g.Expect(s.syncPod(t.Context(), key)).To(Succeed())
	g.Expect(f.requests("patch", "pods")).To(Equal(1), "the cache is behind")

	again := pod.DeepCopy()
	again.UID, again.ResourceVersion, again.Status.StartTime = "another", "9", new(metav1.NewTime(clock.Now()))
	g.Expect(s.pods.GetStore().Update(again)).To(Succeed())
	g.Expect(s.syncPod(t.Context(), key)).To(Succeed())
	g.Expect(f.requests("patch", "pods")).To(Equal(1), "another pod of the name has its own delay")
	s.stop()
}

func TestLeases(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "1"}}
	setUp := func(t *testing.T, objects ...runtime.Object) (*testFleet, *shoot, *testclock.FakeClock) {
		clock := testclock.NewFakeClock(time.Unix(1000, 0))
		f := newTestFleet(t, func(o *Options) { o.Clock = clock }, objects...)
		s := newShoot(f.opts, client.ObjectKey{Name: "w"}, f.shoot, "")
		t.Cleanup(s.stop)
		NewWithT(t).Expect(s.nodes.GetStore().Add(node)).To(Succeed())
		return f, s, clock
	}
	lease := func(t *testing.T, f *testFleet) *coordinationv1.Lease {
		lease, err := f.shoot.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "node", metav1.GetOptions{})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		f.shoot.ClearActions()
		return lease
	}

	t.Run("one is created, and renewed by one update in time", func(t *testing.T) {
		g := NewWithT(t)
		f, s, clock := setUp(t)
		g.Expect(s.beat(t.Context(), "node")).To(Succeed())
		created := lease(t, f)
		g.Expect(created.Spec.RenewTime.Time).To(BeTemporally("==", time.Unix(1000, 0)))
		g.Expect(created.Spec.LeaseDurationSeconds).To(HaveValue(BeEquivalentTo(40)))
		g.Expect(created.OwnerReferences).To(ConsistOf(HaveField("UID", BeEquivalentTo("1"))))

		clock.Step(renewal*11/10 + time.Second)
		g.Eventually(s.leases.Len, "5s").Should(Equal(1), "it is due")
		g.Expect(s.beat(t.Context(), "node")).To(Succeed())
		g.Expect(f.shoot.Actions()).To(ConsistOf(HaveField("GetVerb()", "patch")))
		g.Expect(lease(t, f).Spec.RenewTime.Time).To(BeTemporally("==", clock.Now()))
	})
	t.Run("one from an earlier run is taken over", func(t *testing.T) {
		g := NewWithT(t)
		f, s, clock := setUp(t, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "node"}})
		g.Expect(s.beat(t.Context(), "node")).To(Succeed())
		g.Expect(lease(t, f).Spec.RenewTime.Time).To(BeTemporally("==", clock.Now()))
	})
	t.Run("one that somebody changed or deleted is renewed all the same", func(t *testing.T) {
		g := NewWithT(t)
		f, s, clock := setUp(t)
		g.Expect(s.beat(t.Context(), "node")).To(Succeed())
		changed := lease(t, f)
		changed.Spec.HolderIdentity, changed.Spec.RenewTime = new("somebody"), nil
		_, err := f.shoot.CoordinationV1().Leases(corev1.NamespaceNodeLease).Update(t.Context(), changed, metav1.UpdateOptions{FieldManager: "somebody"})
		g.Expect(err).NotTo(HaveOccurred())
		clock.Step(time.Minute)
		g.Expect(s.beat(t.Context(), "node")).To(Succeed())
		g.Expect(lease(t, f).Spec.RenewTime.Time).To(BeTemporally("==", clock.Now()))

		g.Expect(f.shoot.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(t.Context(), "node", metav1.DeleteOptions{})).To(Succeed())
		clock.Step(time.Minute)
		g.Expect(s.beat(t.Context(), "node")).To(Succeed())
		g.Expect(lease(t, f).Spec.RenewTime.Time).To(BeTemporally("==", clock.Now()))
	})
	t.Run("errors are for the queue, and a Node that is gone needs none", func(t *testing.T) {
		g := NewWithT(t)
		f, s, _ := setUp(t)
		f.shoot.PrependReactor("patch", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("trouble") })
		g.Expect(s.beat(t.Context(), "node")).To(MatchError(ContainSubstring("trouble")))
		g.Expect(s.beat(t.Context(), "gone")).To(Succeed())
	})
}

func TestAccess(t *testing.T) {
	t.Run("the same access is used again, another one replaces it", func(t *testing.T) {
		g := NewWithT(t)
		f := newTestFleet(t, nil)
		f.run(t)
		for range 3 {
			g.Expect(f.Apply(t.Context(), logr.Discard(), testWorker(1), applied(testCluster()))).To(Succeed())
		}
		g.Expect(f.made).To(Equal(1))
		f.config.Host = "another"
		g.Expect(f.Apply(t.Context(), logr.Discard(), testWorker(1), applied(testCluster()))).To(Succeed())
		g.Expect(f.made).To(Equal(2))
		g.Eventually(func() map[string]*corev1.Node { return f.nodes(t) }, "10s").Should(HaveLen(1))
	})
	t.Run("without credentials nothing is applied, and nothing has to be deleted", func(t *testing.T) {
		g := NewWithT(t)
		f := newTestFleet(t, nil)
		f.err = extensioncluster.ErrNoCredentials
		g.Expect(f.Apply(t.Context(), logr.Discard(), testWorker(1), applied(testCluster()))).To(MatchError(extensioncluster.ErrNoCredentials))
		g.Expect(f.Delete(t.Context(), logr.Discard(), testWorker(1), false)).To(Succeed())
	})
	t.Run("a deletion without access fails, unless it is forced", func(t *testing.T) {
		g := NewWithT(t)
		f := newTestFleet(t, nil)
		f.err = errors.New("trouble")
		g.Expect(f.Delete(t.Context(), logr.Discard(), testWorker(1), false)).To(MatchError("trouble"))
		g.Expect(f.Delete(t.Context(), logr.Discard(), testWorker(1), true)).To(Succeed())
	})
	t.Run("a shoot that sleeps is not asked, one that falls asleep is", func(t *testing.T) {
		g := NewWithT(t)
		f := newTestFleet(t, nil)
		f.err = errors.New("trouble")
		cluster := testCluster()
		cluster.Shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)}
		g.Expect(f.Apply(t.Context(), logr.Discard(), testWorker(1), applied(cluster))).To(Succeed(), "created asleep")
		cluster.Shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: gardencorev1beta1.LastOperationTypeReconcile}
		g.Expect(f.Apply(t.Context(), logr.Discard(), testWorker(1), applied(cluster))).To(MatchError("trouble"))
		cluster.Shoot.Status.IsHibernated = true
		g.Expect(f.Apply(t.Context(), logr.Discard(), testWorker(1), applied(cluster))).To(Succeed())
	})
	t.Run("what a user did wrong leaves Nodes as they are", func(t *testing.T) {
		g := NewWithT(t)
		f := newTestFleet(t, nil)
		w := testWorker(1, func(p *extensionsv1alpha1.WorkerPool) { p.MachineType = "huge" })
		g.Expect(f.Apply(t.Context(), logr.Discard(), w, applied(testCluster()))).To(MatchError(ContainSubstring("huge")))
		g.Expect(f.made).To(BeZero())
		g.Expect(f.Apply(t.Context(), logr.Discard(), testWorker(1), nil)).To(MatchError(ContainSubstring("no shoot")))
	})
}

func TestAShootIsKeptUntilItIsReleased(t *testing.T) {
	g := NewWithT(t)
	f := newTestFleet(t, nil)
	f.run(t)
	w := testWorker(1)
	g.Expect(f.Keeps(w)).To(BeFalse())
	g.Expect(f.Apply(t.Context(), logr.Discard(), w, applied(testCluster()))).To(Succeed())
	g.Expect(f.Keeps(w)).To(BeTrue())
	g.Eventually(func() map[string]*corev1.Node { return f.nodes(t) }, "10s").Should(HaveLen(1))
	f.Release(w)
	f.Release(w)
	g.Expect(f.Keeps(w)).To(BeFalse())
	g.Expect(f.nodes(t)).To(HaveLen(1), "they stay")
}
