// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// stopGrace is what containers have to end by themselves. Databases have written all by then; most others take longer and need not.
const stopGrace = 5 * time.Second

// Stop ends all processes and containers, and leaves everything else as it is: Start brings the same landscape back.
func (l Landscape) Stop(ctx context.Context) error {
	unlock, err := l.existing()
	if err != nil {
		return err
	}
	defer unlock()
	steps, err := l.stopSteps()
	if err != nil {
		return err
	}
	return step.Runner{Out: l.Out, Now: l.Now}.Run(ctx, steps)
}

func (l Landscape) stopSteps() ([]step.Step, error) {
	cleaner, err := l.cleaner()
	if err != nil {
		return nil, err
	}
	return step.Until(l.downSteps(cleaner, stopGrace), "mounts")
}

// Start brings a landscape back after Stop or a reboot, and waits until it is healthy. It builds and deploys nothing. Again, it
// continues.
func (l Landscape) Start(ctx context.Context) error {
	unlock, err := l.existing()
	if err != nil {
		return err
	}
	defer unlock()
	steps, err := l.startSteps()
	if err != nil {
		return err
	}
	return l.runStart(ctx, steps)
}

// startSteps are those that bring back what is there.
func (l *Landscape) startSteps() ([]step.Step, error) {
	l.times, l.ahead, l.starts = &times{path: l.Layout.State("start.json"), now: l.Now}, &ahead{}, true
	if err := errors.Join(os.RemoveAll(l.times.path), l.times.begin()); err != nil {
		return nil, err
	}
	deploys := []string{"packages", "binaries", "images", "machine-image", "deploy", "garden", "gardenlet", "seed", "shoot"}
	for _, s := range l.Steps() {
		if l.came(s.Name) {
			l.until = s.Name // The preflight asks for the memory of this.
		}
	}
	steps := slices.DeleteFunc(l.Steps(), func(s step.Step) bool { return slices.Contains(deploys, s.Name) })
	const look = "look at `make status`, and at the logs of the pods that it names"
	return append(steps,
		step.Step{Name: "pods", Title: "all pods run again", Remedy: look, Execute: l.pods},
		step.Step{Name: "gardener", Title: "Garden, Seeds and Shoots are healthy", Remedy: look, Execute: l.gardener},
	), nil
}

func (l Landscape) runStart(ctx context.Context, steps []step.Step) error {
	err := step.Runner{Out: l.Out, Now: l.Now}.Run(ctx, steps)
	return errors.Join(err, l.summary(), l.handOver())
}

// existing locks a landscape that is there.
func (l Landscape) existing() (func(), error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("stopping and starting the landscape needs root: run it with sudo")
	}
	if !exists(l.snapshotPath()) {
		return nil, errors.New("there is no landscape; bring it up with make up")
	}
	return l.lockApart()
}

// pods waits until containers have been started of all pods and are ready. What is said of them from before does not count.
func (l Landscape) pods(ctx context.Context, progress step.Progress) (string, error) {
	since, err := l.since()
	if err != nil {
		return "", err
	}
	return l.wait(ctx, progress, []milestone{{title: "Pods run again", kind: corev1.SchemeGroupVersion.WithKind("Pod"), reached: func(objects []unstructured.Unstructured) (bool, string) {
		return runSince(since, objects)
	}}})
}

// since is when containerd was started, which all that runs is younger than.
func (l Landscape) since() (time.Time, error) {
	record, _, err := l.Processes().Find(node.Containerd)
	return record.Started, err
}

// runSince wants all pods that have not ended Ready, by containers that have been started since.
func runSince(since time.Time, objects []unstructured.Unstructured) (bool, string) {
	count := 0
	for _, object := range objects {
		pod := as[corev1.Pod](object)
		if hasEnded(pod) {
			continue
		}
		isOld := func(c corev1.ContainerStatus) bool {
			return c.State.Running == nil || c.State.Running.StartedAt.Time.Before(since)
		}
		if slices.ContainsFunc(pod.Status.ContainerStatuses, isOld) || !isReady(pod) {
			return false, fmt.Sprintf("Pod %s is not Ready yet", nameOf(pod))
		}
		count++
	}
	return true, fmt.Sprintf("%d pods", count)
}

