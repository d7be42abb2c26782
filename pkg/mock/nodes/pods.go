// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// podStage is the next step in the life of a pod.
type podStage string

const (
	// podStays as it is.
	podStays podStage = ""
	// podRuns: init containers complete, sidecars and containers run and are ready. Readiness gates are open, as nobody else would
	// open them, for lack of a load balancer for example.
	podRuns podStage = "runs"
	// podSucceeds: the containers of a Job's pod complete soon.
	podSucceeds podStage = "succeeds"
	// podEnds: the containers of a deleted pod with a finalizer end first. The controller of Jobs, for example, removes its
	// finalizer only then.
	podEnds podStage = "ends"
	// podGoes: it is deleted without grace, as a kubelet does once all containers have ended.
	podGoes podStage = "goes"

	// jobDelay is how long a pod of a Job runs, and jobJitter the longest extra time.
	jobDelay  = 500 * time.Millisecond
	jobJitter = 500 * time.Millisecond
)

// nextStage returns the next stage of a pod: the first case that applies.
func nextStage(pod *corev1.Pod) podStage {
	var (
		status   = &pod.Status
		isGoing  = pod.DeletionTimestamp != nil
		hasEnded = status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed
	)
	switch {
	case isGoing && len(pod.Finalizers) > 0 && !hasEnded:
		return podEnds
	case isGoing && ptr.Deref(pod.DeletionGracePeriodSeconds, 0) > 0:
		return podGoes
	case isGoing, hasEnded: // A pod that goes was asked to go at once before.
		return podStays
	case status.Phase != corev1.PodRunning:
		return podRuns
	case isOfJob(pod):
		return podSucceeds
	case pod.Generation != 0 && pod.Generation != status.ObservedGeneration:
		return podRuns // A new image, other resources, an ephemeral container.
	case !slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }):
		return podRuns // kube-controller-manager takes the readiness away when no heartbeat of the Node came.
	}
	return podStays
}

func isOfJob(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "Job" && (pod.Spec.RestartPolicy == corev1.RestartPolicyNever || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure)
}

// syncPod takes a pod on one of our Nodes to its next stage. Pods on other Nodes are left alone.
func (s *shoot) syncPod(ctx context.Context, key item) error {
	obj, isThere, _ := s.pods.GetStore().GetByKey(key.String()) // It has no errors.
	if !isThere {
		s.forget(key)
		return nil
	}
	pod := obj.(*corev1.Pod)
	node, stage, now := s.node(pod.Spec.NodeName), nextStage(pod), metav1.NewTime(s.opts.Clock.Now())
	if node == nil || stage == podStays || s.isOutdated(key, pod.ResourceVersion) {
		return nil
	}

	var status *corev1.PodStatus
	switch stage {
	case podGoes:
		if err := deletePod(ctx, s.client, pod); err != nil {
			return err
		}
		s.wrote(key, pod.ResourceVersion, "")
		return nil
	case podSucceeds:
		due := ptr.Deref(pod.Status.StartTime, metav1.Time{}).Add(jobDelay + share(string(pod.UID), jobJitter))
		if wait := due.Sub(now.Time); wait > 0 {
			s.queue.AddAfter(key, wait)
			return nil
		}
		status = endedStatus(pod, now, corev1.PodSucceeded, "PodCompleted", corev1.ContainerStateTerminated{Reason: "Completed"})
		status.Conditions = append(status.Conditions, podCondition(pod, corev1.PodInitialized, corev1.ConditionTrue, "PodCompleted", now))
	case podEnds:
		status = endedStatus(pod, now, corev1.PodFailed, "PodFailed", corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 143})
	default:
		status = s.runningStatus(pod, node, now)
	}
	return patchStatus(ctx, s, key, pod, status, s.client.CoreV1().Pods(pod.Namespace).Patch)
}

