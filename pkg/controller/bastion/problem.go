// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// problem says what keeps a Pod or Service of a bastion from being of use; empty if nothing does.
func problem(obj client.Object) string {
	switch obj := obj.(type) {
	case *corev1.Pod:
		return podProblem(obj)
	case *corev1.Service:
		return serviceProblem(obj)
	}
	return ""
}

func podProblem(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "it is still being deleted"
	}
	if hasEnded(pod) {
		return "it has ended"
	}

	var ready, unscheduled *corev1.PodCondition
	for i, condition := range pod.Status.Conditions {
		switch {
		case condition.Type == corev1.PodReady:
			ready = &pod.Status.Conditions[i]
		case condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse:
			unscheduled = &pod.Status.Conditions[i]
		}
	}
	if ready != nil && ready.Status == corev1.ConditionTrue {
		return ""
	}
	if unscheduled != nil {
		return "no node takes it: " + unscheduled.Message
	}
	for _, container := range pod.Status.ContainerStatuses {
		switch waiting := container.State.Waiting; {
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "ContainerCreating":
			return fmt.Sprintf("its container does not start, %s: %s", waiting.Reason, waiting.Message)
		case container.State.Running != nil:
			return "it runs, but nothing answers on port 22 yet; if it stays so, look at its log and at the user data"
		}
	}
	return "it does not run yet"
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

func serviceProblem(service *corev1.Service) string {
	if service.DeletionTimestamp != nil {
		return "it is still being deleted"
	}
	if addressOf(service) != nil {
		return ""
	}
	for _, condition := range service.Status.Conditions {
		if condition.Status == metav1.ConditionFalse && condition.Message != "" {
			return "it has no address, " + condition.Reason + ": " + condition.Message
		}
	}
	return "it has no address yet, which the cluster's controller for load balancers gives it"
}

// addressOf returns the first address of a Service, or nil.
func addressOf(service *corev1.Service) *corev1.LoadBalancerIngress {
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if ingress.IP != "" || ingress.Hostname != "" {
			return &corev1.LoadBalancerIngress{IP: ingress.IP, Hostname: ingress.Hostname}
		}
	}
	return nil
}
