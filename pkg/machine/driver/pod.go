// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// isOver reports whether a pod has ended. Containers of a machine's pod start again whenever they end, so its node gave it up:
// it was evicted, or there was no room after all.
func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// isRunning reports whether a pod runs and says where.
func isRunning(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && len(pod.Status.PodIPs) > 0 && waiting(pod) == nil
}

// waiting returns why the container of a machine does not run, or nil.
func waiting(pod *corev1.Pod) *corev1.ContainerStateWaiting {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == machine.ContainerName {
			return status.State.Waiting
		}
	}
	return nil
}

// addresses are those of the machine's Node.
func addresses(pod *corev1.Pod) []corev1.NodeAddress {
	var out []corev1.NodeAddress
	for _, ip := range pod.Status.PodIPs {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.IP})
	}
	return out
}

// unschedulable returns what the scheduler says about a pod for which it has found no node, or nothing. It has found one if
// it is making room there by preemption.
func unschedulable(pod *corev1.Pod) string {
	if pod.Status.NominatedNodeName != "" {
		return ""
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
			return condition.Message
		}
	}
	return ""
}

// lacksResources tells by the scheduler's message whether a node would do if it had more room.
func lacksResources(message string) bool {
	return strings.Contains(message, "Insufficient ") || strings.Contains(message, "Too many pods")
}

// progress tells in a few words why a pod does not run yet.
func progress(pod *corev1.Pod) string {
	if message := unschedulable(pod); message != "" {
		return "it is unschedulable: " + message
	}
	if state := waiting(pod); state != nil {
		return strings.TrimSuffix(state.Reason+": "+state.Message, ": ")
	}
	return "its phase is " + string(pod.Status.Phase)
}

// failure returns what keeps a pod from ever running, as it says itself, with a code, or nil.
//
// A first ErrImagePull may be a hiccup and is not one: kubelet tries again and reports ImagePullBackOff in between.
func failure(pod *corev1.Pod) error {
	if isOver(pod) {
		return newStatus(codeOfEnd(pod.Status.Reason), "pod %s/%s has ended: phase %s, reason %q: %s", pod.Namespace, pod.Name, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	}
	state := waiting(pod)
	if state == nil {
		return nil
	}
	code := codes.FailedPrecondition
	switch state.Reason {
	case "ImagePullBackOff", "ErrImageNeverPull":
	case "InvalidImageName":
		code = codes.InvalidArgument
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return newStatus(code, "container of pod %s/%s cannot be started: %s: %s", pod.Namespace, pod.Name, state.Reason, state.Message)
	case "CrashLoopBackOff":
		return newStatus(codes.Internal, "machine in pod %s/%s does not stay up: %s: %s", pod.Namespace, pod.Name, state.Reason, state.Message)
	default:
		return nil
	}
	return newStatus(code, "image %s of pod %s/%s cannot be pulled: %s: %s", image(pod), pod.Namespace, pod.Name, state.Reason, state.Message)
}

// codeOfEnd returns a code for the reason of a pod that has ended. kubelet's reasons for a lack of room are OutOfcpu and the
// like.
func codeOfEnd(reason string) codes.Code {
	switch {
	case strings.HasPrefix(reason, "OutOf"), reason == "Evicted", reason == "UnexpectedAdmissionError":
		return codes.ResourceExhausted
	default:
		return codes.Aborted
	}
}

func image(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		if container.Name == machine.ContainerName {
			return container.Image
		}
	}
	return ""
}
