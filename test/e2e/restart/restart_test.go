// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package restart_test holds the end-to-end tests of what ends a landscape and brings it back: `make stop` and `make start`, the end of
// all processes, that of a machine, and a snapshot. They stop the bare landscape that is up (`make up`), so they only run if the label
// filter names them, and need root.
package restart_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

const (
	label        = "restart"
	project      = "garden-local"
	snapshotName = "e2e-restart"
	markName     = "e2e-restart"
	// How long operations may take at most, on two busy cores.
	patience     = 15 * time.Minute
	specPatience = SpecTimeout(time.Hour)
)

var (
	l *landscape.Landscape
	g *landscape.Garden
)

func TestRestart(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(3 * time.Minute)
	EnforceDefaultTimeoutsWhenUsingContexts()
	suite, reporter := GinkgoConfiguration()
	suite.Timeout = max(suite.Timeout, 3*time.Hour)
	RunSpecs(t, "Restarts, end to end", suite, reporter, Label(label))
}

var _ = JustAfterEach(landscape.ExplainFailure)

var _ = BeforeSuite(func() {
	if !strings.Contains(GinkgoLabelFilter(), label) {
		Skip("it ends the landscape: name it with LABELS=" + label)
	}
	if landscape.OnKind() {
		Skip("kind clusters are none of the landscape's processes")
	}
	l, g = landscape.Connect(), landscape.ConnectGarden()
})

var _ = Describe("A landscape", Serial, Ordered, func() {
	var (
		machines, workerless *gardencorev1beta1.Shoot
		pod                  *corev1.Pod
		before               map[string]string
	)

	BeforeAll(func(ctx SpecContext) {
		machines, workerless = shoot("local"), shoot("local-workerless")
		g.EventuallyHealthy(ctx, machines, patience)
		g.EventuallyHealthy(ctx, workerless, patience)
		image := l.PushProbe(ctx)
		cluster := access(ctx, machines)
		pod = landscape.ProbePod(metav1.NamespaceDefault, markName, image, "serve", "-name", markName, "-http", ":8080")
		objects := map[client.Client][]client.Object{
			l.Client: {mark(metav1.NamespaceDefault)}, g.Client: {mark(project)}, cluster.Client: {mark(metav1.NamespaceDefault), pod},
		}
		for c, objects := range objects {
			for _, object := range objects {
				landscape.DeleteAndWait(ctx, c, object)
				landscape.Create(ctx, c, object)
			}
		}
		landscape.EventuallyPodReady(ctx, cluster.Client, pod)
		before = identities(ctx, machines)
	}, NodeTimeout(30*time.Minute))

	// expectAsBefore expects the same healthy objects, and the data that was written before.
	expectAsBefore := func(ctx context.Context, since time.Time) {
		GinkgoHelper()
		g.EventuallyHealthy(ctx, workerless, patience)
		g.EventuallyHealthy(ctx, machines, patience)
		Expect(identities(ctx, machines)).To(Equal(before))
		cluster := access(ctx, machines)
		for _, c := range []client.Client{l.Client, cluster.Client} {
			Expect(c.Get(ctx, client.ObjectKeyFromObject(mark(metav1.NamespaceDefault)), &corev1.ConfigMap{})).To(Succeed())
		}
		Expect(g.Client.Get(ctx, client.ObjectKeyFromObject(mark(project)), &corev1.ConfigMap{})).To(Succeed())
		eventuallyRunsSince(ctx, cluster, pod, since)
	}

	It("comes back after make stop and make start", specPatience, func(ctx SpecContext) {
		landscape.Run(ctx, "stop")
		Expect(processes()).To(BeEmpty(), "nothing runs any more")
		since := time.Now()
		landscape.Run(ctx, "start")
		expectAsBefore(ctx, since)
	})

	It("comes back by make up when all of its processes were killed", specPatience, func(ctx SpecContext) {
		Eventually(func() []int {
			for _, pid := range processes() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return processes()
		}).WithContext(ctx).Should(BeEmpty(), "all are dead, also those that were just begun")
		since := time.Now()
		landscape.Run(ctx, "up")
		expectAsBefore(ctx, since)
	})

	It("has the same machine and Node again when the machine's container has ended", specPatience, func(ctx SpecContext) {
		pods := &corev1.PodList{}
		Expect(l.Client.List(ctx, pods, client.InNamespace(machines.Status.TechnicalID), client.HasLabels{machine.LabelMachine})).To(Succeed())
		Expect(pods.Items).To(HaveLen(1))
		since := time.Now()
		// PID 1 of the machine doesn't live to answer.
		_, _ = landscape.Execute(ctx, l.Config, &pods.Items[0], "systemctl", "poweroff", "--force", "--force")
		Eventually(landscape.Get(ctx, l.Client, &pods.Items[0])).WithContext(ctx).Should(HaveField("Status.ContainerStatuses", ContainElement(
			HaveField("State.Running.StartedAt.Time", BeTemporally(">=", since.Truncate(time.Second))))), "the container was started again")
		eventuallyRunsSince(ctx, access(ctx, machines), pod, since)
		GinkgoWriter.Printf("Node Ready and its pod running after %.1f s\n", time.Since(since).Seconds())
		expectAsBefore(ctx, since)
	})

	It("continues unfinished operations after it was restored from a snapshot", specPatience, func(ctx SpecContext) {
		deleted := workerless.DeepCopy()
		deleted.ObjectMeta = metav1.ObjectMeta{Namespace: project, Name: "e2e-restart"}
		deleted.Status = gardencorev1beta1.ShootStatus{}
		deleted.Spec.DNS, deleted.Spec.CredentialsBindingName = nil, nil
		landscape.Create(ctx, g.Client, deleted)
		g.EventuallyHealthy(ctx, deleted, patience)

		By("being in the midst of a deletion, a hibernation and a rotation")
		g.Delete(ctx, deleted)
		g.Change(ctx, machines, func() { machines.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)} })
		g.Operate(ctx, workerless, v1beta1constants.OperationRotateCAStart)
		Eventually(func(gm Gomega) {
			for _, s := range []*gardencorev1beta1.Shoot{deleted, machines, workerless} {
				gm.Expect(g.Refresh(ctx, s)).To(Succeed())
				gm.Expect(s.Status.LastOperation).To(And(
					HaveField("State", gardencorev1beta1.LastOperationStateProcessing), HaveField("Progress", BeNumerically(">", 0))), s.Name)
			}
		}).WithContext(ctx).Should(Succeed())
		landscape.Run(ctx, "stop")
		landscape.Run(ctx, "save", snapshotName)
		landscape.Run(ctx, "down")
		DeferCleanup(func(ctx SpecContext) { landscape.Run(ctx, "snapshots", "--delete", snapshotName) }, NodeTimeout(time.Minute))

		By("being restored")
		landscape.Run(ctx, "up", "--from", snapshotName)
		g.EventuallyDeleted(ctx, deleted, patience)
		g.EventuallyHealthy(ctx, machines, patience)
		Expect(machines.Status.IsHibernated).To(BeTrue())
		g.EventuallyHealthy(ctx, workerless, patience)
		Expect(workerless.Status.Credentials.Rotation.CertificateAuthorities.Phase).To(Equal(gardencorev1beta1.RotationPrepared))

		By("finishing all of it")
		g.Operate(ctx, workerless, v1beta1constants.OperationRotateCAComplete)
		g.Change(ctx, machines, func() { machines.Spec.Hibernation.Enabled = new(false) })
		g.EventuallyHealthy(ctx, workerless, patience)
		Expect(workerless.Status.Credentials.Rotation.CertificateAuthorities.Phase).To(Equal(gardencorev1beta1.RotationCompleted))
		g.EventuallyHealthy(ctx, machines, patience)
		Expect(access(ctx, machines).Client.Get(ctx, client.ObjectKeyFromObject(mark(metav1.NamespaceDefault)), &corev1.ConfigMap{})).To(Succeed())
	})
})