// hasEnded reports whether a pod runs no more: what is missing of it is there in another one.
func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// gardener waits until Gardener is healthy as far as the landscape has it, and the Nodes of Shoots say so themselves.
func (l Landscape) gardener(ctx context.Context, progress step.Progress) (string, error) {
	if !exists(l.Layout.VirtualKubeconfig()) {
		return "there is no Garden", nil
	}
	since, err := l.since()
	if err == nil {
		err = l.virtualKubeconfig(ctx)
	}
	if err != nil {
		return "", err
	}
	healthyIfAny := func(objects []unstructured.Unstructured) (bool, string) {
		if len(objects) == 0 {
			return true, "there are none"
		}
		return healthy(objects)
	}
	all := []milestone{
		{title: "Garden healthy", kind: gardens, reached: healthy},
		{title: "Seeds healthy", on: virtualGarden, kind: seeds, reached: healthyIfAny},
		{title: "Shoots healthy", on: virtualGarden, kind: shoots, reached: healthyIfAny},
	}
	if state, err := l.wait(ctx, progress, all); err != nil {
		return state, err
	}
	nodes, err := l.nodesReady(ctx, since)
	if err != nil {
		return "", err
	}
	return l.wait(ctx, progress, append(all, nodes...))
}

// nodesReady is reached when all Nodes of Shoots are Ready, as their kubelets have said since.
func (l Landscape) nodesReady(ctx context.Context, since time.Time) ([]milestone, error) {
	garden, err := l.client(virtualGarden)
	if err != nil {
		return nil, err
	}
	list, err := cluster.List(ctx, garden, shoots)
	if err != nil {
		return nil, err
	}
	var all []milestone
	for _, shoot := range list {
		if !hasNodes(&shoot) {
			continue
		}
		kubeconfig, err := l.shootKubeconfig(ctx, shoot.GetNamespace()+"/"+shoot.GetName())
		if err != nil {
			return nil, err
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			return nil, err
		}
		in, err := client.NewWithWatch(config, client.Options{})
		if err != nil {
			return nil, err
		}
		all = append(all, milestone{title: "Nodes of shoot " + nameOf(&shoot) + " Ready", client: in, kind: corev1.SchemeGroupVersion.WithKind("Node"), reached: func(objects []unstructured.Unstructured) (bool, string) {
			return readySince(since, objects)
		}})
	}
	return all, nil
}

// hasNodes reports whether a Shoot has machines, and is awake.
func hasNodes(shoot *unstructured.Unstructured) bool {
	workers, _, _ := unstructured.NestedSlice(shoot.Object, "spec", "provider", "workers")
	return len(workers) > 0 && !cluster.StatusOf(shoot).Hibernated
}

// reboot boots all machines, and waits until their Nodes are Ready again.
func (l Landscape) reboot(ctx context.Context) error {
	c, err := l.client(runtimeCluster)
	if err != nil {
		return err
	}
	pods, machines := &corev1.PodList{}, []client.ListOption{client.MatchingLabels{"app": "machine", "machine-provider": "local"}}
	if err := c.List(ctx, pods, machines...); err != nil {
		return fmt.Errorf("listing the machines: %w", err)
	}
	asked := l.Now()
	for _, pod := range pods.Items {
		// #nosec G204 -- our own kubectl.
		cmd := exec.CommandContext(ctx, l.Layout.Kubectl(), "--kubeconfig", l.Layout.Kubeconfig(), "exec", "-n", pod.Namespace, pod.Name, "--", "systemctl", "reboot")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("rebooting machine %s: %w: %s", client.ObjectKeyFromObject(&pod), err, out)
		}
	}
	progress := func(format string, args ...any) { _, _ = fmt.Fprintf(l.Out, format+"\n", args...) }
	if _, err := l.wait(ctx, progress, []milestone{{title: "Machines run again", kind: corev1.SchemeGroupVersion.WithKind("Pod"), options: machines, reached: func(objects []unstructured.Unstructured) (bool, string) {
		return runSince(asked, objects)
	}}}); err != nil {
		return err
	}
	nodes, err := l.nodesReady(ctx, asked)
	if err != nil {
		return err
	}
	_, err = l.wait(ctx, progress, nodes)
	return err
}

// readySince wants all Nodes Ready, as their kubelets have said since.
func readySince(since time.Time, objects []unstructured.Unstructured) (bool, string) {
	for _, object := range objects {
		node := as[corev1.Node](object)
		if !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && c.LastHeartbeatTime.After(since)
		}) {
			return false, fmt.Sprintf("Node %s is not Ready yet", node.Name)
		}
	}
	return len(objects) > 0, fmt.Sprintf("%d Nodes", len(objects))
}
