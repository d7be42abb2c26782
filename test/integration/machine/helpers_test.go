// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// program is another program that runs beside the specs.
type program struct {
	path      string
	env, args []string

	cmd  *exec.Cmd
	logs *bytes.Buffer
	done chan struct{}
}

func newProgram(path string, env []string, args ...string) *program {
	return &program{path: path, env: env, args: args}
}

// start starts the program.
func (p *program) start() {
	GinkgoHelper()
	p.logs, p.done = &bytes.Buffer{}, make(chan struct{})
	p.cmd = exec.Command(p.path, p.args...) // #nosec G204 -- built by this repository
	p.cmd.Env = append([]string{"HOME=" + GinkgoT().TempDir(), "PATH=" + os.Getenv("PATH")}, p.env...)
	p.cmd.Stdout, p.cmd.Stderr = p.logs, p.logs
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		// The kernel ends the process with the thread that started it, which must therefore not end before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	Expect(<-started).To(Succeed())
}

// stop ends the program as kubelet would.
func (p *program) stop() {
	GinkgoHelper()
	select {
	case <-p.done:
		AddReportEntry("log of "+p.path, p.logs.String(), ReportEntryVisibilityAlways)
		Fail(p.path + " has ended")
	default:
	}
	Expect(p.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	Eventually(p.done).WithTimeout(10 * time.Second).Should(BeClosed())
	AddReportEntry("log of "+p.path, p.logs.String(), ReportEntryVisibilityFailureOrVerbose)
}

// kill ends the program at once.
func (p *program) kill() {
	GinkgoHelper()
	Expect(p.cmd.Process.Kill()).To(Succeed())
	Eventually(p.done).Should(BeClosed())
}

// node runs pods in name only.
type node struct {
	mu      sync.Mutex
	startup map[string]func(*corev1.Pod)
	joined  sets.Set[types.UID]
}

func newNode() *node {
	return &node{startup: map[string]func(*corev1.Pod){}, joined: sets.New[types.UID]()}
}

// starts sets what the pods of a MachineDeployment become: nil for running pods that become Nodes, which is the default.
func (n *node) starts(deployment string, startup func(*corev1.Pod)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.startup[deployment] = startup
}

func (n *node) startupOf(pod *corev1.Pod) func(*corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for deployment, startup := range n.startup {
		if isOf(deployment, pod) {
			return startup
		}
	}
	return nil
}

// isOf reports whether an object is part of a machine of a MachineDeployment.
func isOf(deployment string, obj client.Object) bool {
	return strings.HasPrefix(obj.GetLabels()[machine.LabelMachine], deployment+"-")
}

func (n *node) run(ctx context.Context) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		pods := &corev1.PodList{}
		if err := seed.List(ctx, pods, client.MatchingLabels(machine.Selector())); err != nil {
			continue // it may be stopping
		}
		for _, pod := range pods.Items {
			if err := n.sync(ctx, &pod); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				GinkgoLogr.Error(err, "Playing kubelet", "pod", pod.Name)
			}
		}
	}
}

func (n *node) sync(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return seed.Delete(ctx, pod, client.GracePeriodSeconds(0))
	}
	startup := n.startupOf(pod)
	switch {
	case pod.Spec.NodeName == "":
		return seed.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "seed-node"}})
	case pod.Status.Phase == corev1.PodRunning:
		return n.boot(ctx, pod)
	case startup != nil:
		before := pod.DeepCopy()
		startup(pod)
		return seed.Status().Patch(ctx, pod, client.MergeFrom(before))
	}
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIP, pod.Status.PodIPs = "10.0.0.7", []corev1.PodIP{{IP: "10.0.0.7"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: machine.ContainerName, Image: pod.Spec.Containers[0].Image, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	return seed.Status().Patch(ctx, pod, client.MergeFrom(before))
}

// boot makes a machine a Node, once, as its kubelet does. That takes a machine longer than machine-controller-manager takes to
// note that its pod runs: of a Node that is there before, it would say that it is left from another machine, and replace both.
func (n *node) boot(ctx context.Context, pod *corev1.Pod) error {
	if n.joined.Has(pod.UID) {
		return nil
	}
	m := &machinev1alpha1.Machine{}
	if err := seed.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pod.Labels[machine.LabelMachine]}, m); err != nil || m.Spec.ProviderID == "" {
		return err
	}
	if err := join(ctx, pod.Name, corev1.ConditionTrue); err != nil {
		return err
	}
	n.joined.Insert(pod.UID)
	return nil
}

// join makes a machine a Node, or changes whether it is ready.
func join(ctx context.Context, name string, ready corev1.ConditionStatus) error {
	obj := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := client.IgnoreAlreadyExists(shoot.Create(ctx, obj)); err != nil {
		return fmt.Errorf("creating Node %s: %w", name, err)
	}
	// machine-controller-manager writes to it at the same time.
	before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	obj = before.DeepCopy()
	obj.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "Test", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	return shoot.Status().Patch(ctx, obj, client.StrategicMergeFrom(before))
}

// waitingFor makes a pod wait for its container.
func waitingFor(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodPending
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: machine.ContainerName, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}
	}
}