func shoot(name string) *gardencorev1beta1.Shoot {
	return landscape.Named[*gardencorev1beta1.Shoot](project, name)
}

// mark is what is written before, and is there after.
func mark(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: markName}, Data: map[string]string{"was": "here"}}
}

func access(ctx context.Context, of *gardencorev1beta1.Shoot) *landscape.Cluster {
	GinkgoHelper()
	var cluster *landscape.Cluster
	Eventually(func() (err error) {
		cluster, err = g.Access(ctx, of, "")
		return err
	}).WithContext(ctx).Should(Succeed())
	return cluster
}

// identities are the UIDs of what must not be made anew.
func identities(ctx context.Context, machines *gardencorev1beta1.Shoot) map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	add := func(c client.Client, list client.ObjectList, kind string, options ...client.ListOption) {
		GinkgoHelper()
		Expect(c.List(ctx, list, options...)).To(Succeed())
		Expect(meta.LenList(list)).NotTo(BeZero(), kind)
		Expect(meta.EachListItem(list, func(object runtime.Object) error {
			found[kind+" "+client.ObjectKeyFromObject(object.(client.Object)).String()] = string(object.(client.Object).GetUID())
			return nil
		})).To(Succeed())
	}
	add(l.Client, &operatorv1alpha1.GardenList{}, "Garden")
	add(l.Client, &machinev1alpha1.MachineList{}, "Machine")
	add(l.Client, &corev1.PersistentVolumeClaimList{}, "PersistentVolumeClaim")
	add(g.Client, &gardencorev1beta1.SeedList{}, "Seed")
	add(g.Client, &gardencorev1beta1.ShootList{}, "Shoot")
	add(access(ctx, machines).Client, &corev1.NodeList{}, "Node")
	return found
}

// eventuallyRunsSince waits until all Nodes are Ready, as their kubelets have said since, and the pod runs in a container of since.
func eventuallyRunsSince(ctx context.Context, cluster *landscape.Cluster, pod *corev1.Pod, since time.Time) {
	GinkgoHelper()
	Eventually(func(gm Gomega) {
		nodes := &corev1.NodeList{}
		gm.Expect(cluster.Client.List(ctx, nodes)).To(Succeed())
		gm.Expect(nodes.Items).To(HaveEach(HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue), HaveField("LastHeartbeatTime.Time", BeTemporally(">", since)))))))
		gm.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		gm.Expect(pod.Status.ContainerStatuses).To(HaveEach(And(
			HaveField("Ready", true), HaveField("State.Running.StartedAt.Time", BeTemporally(">=", since.Truncate(time.Second))))))
	}).WithContext(ctx).WithTimeout(5 * time.Minute).Should(Succeed())
}

// processes are those of the landscape: what it runs itself, and what is in its pods.
func processes() []int {
	GinkgoHelper()
	entries, err := filepath.Glob("/proc/[0-9]*")
	Expect(err).NotTo(HaveOccurred())
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		Expect(err).NotTo(HaveOccurred())
		// One that has ended meanwhile has neither.
		command, _ := os.ReadFile(entry + "/cmdline")
		cgroups, _ := os.ReadFile(entry + "/cgroup")
		own := bytes.Contains(command, []byte(landscape.State()+"/")) && !bytes.Contains(command, []byte("restart.test"))
		if own || bytes.Contains(cgroups, []byte("/provider-local/")) {
			found = append(found, pid)
		}
	}
	return found
}
