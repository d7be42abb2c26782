// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mocknodes_test

import (
	"context"
	"time"

	"github.com/Masterminds/semver/v3"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
	healthchecker "github.com/gardener/gardener/pkg/utils/kubernetes/health/checker"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes"
)

var _ = Describe("Fake nodes", func() {
	It("are in the state in which gardenlet wants Nodes", func(ctx SpecContext) {
		fleet, _ := newFleet()
		apply(ctx, fleet, newWorker("state", 3))
		list := eventuallyReady(ctx, "state", 3)

		checker := healthchecker.NewHealthChecker(logf.Log, env.Client, clock.RealClock{})
		condition, _ := checker.CheckNodes(gardencorev1beta1.Condition{}, list, "state", semver.MustParse(version), nil)
		Expect(condition).To(BeNil())

		zones, addresses := map[string]int{}, map[string]bool{}
		for _, node := range list {
			zones[node.Labels[corev1.LabelTopologyZone]]++
			addresses[node.Status.Addresses[0].Address] = true
			Expect(node.Annotations).To(HaveKeyWithValue("node.machine.sapcloud.io/not-managed-by-mcm", "1"))
			Expect(node.Labels).To(And(
				HaveKeyWithValue("example.org/own", "yes"),
				HaveKeyWithValue("worker.gardener.cloud/gardener-node-agent-secret-name", "gardener-node-agent-state-1"),
				HaveKeyWithValue(corev1.LabelHostname, node.Name),
				HaveKeyWithValue(corev1.LabelInstanceTypeStable, "small"),
			))
			Expect(node.Status.Allocatable.Cpu().Value()).To(BeEquivalentTo(2))
		}
		Expect(zones).To(Equal(map[string]int{"a": 2, "b": 1}))
		Expect(addresses).To(HaveLen(3), "each has an address of its own")

		By("Heartbeats")
		Eventually(ctx, func() int { return len(leasesOf(ctx, "state")) }).Should(Equal(3))
	})

	It("claim to have applied the operating system config, once there is one and when it changes", func(ctx SpecContext) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "gardener-node-agent-osc-1",
			Labels:      map[string]string{"gardener.cloud/role": "operating-system-config", "worker.gardener.cloud/pool": "osc"},
			Annotations: map[string]string{"checksum/data-script": "one"},
		}}
		checksums := func() map[string]int {
			out := map[string]int{}
			for _, node := range nodesOf(ctx, "osc") {
				out[node.Annotations["checksum/cloud-config-data"]]++
			}
			return out
		}

		fleet, _ := newFleet()
		apply(ctx, fleet, newWorker("osc", 2))
		eventuallyReady(ctx, "osc", 2)
		Expect(checksums()).To(Equal(map[string]int{"": 2}))
		create(ctx, secret)
		Eventually(ctx, checksums).Should(Equal(map[string]int{"one": 2}))
		secret.Annotations["checksum/data-script"] = "two"
		Expect(env.Client.Update(ctx, secret)).To(Succeed())
		Eventually(ctx, checksums).Should(Equal(map[string]int{"two": 2}))
	})

	It("run Deployments, DaemonSets and Jobs", func(ctx SpecContext) {
		fleet, _ := newFleet()
		apply(ctx, fleet, newWorker("pods", 4))
		deploy, daemons, work := deployment("pods", "pods-deployment", 20), daemonSet("pods", "pods-daemons"), job("pods", "pods-job")
		create(ctx, deploy, daemons, work)
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(deploy), deploy)).To(Succeed())
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(daemons), daemons)).To(Succeed())
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(work), work)).To(Succeed())
			g.Expect(deploy).To(beHealthy(health.CheckDeployment))
			g.Expect(deploy.Status.AvailableReplicas).To(BeEquivalentTo(20))
			g.Expect(daemons).To(beHealthy(health.CheckDaemonSet))
			g.Expect(daemons.Status.NumberAvailable).To(BeEquivalentTo(4))
			g.Expect(work.Status.Succeeded).To(BeEquivalentTo(5))
			g.Expect(work.Status.Conditions).To(ContainElement(HaveField("Type", batchv1.JobComplete)))
		}).Should(Succeed())

		addresses := map[string]bool{}
		for _, pod := range podsOf(ctx, "pods-deployment") {
			addresses[pod.Status.PodIP] = true
			Expect(pod.Status.InitContainerStatuses[0].State.Terminated.Reason).To(Equal("Completed"))
			Expect(pod.Status.InitContainerStatuses[1].State.Running).NotTo(BeNil(), "a sidecar goes on")
			Expect(pod.Status.PodIP).To(HavePrefix("10.64."), "from the range that kube-controller-manager gave to the Node")
		}
		Expect(addresses).To(HaveLen(20))
		for _, pod := range podsOf(ctx, "pods-daemons") {
			Expect(pod.Status.PodIP).To(And(Equal(pod.Status.HostIP), HavePrefix("10.250.")))
		}

		By("A new image")
		deploy.Spec.Template.Spec.Containers[0].Image = "app:2"
		Expect(env.Client.Update(ctx, deploy)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(deploy), deploy)).To(Succeed())
			g.Expect(deploy).To(beHealthy(health.CheckDeployment))
			g.Expect(podsOf(ctx, "pods-deployment")).To(And(HaveLen(20), HaveEach(HaveField("Spec.Containers", ConsistOf(HaveField("Image", "app:2"))))))
		}).Should(Succeed())
	})

	It("let a pod's container be changed, and let it go at once, but not without its finalizers", func(ctx SpecContext) {
		fleet, _ := newFleet()
		apply(ctx, fleet, newWorker("change", 1))
		node := eventuallyReady(ctx, "change", 1)[0]
		pod := bound(node.Name, "changing")
		pod.Finalizers = []string{"example.org/hold"}
		create(ctx, pod)
		key := client.ObjectKeyFromObject(pod)
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Client.Get(ctx, key, pod)).To(Succeed())
			g.Expect(health.IsPodReady(pod)).To(BeTrue())
		}).Should(Succeed())

		pod.Spec.Containers[0].Image = "app:2"
		Expect(env.Client.Update(ctx, pod)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Client.Get(ctx, key, pod)).To(Succeed())
			g.Expect(pod.Status.ContainerStatuses).To(ConsistOf(And(HaveField("Image", "app:2"), HaveField("RestartCount", BeEquivalentTo(1)), HaveField("Ready", true))))
		}).Should(Succeed())

		Expect(env.Client.Delete(ctx, pod)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Client.Get(ctx, key, pod)).To(Succeed())
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodFailed))
			g.Expect(pod.DeletionGracePeriodSeconds).To(HaveValue(BeZero()))
		}).Should(Succeed())
		pod.Finalizers = nil
		Expect(env.Client.Update(ctx, pod)).To(Succeed())
		Eventually(ctx, func() bool {
			return client.IgnoreNotFound(env.Client.Get(ctx, key, pod)) == nil && len(podsOf(ctx, "changing")) == 0
		}).Should(BeTrue())
	})

	It("open the port-forward by which gardenlet checks the tunnel", func(ctx SpecContext) {
		fleet, _ := newFleet()
		apply(ctx, fleet, newWorker("tunnel", 1))
		node := eventuallyReady(ctx, "tunnel", 1)[0]
		create(ctx, bound(node.Name, "vpn-shoot"))
		Eventually(ctx, func() []corev1.Pod { return podsOf(ctx, "vpn-shoot") }).Should(ConsistOf(HaveField("Status.Phase", corev1.PodRunning)))

		timeout, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		forwarder, err := kubernetes.SetupPortForwarder(timeout, access, "default", "vpn-shoot", 0, 22)
		Expect(err).NotTo(HaveOccurred())
		Expect(kubernetes.CheckForwardPodPort(forwarder)).To(Succeed())
	})

	It("are replaced within the bounds of the pool for another minor version, and stay for a patch", func(ctx SpecContext) {
		fleet, _ := newFleet()
		w := newWorker("roll", 4)
		apply(ctx, fleet, w)
		before := eventuallyReady(ctx, "roll", 4)
		deploy := deployment("roll", "roll-deployment", 8)
		create(ctx, deploy)

		By("Another patch version")
		w.Spec.Pools[0].KubernetesVersion = new("1.36.4")
		Expect(fleet.Apply(ctx, logf.Log, w, cluster())).To(Succeed())
		Eventually(ctx, func() []corev1.Node { return nodesOf(ctx, "roll") }).Should(HaveEach(HaveField("Status.NodeInfo.KubeletVersion", "v1.36.4")))
		Expect(names(nodesOf(ctx, "roll"))).To(ConsistOf(names(before)))

		By("Another minor version")
		w.Spec.Pools[0].KubernetesVersion = new("1.37.0")
		w.Spec.Pools[0].NodeAgentSecretName = new("gardener-node-agent-roll-2")
		Expect(fleet.Apply(ctx, logf.Log, w, cluster())).To(Succeed())
		most := map[string]int{}
		Eventually(ctx, func(g Gomega) {
			list := nodesOf(ctx, "roll")
			inZone := map[string]int{}
			for _, node := range list {
				zone := node.Labels[corev1.LabelTopologyZone]
				inZone[zone]++
				most[zone] = max(most[zone], inZone[zone])
			}
			g.Expect(list).To(And(HaveLen(4), HaveEach(HaveField("Status.NodeInfo.KubeletVersion", "v1.37.0"))))
			g.Expect(names(list)).NotTo(ContainElement(BeElementOf(names(before))))
		}).Should(Succeed())
		Expect(most).To(And(HaveLen(2), HaveEach(BeNumerically("<=", 3))), "of each zone two are wanted, and one more is allowed")
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(deploy), deploy)).To(Succeed())
			g.Expect(deploy).To(beHealthy(health.CheckDeployment))
			g.Expect(podsOf(ctx, "roll-deployment")).To(HaveLen(8), "pods of Nodes that are gone are gone")
		}).Should(Succeed())
	})

	It("are as many as asked for, come back, and go with their Leases and pods", func(ctx SpecContext) {
		fleet, _ := newFleet()
		w := newWorker("scale", 2)
		apply(ctx, fleet, w)
		eventuallyReady(ctx, "scale", 2)
		w.Spec.Pools[0].Minimum = 6
		Expect(fleet.Apply(ctx, logf.Log, w, cluster())).To(Succeed())
		list := eventuallyReady(ctx, "scale", 6)

		By("One that somebody deletes")
		Expect(env.Client.Delete(ctx, &list[0])).To(Succeed())
		Eventually(ctx, func() []corev1.Node { return nodesOf(ctx, "scale") }).Should(And(HaveLen(6), HaveEach(HaveField("UID", Not(Equal(list[0].UID))))))

		w.Spec.Pools[0].Minimum = 3
		Expect(fleet.Apply(ctx, logf.Log, w, cluster())).To(Succeed())
		list = eventuallyReady(ctx, "scale", 3)

		By("A machine type that is not there")
		w.Spec.Pools[0].MachineType = "unheard-of"
		Expect(fleet.Apply(ctx, logf.Log, w, cluster())).To(MatchError(ContainSubstring("unheard-of")))
		Expect(nodesOf(ctx, "scale")).To(HaveLen(3))

		By("Deletion")
		Expect(env.Client.Create(ctx, bound(list[0].Name, "scale-pod"))).To(Succeed())
		Eventually(ctx, func() []corev1.Pod { return podsOf(ctx, "scale-pod") }).Should(ConsistOf(HaveField("Status.Phase", corev1.PodRunning)))
		Expect(fleet.Delete(ctx, logf.Log, w, false)).To(Succeed())
		Expect(nodesOf(ctx, "scale")).To(BeEmpty())
		Expect(podsOf(ctx, "scale-pod")).To(BeEmpty())
		Eventually(ctx, func() int { return len(leasesOf(ctx, "scale")) }).Should(BeZero())
		Expect(fleet.Delete(ctx, logf.Log, w, false)).To(Succeed(), "a second time")
	})

	It("live on after a restart, and were missed meanwhile", func(ctx SpecContext) {
		w := newWorker("restart", 2)
		fleet, running := newFleet()
		apply(ctx, fleet, w)
		before := eventuallyReady(ctx, "restart", 2)
		pod := bound(before[0].Name, "restart-pod")
		create(ctx, pod)
		Eventually(ctx, func() []corev1.Pod { return podsOf(ctx, "restart-pod") }).Should(ConsistOf(HaveField("Status.Phase", corev1.PodRunning)))
		running.Stop()
		Eventually(ctx, func() []corev1.Node { return nodesOf(ctx, "restart") }).Should(HaveEach(HaveField("Status.Conditions", ContainElement(
			And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionUnknown))))))

		again, _ := newFleet()
		Expect(again.Keeps(w)).To(BeFalse())
		apply(ctx, again, w)
		Expect(again.Keeps(w)).To(BeTrue())
		after := eventuallyReady(ctx, "restart", 2)
		Expect(names(after)).To(ConsistOf(names(before)))
		Expect(after[0].Status.Addresses).To(Equal(before[0].Status.Addresses))
		Eventually(ctx, func() []corev1.Pod { return podsOf(ctx, "restart-pod") }).Should(ConsistOf(WithTransform(func(pod corev1.Pod) bool { return health.IsPodReady(&pod) }, BeTrue())))
	})

	It("sleep with their shoot, and are left alone for another seed", func(ctx SpecContext) {
		fleet, _ := newFleet()
		w := newWorker("sleep", 2)
		apply(ctx, fleet, w)
		eventuallyReady(ctx, "sleep", 2)

		fleet.Release(w)
		Expect(nodesOf(ctx, "sleep")).To(HaveLen(2))

		asleep := newCluster()
		asleep.Shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)}
		Expect(fleet.Apply(ctx, logf.Log, w, extensioncluster.From(asleep))).To(Succeed())
		Expect(nodesOf(ctx, "sleep")).To(BeEmpty())

		Expect(fleet.Apply(ctx, logf.Log, w, cluster())).To(Succeed())
		eventuallyReady(ctx, "sleep", 2)
	})

	It("reports an API server that does not answer, but not if the deletion is forced", func(ctx SpecContext) {
		fleet, _ := newFleet(func(o *nodes.Options) {
			o.Connect = func(context.Context, string) (*rest.Config, error) {
				config := rest.CopyConfig(access)
				config.Host = "https://127.0.0.1:1"
				return config, nil
			}
		})
		w := newWorker("gone", 1)
		Expect(fleet.Delete(ctx, logf.Log, w, false)).To(MatchError(ContainSubstring("refused")))
		Expect(fleet.Delete(ctx, logf.Log, w, true)).To(Succeed())
	})
})

func names(list []corev1.Node) []string {
	var out []string
	for _, node := range list {
		out = append(out, node.Name)
	}
	return out
}
