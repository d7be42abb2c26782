// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

func podIn(state corev1.ContainerState, conditions ...corev1.PodCondition) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objectName},
		Status: corev1.PodStatus{
			Phase: corev1.PodPending, Conditions: conditions, ContainerStatuses: []corev1.ContainerStatus{{State: state}},
		},
	}
}

func readyPod(status corev1.ConditionStatus) *corev1.Pod {
	return podIn(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, corev1.PodCondition{Type: corev1.PodReady, Status: status})
}

func waitingPod(reason, message string) *corev1.Pod {
	return podIn(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

func serviceWith(ip string, conditions ...metav1.Condition) *corev1.Service {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objectName}}
	service.Status.Conditions = conditions
	if ip != "" {
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip}}
	}
	return service
}

func deleting(obj client.Object) client.Object {
	obj.SetDeletionTimestamp(new(metav1.Now()))
	return obj
}

func TestProblem(t *testing.T) {
	for name, tt := range map[string]struct {
		obj      client.Object
		expected string
	}{
		"a Pod that is ready":              {readyPod(corev1.ConditionTrue), ""},
		"a Pod that is not ready":          {readyPod(corev1.ConditionFalse), "it runs, but nothing answers on port 22 yet; if it stays so, look at its log and at the user data"},
		"a Pod that is being deleted":      {deleting(readyPod(corev1.ConditionTrue)), "it is still being deleted"},
		"a Pod that begins":                {waitingPod("ContainerCreating", ""), "it does not run yet"},
		"a Pod without its image":          {waitingPod("ErrImagePull", "not found"), "its container does not start, ErrImagePull: not found"},
		"a Pod for which there is no room": {podIn(corev1.ContainerState{}, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes"}), "no node takes it: 0/1 nodes"},
		"a Pod that was evicted":           {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, "it has ended"},
		"a Service with an address":        {serviceWith("192.0.2.1"), ""},
		"a Service that is deleted":        {deleting(serviceWith("192.0.2.1")), "it is still being deleted"},
		"a Service without an address":     {serviceWith(""), "it has no address yet, which the cluster's controller for load balancers gives it"},
		"a Service for which there is none": {
			serviceWith("", metav1.Condition{Type: "LoadBalancerReady", Status: metav1.ConditionFalse, Reason: "PoolExhausted", Message: "all are in use"}),
			"it has no address, PoolExhausted: all are in use",
		},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(problem(tt.obj)).To(Equal(tt.expected))
		})
	}
}

func TestOnlyAnAddressOrAHostnameIsTold(t *testing.T) {
	for name, tt := range map[string]struct{ ingress, expected corev1.LoadBalancerIngress }{
		"an address":                     {corev1.LoadBalancerIngress{IP: "2001:db8::1"}, corev1.LoadBalancerIngress{IP: "2001:db8::1"}},
		"a hostname":                     {corev1.LoadBalancerIngress{Hostname: "lb.example.org"}, corev1.LoadBalancerIngress{Hostname: "lb.example.org"}},
		"a text":                         {ingress: corev1.LoadBalancerIngress{IP: "somebody's", Hostname: "secret"}, expected: corev1.LoadBalancerIngress{Hostname: "secret"}},
		"an address with a zone":         {ingress: corev1.LoadBalancerIngress{IP: "fe80::1%" + strings.Repeat("x", 1<<20)}},
		"a hostname too long for a name": {ingress: corev1.LoadBalancerIngress{Hostname: strings.Repeat("x", 1<<20)}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			service := serviceWith("")
			service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{tt.ingress}
			if tt.expected.IP+tt.expected.Hostname == "" {
				g.Expect(addressOf(service)).To(BeNil())
			} else {
				g.Expect(addressOf(service)).To(HaveValue(Equal(tt.expected)))
			}
		})
	}
}

func TestAPodOfAnotherProgramIsOutdated(t *testing.T) {
	wanted := readyPod("True")
	wanted.Annotations = map[string]string{AnnotationImage: "node:1"}
	NewWithT(t).Expect(isOutdated(podIn(corev1.ContainerState{}), wanted)).To(BeTrue())
}

