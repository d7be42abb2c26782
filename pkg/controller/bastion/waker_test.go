// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
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

func TestWaker(t *testing.T) {
	inState := func(state gardencorev1beta1.LastOperationState) *extensionsv1alpha1.Bastion {
		return newBastion(func(b *extensionsv1alpha1.Bastion) {
			b.Status.LastOperation = &gardencorev1beta1.LastOperation{State: state}
		})
	}
	done, underWay := inState(gardencorev1beta1.LastOperationStateSucceeded), inState(gardencorev1beta1.LastOperationStateError)
	asked := done.DeepCopy()
	asked.Annotations = map[string]string{"gardener.cloud/operation": "reconcile"}

	for name, tt := range map[string]struct {
		bastion *extensionsv1alpha1.Bastion
		event   any
		wakes   bool
	}{
		"a Pod gets ready":                                    {underWay, event.UpdateEvent{ObjectOld: readyPod("False"), ObjectNew: readyPod("True")}, true},
		"a Pod can't get its image":                           {underWay, event.UpdateEvent{ObjectOld: waitingPod("ContainerCreating", ""), ObjectNew: waitingPod("ErrImagePull", "not found")}, true},
		"a Pod changes in what does not matter":               {underWay, event.UpdateEvent{ObjectOld: readyPod("True"), ObjectNew: readyPod("True")}, false},
		"a Pod of a Bastion that is done is drained":          {done, event.UpdateEvent{ObjectOld: readyPod("True"), ObjectNew: deleting(readyPod("True"))}, true},
		"a Pod of a Bastion that is done is gone":             {done, event.DeleteEvent{Object: readyPod("True")}, true},
		"a Pod is created":                                    {underWay, event.CreateEvent{Object: podIn(corev1.ContainerState{})}, false},
		"a Pod is found ready":                                {underWay, event.CreateEvent{Object: readyPod("True")}, true},
		"a Pod of a Bastion that is asked for is found ready": {asked, event.CreateEvent{Object: readyPod("True")}, true},
		"a Pod of a Bastion that is done is found ready":      {done, event.CreateEvent{Object: readyPod("True")}, false},
		"a Pod of no Bastion is found ready":                  {nil, event.CreateEvent{Object: readyPod("True")}, false},
		"a Service gets an address":                           {underWay, event.UpdateEvent{ObjectOld: serviceWith(""), ObjectNew: serviceWith("192.0.2.1")}, true},
		"a Service gets another address":                      {done, event.UpdateEvent{ObjectOld: serviceWith("192.0.2.1"), ObjectNew: serviceWith("192.0.2.2")}, true},
		"a Service changes in what does not matter":           {done, event.UpdateEvent{ObjectOld: serviceWith("192.0.2.1"), ObjectNew: serviceWith("192.0.2.1")}, false},
		"a Service of a Bastion that is done is gone":         {done, event.DeleteEvent{Object: serviceWith("192.0.2.1")}, true},
		"a Service of something else is gone": {done, event.DeleteEvent{Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "kube-apiserver",
		}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := &waker{reader: newFake(t)}
			if tt.bastion != nil {
				w.reader = newFake(t, tt.bastion.DeepCopy())
			}
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer queue.ShutDown()
			switch e := tt.event.(type) {
			case event.CreateEvent:
				w.handler().Create(t.Context(), e, queue)
			case event.UpdateEvent:
				w.handler().Update(t.Context(), e, queue)
			case event.DeleteEvent:
				w.handler().Delete(t.Context(), e, queue)
			}
			if !tt.wakes {
				g.Expect(queue.Len()).To(BeZero())
				return
			}
			g.Expect(queue.Len()).To(Equal(1))
			request, _ := queue.Get()
			g.Expect(request.NamespacedName).To(Equal(bastionKey))
		})
	}
}

func TestTheCacheHasWhatTheWakerReads(t *testing.T) {
	g := NewWithT(t)
	options := CacheOptions()
	g.Expect(options).To(HaveLen(1))
	for _, byObject := range options {
		pod := waitingPod("ErrImagePull", "not found")
		pod.Labels = newTestHost().labels()
		g.Expect(byObject.Label.String()).To(Equal("app=bastion"))
		stripped, err := byObject.Transform(pod)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(said(stripped.(*corev1.Pod))).To(Equal(said(pod)))
		key, ok := bastionOf(stripped.(*corev1.Pod))
		g.Expect(ok).To(BeTrue())
		g.Expect(key).To(Equal(bastionKey))
		g.Expect(stripped.(*corev1.Pod).Spec).To(BeZero())

		tombstone, err := byObject.Transform("something else")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(tombstone).To(Equal("something else"))
	}
}
