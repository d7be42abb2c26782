// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"context"
	"fmt"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
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

// addressOf returns the first address of a Service, or nil. In a cluster of a user, it may be any text.
func addressOf(service *corev1.Service) *corev1.LoadBalancerIngress {
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		switch {
		case net.ParseIP(ingress.IP) != nil:
			return &corev1.LoadBalancerIngress{IP: ingress.IP}
		case len(validation.IsDNS1123Subdomain(ingress.Hostname)) == 0:
			return &corev1.LoadBalancerIngress{Hostname: ingress.Hostname}
		}
	}
	return nil
}

// changes lets pass what changes what is said of a Pod or Service, and that one is gone.
func changes() predicate.Predicate {
	changed := reconciler.Changed(said)
	// An instance that starts gets such an event for each object there is.
	changed.CreateFunc = func(e event.CreateEvent) bool { return problem(e.Object) == "" }
	return changed
}

// bastionOf returns which Bastion a Pod or Service in the seed belongs to. It compares names, as the cache keeps no labels of
// Services. A Bastion that does not exist, or needs nothing, costs nothing.
func bastionOf(_ context.Context, obj client.Object) []reconcile.Request {
	name, ok := strings.CutPrefix(obj.GetName(), namePrefix)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: name}}}
}

// said is what a Bastion is told about an object.
func said(obj client.Object) any {
	if service, ok := obj.(*corev1.Service); ok && problem(obj) == "" {
		address := addressOf(service)
		return address.IP + address.Hostname
	}
	return problem(obj)
}

// CacheOptions returns how a manager has to cache Pods: those of bastions alone, with just what tells how they are. The
// Services of bastions are among those that coredns.CacheOptions has the manager cache.
//
// The manager's cache has no other Pods then. So Pod belongs in the list CacheOptions.DisableFor of its client, which
// makes everybody else read them from the API server. The controller here only watches.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}: {
			Label:     labels.SelectorFromSet(labels.Set{machine.LabelApp: machine.AppBastion}),
			Transform: stripPod,
		},
	}
}

func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	var containers []corev1.Container
	for _, container := range pod.Spec.Containers {
		containers = append(containers, corev1.Container{Name: container.Name, Image: container.Image})
	}
	return &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, Annotations: pod.Annotations, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{Containers: containers},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, ContainerStatuses: pod.Status.ContainerStatuses,
		},
	}, nil
}
