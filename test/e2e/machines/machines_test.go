// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// soon is how long a machine may take until its Node is ready.
const soon = 60 * time.Second

var _ = Describe("The machines of a shoot", Ordered, func() {
	var (
		s    *shoot
		seen *recorder
	)

	BeforeAll(func(ctx SpecContext) {
		By("making a shoot's control plane")
		s = createShoot(ctx)
		seen = record(s)
		DeferCleanup(func(ctx SpecContext) { s.delete(ctx) })
		By("making what its machines need")
		s.deployExtensions(ctx)
	})

	It("become Nodes of it", func(ctx SpecContext) {
		s.reconcile(ctx, pools()...)
		for _, pool := range pools() {
			nodes := s.eventuallyReady(ctx, pool.Name, 1)
			Expect(nodes[0].Labels).To(And(HaveKeyWithValue("e2e", pool.Name), HaveKeyWithValue(v1beta1constants.LabelWorkerPool, pool.Name)))
		}
		machines := s.machines(ctx)
		Expect(machines).To(HaveLen(2))
		for _, m := range machines {
			Eventually(landscape.Get(ctx, l.Client, &m)).Should(HaveField("Status.CurrentStatus.Phase", machinev1alpha1.MachineRunning))
			Expect(seen.of(m.Name).toReady()).To(And(BeNumerically(">", 0), BeNumerically("<", soon)), m.Name)
		}
	})

	It("have addresses of their shoot's range for nodes", func(ctx SpecContext) {
		status := &localv1alpha1.InfrastructureStatus{}
		Expect(json.Unmarshal(s.infrastructureStatus.Raw, status)).To(Succeed())
		Expect(status.Message).To(BeEmpty())
		name := ipPool().GetName()
		Expect(status.IPPools).To(ConsistOf(localv1alpha1.MachineIPPool{IPFamily: gardencorev1beta1.IPFamilyIPv4, Name: name, CIDR: nodeCIDR}))
		pool := ipPool()
		Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
		Expect(pool.Object).To(HaveKeyWithValue("spec", HaveKeyWithValue("cidr", nodeCIDR)))

		for _, p := range pools() {
			for _, node := range s.nodesOf(ctx, p.Name) {
				address := s.podOf(ctx, &node).Status.PodIP
				Expect(address).To(Satisfy(isNodeAddress), node.Name)
				Expect(node.Status.Addresses).To(ContainElement(corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}))
			}
		}
	})

	It("have what their machine types say", func(ctx SpecContext) {
		for i, pool := range []string{poolOne, poolTwo} {
			machineType := machineTypes()[i]
			s.expectCapacity(ctx, pool, machineType.CPU, machineType.Memory)
		}
	})

	It("trust the public CAs, after Gardener has renewed their list", func(ctx SpecContext) {
		node := s.nodesOf(ctx, poolOne)[0]
		out, err := landscape.Execute(ctx, l.Config, s.podOf(ctx, &node), "sh", "-ec",
			"update-ca-certificates --fresh >/dev/null; cat /etc/ssl/certs/ca-certificates.crt")
		Expect(err).NotTo(HaveOccurred())
		certs, err := certutil.ParseCertsPEM([]byte(out))
		Expect(err).NotTo(HaveOccurred())
		Expect(len(certs)).To(BeNumerically(">", 100))
	})

	memorySpecs(func() *shoot { return s }, func() *recorder { return seen })

	service := loadBalancerSpecs(func() *shoot { return s })

	bastionSpecs(func() *shoot { return s })

	It("roll to another machine type, pool by pool", func(ctx SpecContext) {
		untouched := s.nodesOf(ctx, poolTwo)[0]
		old := s.nodesOf(ctx, poolOne)[0]
		s.reconcile(ctx, pool(poolOne, typeLarge, 1), pool(poolTwo, typeLarge, 1))
		Eventually(func() []corev1.Node { return s.nodesOf(ctx, poolOne) }).Should(ConsistOf(
			And(HaveField("Name", Not(Equal(old.Name))), Satisfy(isReadyNode))))
		s.expectCapacity(ctx, poolOne, machineTypes()[1].CPU, machineTypes()[1].Memory)
		Expect(s.nodesOf(ctx, poolTwo)).To(ConsistOf(HaveField("UID", untouched.UID)), "what did not change stays")
		Eventually(func() []machinev1alpha1.Machine { return s.machines(ctx) }).Should(HaveLen(2))
		eventuallyNothingOf(ctx, machine.Name(old.Name))
		s.eventuallyAnswers(ctx, service(), poolOne, poolTwo)
		Expect(classes(ctx)).To(HaveLen(2), "the class of the machine that went goes with it")
	})

	It("go when a pool has none, and come back", func(ctx SpecContext) {
		gone := s.nodesOf(ctx, poolTwo)[0]
		// With cgroup v1, no signal ends a frozen process, and runc may leave one when it is killed. With v2 there is no such folder.
		_, err := landscape.Execute(ctx, l.Config, s.podOf(ctx, &gone), "sh", "-ec", `cd /sys/fs/cgroup/freezer || exit 0
mkdir e2e
systemd-run --quiet --unit e2e --property TimeoutStopSec=1 sleep infinity
systemctl show -P MainPID e2e >e2e/cgroup.procs
echo FROZEN >e2e/freezer.state`)
		Expect(err).NotTo(HaveOccurred())
		s.reconcile(ctx, pool(poolOne, typeLarge, 1), pool(poolTwo, typeLarge, 0))
		Eventually(func() []corev1.Node { return s.nodesOf(ctx, poolTwo) }).Should(BeEmpty())
		eventuallyNothingOf(ctx, machine.Name(gone.Name))
		s.eventuallyAnswers(ctx, service(), poolOne)

		s.reconcile(ctx, pool(poolOne, typeLarge, 1), pool(poolTwo, typeLarge, 1))
		node := s.eventuallyReady(ctx, poolTwo, 1)[0]
		Expect(seen.of(machine.Name(node.Name)).toReady()).To(And(BeNumerically(">", 0), BeNumerically("<", soon)))
	})

	It("leave nothing behind", func(ctx SpecContext) {
		By("deleting what people have in the cluster, as gardenlet does first")
		landscape.DeleteAndWait(ctx, s.client, service())
		landscape.DeleteAndWait(ctx, s.client, newEcho())
		balancers := &corev1.ServiceList{}
		Expect(l.Client.List(ctx, balancers, client.InNamespace(namespace))).To(Succeed())
		Expect(balancers.Items).NotTo(ContainElement(And(
			HaveField("Spec.Type", corev1.ServiceTypeLoadBalancer), HaveField("Name", Not(Equal("kube-apiserver"))))), "the address is free")

		By("deleting the machines")
		machines := s.machines(ctx)
		Expect(machines).To(HaveLen(2))
		s.deleteWorker(ctx)
		for _, m := range machines {
			eventuallyNothingOf(ctx, m.Name)
		}
		nodes := &corev1.NodeList{}
		Expect(s.client.List(ctx, nodes)).To(Succeed())
		Expect(nodes.Items).To(BeEmpty())
		Expect(s.machines(ctx)).To(BeEmpty())
		Expect(classes(ctx)).To(BeEmpty())
		expectNothingOfMachines(ctx)

		By("deleting what they needed")
		s.deleteExtensions(ctx)
		pool := ipPool()
		Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Satisfy(apierrors.IsNotFound))
	})
})