// runningStatus returns the status of a pod that runs and is ready. It has an address from each range of its Node, or those of the
// Node itself if it is in its network.
func (s *shoot) runningStatus(pod *corev1.Pod, node *corev1.Node, now metav1.Time) *corev1.PodStatus {
	status := &corev1.PodStatus{Phase: corev1.PodRunning, ObservedGeneration: pod.Generation, StartTime: cmp.Or(pod.Status.StartTime, &now)}
	hostIPs, podIPs := internalIPs(node), ipsOf(pod)
	switch {
	case pod.Spec.HostNetwork:
		podIPs = hostIPs
	case len(podIPs) == 0 && len(node.Spec.PodCIDRs) == 0:
		podIPs = s.addresses.next(nil, prefixes(podRange)...)
	case len(podIPs) == 0:
		podIPs = s.addresses.next(nil, prefixes(node.Spec.PodCIDRs...)...)
	}
	for _, ip := range hostIPs {
		status.HostIP, status.HostIPs = hostIPs[0], append(status.HostIPs, corev1.HostIP{IP: ip})
	}
	for _, ip := range podIPs {
		status.PodIP, status.PodIPs = podIPs[0], append(status.PodIPs, corev1.PodIP{IP: ip})
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, podCondition(pod, kind, corev1.ConditionTrue, "", now))
	}
	for _, gate := range pod.Spec.ReadinessGates {
		status.Conditions = append(status.Conditions, podCondition(pod, gate.ConditionType, corev1.ConditionTrue, "", now))
	}

	completed := &corev1.ContainerStateTerminated{Reason: "Completed"}
	for i := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(pod, &pod.Spec.Containers[i], nil, now))
	}
	for i := range pod.Spec.InitContainers {
		c, end := &pod.Spec.InitContainers[i], completed
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			end = nil // It is a sidecar.
		}
		out := containerStatus(pod, c, end, now)
		out.Ready = true
		status.InitContainerStatuses = append(status.InitContainerStatuses, out)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		out := containerStatus(pod, &corev1.Container{Name: c.Name, Image: c.Image}, completed, now)
		status.EphemeralContainerStatuses = append(status.EphemeralContainerStatuses, out)
	}
	return status
}

// endedStatus returns the status of a pod whose containers have all ended in the same way.
func endedStatus(pod *corev1.Pod, now metav1.Time, phase corev1.PodPhase, reason string, end corev1.ContainerStateTerminated) *corev1.PodStatus {
	status := &corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{
		podCondition(pod, corev1.PodReady, corev1.ConditionFalse, reason, now),
		podCondition(pod, corev1.ContainersReady, corev1.ConditionFalse, reason, now),
	}}
	end.FinishedAt = now
	for i := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(pod, &pod.Spec.Containers[i], &end, now))
	}
	return status
}

// podCondition returns a condition. Its transition was now, unless the pod has it already.
func podCondition(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, reason string, now metav1.Time) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind && c.Status == status && !c.LastTransitionTime.IsZero() {
			now = c.LastTransitionTime
		}
	}
	return corev1.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: now}
}

// containerStatus returns the status of a container that runs and is ready, or has ended with end. It was started now if it has a
// new image, and if there is no status of it yet.
func containerStatus(pod *corev1.Pod, c *corev1.Container, end *corev1.ContainerStateTerminated, now metav1.Time) corev1.ContainerStatus {
	out := corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "mock://" + string(pod.UID) + "-" + c.Name, Ready: end == nil, Started: new(end == nil),
	}
	started := now
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, before := range statuses {
			if before.Name != c.Name {
				continue
			}
			out.RestartCount = before.RestartCount
			switch {
			case before.Image != c.Image:
				out.RestartCount++
			case before.State.Running != nil:
				started = cmp.Or(before.State.Running.StartedAt, now)
			case before.State.Terminated != nil:
				started = cmp.Or(before.State.Terminated.StartedAt, now)
			}
		}
	}
	if end != nil {
		out.State.Terminated = &corev1.ContainerStateTerminated{
			Reason: end.Reason, ExitCode: end.ExitCode, StartedAt: started, FinishedAt: cmp.Or(end.FinishedAt, started),
		}
		return out
	}
	out.State.Running = &corev1.ContainerStateRunning{StartedAt: started}
	if len(c.Resources.Requests)+len(c.Resources.Limits)+len(c.Resources.Claims) > 0 {
		out.Resources = &c.Resources
	}
	return out
}

// ipsOf returns the addresses of a pod, if they are not those of its Node.
func ipsOf(pod *corev1.Pod) (out []string) {
	if pod.Spec.HostNetwork {
		return nil
	}
	for _, ip := range pod.Status.PodIPs {
		out = append(out, ip.IP)
	}
	return out
}

// deletePod deletes a pod without grace. It does not remove finalizers.
func deletePod(ctx context.Context, c kubernetes.Interface, pod *corev1.Pod) error {
	err := c.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if gone(err) != nil {
		return fmt.Errorf("deleting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