func TestWhatWakesABastion(t *testing.T) {
	for name, tt := range map[string]struct {
		event any
		wakes bool
	}{
		"a Pod gets ready":                          {event.UpdateEvent{ObjectOld: readyPod("False"), ObjectNew: readyPod("True")}, true},
		"a Pod can't get its image":                 {event.UpdateEvent{ObjectOld: waitingPod("ContainerCreating", ""), ObjectNew: waitingPod("ErrImagePull", "not found")}, true},
		"a Pod changes in what does not matter":     {event.UpdateEvent{ObjectOld: readyPod("True"), ObjectNew: readyPod("True")}, false},
		"a Pod is drained":                          {event.UpdateEvent{ObjectOld: readyPod("True"), ObjectNew: deleting(readyPod("True"))}, true},
		"a Pod is gone":                             {event.DeleteEvent{Object: readyPod("True")}, true},
		"a Pod is created":                          {event.CreateEvent{Object: podIn(corev1.ContainerState{})}, false},
		"a Pod is found ready":                      {event.CreateEvent{Object: readyPod("True")}, true},
		"a Service gets an address":                 {event.UpdateEvent{ObjectOld: serviceWith(""), ObjectNew: serviceWith("192.0.2.1")}, true},
		"a Service gets another address":            {event.UpdateEvent{ObjectOld: serviceWith("192.0.2.1"), ObjectNew: serviceWith("192.0.2.2")}, true},
		"a Service changes in what does not matter": {event.UpdateEvent{ObjectOld: serviceWith("192.0.2.1"), ObjectNew: serviceWith("192.0.2.1")}, false},
		"a Service is gone":                         {event.DeleteEvent{Object: serviceWith("192.0.2.1")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			wakes := false
			switch e := tt.event.(type) {
			case event.CreateEvent:
				wakes = changes().Create(e)
			case event.UpdateEvent:
				wakes = changes().Update(e)
			case event.DeleteEvent:
				wakes = changes().Delete(e)
			}
			NewWithT(t).Expect(wakes).To(Equal(tt.wakes))
		})
	}
}

func TestWhoIsWoken(t *testing.T) {
	g := NewWithT(t)
	g.Expect(bastionOf(t.Context(), readyPod("True"))).To(ConsistOf(reconcile.Request{NamespacedName: bastionKey}))
	other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-apiserver"}}
	g.Expect(bastionOf(t.Context(), other)).To(BeEmpty())
}

func TestABastionThatWasReadyIsAmissWhen(t *testing.T) {
	for name, tt := range map[string]struct {
		objects []client.Object
		amiss   bool
	}{
		"all is as it was, it is not":                                 {[]client.Object{readyPod("True"), serviceWith("192.0.2.1")}, false},
		"its Pod is drained":                                          {[]client.Object{serviceWith("192.0.2.1")}, true},
		"its Pod is not ready":                                        {[]client.Object{readyPod("False"), serviceWith("192.0.2.1")}, true},
		"its Service is gone":                                         {[]client.Object{readyPod("True")}, true},
		"its Service has another address":                             {[]client.Object{readyPod("True"), serviceWith("192.0.2.2")}, true},
		"its Service has lost its address":                            {[]client.Object{readyPod("True"), serviceWith("")}, true},
		"the seed has nothing of it, as it may be in another cluster": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBastion(func(b *extensionsv1alpha1.Bastion) { b.Status.Ingress = &corev1.LoadBalancerIngress{IP: "192.0.2.1"} })
			a := &actuator{cache: newFake(t, tt.objects...)}
			NewWithT(t).Expect(a.isAmiss(t.Context(), b)).To(Equal(tt.amiss))
		})
	}

	t.Run("not when the cache can't be read", func(t *testing.T) {
		e := newEnv(t)
		e.fail = func(string, client.Object) error { return errors.New("it has not started") }
		a := &actuator{cache: e.observe(e.WithWatch, true)}
		NewWithT(t).Expect(a.isAmiss(t.Context(), newBastion())).To(BeFalse())
	})
}

func TestTheCacheHasThePodsOfBastions(t *testing.T) {
	g := NewWithT(t)
	options := CacheOptions()
	g.Expect(options).To(HaveLen(1))
	for _, byObject := range options {
		g.Expect(byObject.Label.Matches(labels.Set(newTestHost().labels()))).To(BeTrue())
		g.Expect(byObject.Label.String()).To(Equal("app=bastion"))
	}
}