// machines are those of the shoot that machine-controller-manager knows.
func (s *shoot) machines(ctx context.Context) []machinev1alpha1.Machine {
	GinkgoHelper()
	list := &machinev1alpha1.MachineList{}
	Expect(l.Client.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

func classes(ctx context.Context) []machinev1alpha1.MachineClass {
	GinkgoHelper()
	list := &machinev1alpha1.MachineClassList{}
	Expect(l.Client.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

// nodesOf are the Nodes of a pool.
func (s *shoot) nodesOf(ctx context.Context, pool string) []corev1.Node {
	GinkgoHelper()
	list := &corev1.NodeList{}
	Expect(s.client.List(ctx, list, client.MatchingLabels{v1beta1constants.LabelWorkerPool: pool})).To(Succeed())
	return list.Items
}

// eventuallyReady waits until a pool has so many Nodes, all of them ready, and returns them.
func (s *shoot) eventuallyReady(ctx context.Context, pool string, nodes int) []corev1.Node {
	GinkgoHelper()
	Eventually(func() []corev1.Node { return s.nodesOf(ctx, pool) }).Should(And(HaveLen(nodes), HaveEach(Satisfy(isReadyNode))), "the Nodes of pool %s become ready", pool)
	return s.nodesOf(ctx, pool)
}

func isReadyNode(node corev1.Node) bool { return isReady(&node) }

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ipPool is the IPPool of the shoot's machines, by name.
func ipPool() *unstructured.Unstructured {
	pool := &unstructured.Unstructured{}
	pool.SetGroupVersionKind(schema.GroupVersionKind{Group: "crd.projectcalico.org", Version: "v1", Kind: "IPPool"})
	pool.SetName(machine.IPPoolName(namespace, gardencorev1beta1.IPFamilyIPv4))
	return pool
}

func isNodeAddress(text string) bool {
	address, err := netip.ParseAddr(text)
	return err == nil && netip.MustParsePrefix(nodeCIDR).Contains(address)
}

// podOf is the pod that a Node is, which has its name.
func (s *shoot) podOf(ctx context.Context, node *corev1.Node) *corev1.Pod {
	GinkgoHelper()
	pod := landscape.Named[*corev1.Pod](namespace, node.Name)
	Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
	return pod
}

// expectCapacity waits until the Nodes of a pool report what their pods are limited to.
func (s *shoot) expectCapacity(ctx context.Context, pool string, cpu, memory resource.Quantity) {
	GinkgoHelper()
	// What the kubelet keeps free (kubelet.yaml) it has of the machine, and not of the machine's host.
	free := memory.DeepCopy()
	free.Sub(resource.MustParse("10Mi"))
	for _, node := range s.nodesOf(ctx, pool) {
		Eventually(landscape.Get(ctx, s.client, &node)).Should(And(
			HaveField("Status.Capacity", has(cpu, memory)), HaveField("Status.Allocatable", has(cpu, free))), node.Name)
		resources := s.podOf(ctx, &node).Spec.Containers[0].Resources
		Expect(resources.Limits).To(has(cpu, memory))
		Expect(resources.Requests).To(has(cpu, memory))
	}
}

// has matches a ResourceList with this cpu and memory.
func has(cpu, memory resource.Quantity) OmegaMatcher {
	return And(
		HaveKeyWithValue(corev1.ResourceCPU, WithTransform(func(q resource.Quantity) int { return q.Cmp(cpu) }, BeZero())),
		HaveKeyWithValue(corev1.ResourceMemory, WithTransform(func(q resource.Quantity) int { return q.Cmp(memory) }, BeZero())),
	)
}

// eventuallyNothingOf waits until pod, Service and Secrets of a machine are gone.
func eventuallyNothingOf(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func() []string { return leftovers(ctx, client.MatchingLabels(machine.Labels(name))) }).Should(BeEmpty(), "what belongs to %s goes", name)
}

// expectNothingOfMachines expects that no pod, Service or Secret of any machine is left, wherever it might be.
func expectNothingOfMachines(ctx context.Context) {
	GinkgoHelper()
	Expect(leftovers(ctx, client.MatchingLabels(machine.Selector()))).To(BeEmpty())
}

// leftovers are the pods, Services and Secrets with some labels, in any namespace.
func leftovers(ctx context.Context, labels client.MatchingLabels) []string {
	GinkgoHelper()
	var out []string
	for kind, list := range map[string]client.ObjectList{
		"Pod": &corev1.PodList{}, "Service": &corev1.ServiceList{}, "Secret": &corev1.SecretList{},
	} {
		Expect(l.Client.List(ctx, list, labels)).To(Succeed())
		Expect(eachItem(list, func(obj client.Object) { out = append(out, kind+" "+client.ObjectKeyFromObject(obj).String()) })).To(Succeed())
	}
	return out
}
