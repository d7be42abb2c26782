// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck_test

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func spec(extensionType string) extensionsv1alpha1.DefaultSpec {
	return extensionsv1alpha1.DefaultSpec{Type: extensionType}
}

func newControlPlane(namespace, extensionType string) *extensionsv1alpha1.ControlPlane {
	return &extensionsv1alpha1.ControlPlane{ObjectMeta: meta(namespace, "it"), Spec: extensionsv1alpha1.ControlPlaneSpec{
		DefaultSpec: spec(extensionType), Region: "local", SecretRef: corev1.SecretReference{Name: "none"},
	}}
}

func newNetwork(namespace, extensionType string) *extensionsv1alpha1.Network {
	return &extensionsv1alpha1.Network{ObjectMeta: meta(namespace, "it"), Spec: extensionsv1alpha1.NetworkSpec{
		DefaultSpec: spec(extensionType), PodCIDR: "10.0.0.0/16", ServiceCIDR: "10.1.0.0/16",
	}}
}

func newWorker(namespace, extensionType string) *extensionsv1alpha1.Worker {
	return &extensionsv1alpha1.Worker{ObjectMeta: meta(namespace, "it"), Spec: extensionsv1alpha1.WorkerSpec{
		DefaultSpec: spec(extensionType), Region: "local", SecretRef: corev1.SecretReference{Name: "none"}, Pools: []extensionsv1alpha1.WorkerPool{},
	}}
}

func newCluster(name string, hibernated bool) *extensionsv1alpha1.Cluster {
	raw := func(obj any) runtime.RawExtension {
		data, err := json.Marshal(obj)
		Expect(err).NotTo(HaveOccurred())
		return runtime.RawExtension{Raw: data}
	}
	of := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: kind}
	}
	return &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: extensionsv1alpha1.ClusterSpec{
			CloudProfile: raw(gardencorev1beta1.CloudProfile{TypeMeta: of("CloudProfile")}),
			Shoot: raw(gardencorev1beta1.Shoot{TypeMeta: of("Shoot"), Spec: gardencorev1beta1.ShootSpec{
				Hibernation: &gardencorev1beta1.Hibernation{Enabled: &hibernated},
			}}),
		},
	}
}

// create creates an object and, where it has a status of its own, writes that too.
func create[T client.Object](ctx context.Context, c client.Client, obj T) T {
	GinkgoHelper()
	want, ok := obj.DeepCopyObject().(T)
	Expect(ok).To(BeTrue())
	Expect(c.Create(ctx, obj)).To(Succeed())
	switch got := any(obj).(type) {
	case *machinev1alpha1.Machine:
		got.Status = any(want).(*machinev1alpha1.Machine).Status
	case *appsv1.Deployment:
		got.Status = any(want).(*appsv1.Deployment).Status
	case *machinev1alpha1.MachineDeployment:
		got.Status = any(want).(*machinev1alpha1.MachineDeployment).Status
		got.Status.ObservedGeneration = got.Generation
	default:
		return obj
	}
	Expect(c.Status().Update(ctx, obj)).To(Succeed())
	return obj
}

// change changes an object, or its status.
func change[T client.Object](ctx context.Context, c client.Client, obj T, status bool, change func(T)) {
	GinkgoHelper()
	Expect(c.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
	before, ok := obj.DeepCopyObject().(client.Object)
	Expect(ok).To(BeTrue())
	change(obj)
	if status {
		Expect(c.Status().Patch(ctx, obj, client.MergeFrom(before))).To(Succeed())
	} else {
		Expect(c.Patch(ctx, obj, client.MergeFrom(before))).To(Succeed())
	}
}

// applied is gardener-resource-manager's hand on a ManagedResource.
func applied(ctx context.Context, namespace, name string, healthy gardencorev1beta1.ConditionStatus) {
	GinkgoHelper()
	mr := &resourcesv1alpha1.ManagedResource{ObjectMeta: meta(namespace, name), Spec: resourcesv1alpha1.ManagedResourceSpec{SecretRefs: []corev1.LocalObjectReference{}}}
	Expect(client.IgnoreAlreadyExists(seed.Create(ctx, mr))).To(Succeed())
	change(ctx, seed, mr, true, func(mr *resourcesv1alpha1.ManagedResource) {
		now := metav1.Now()
		mr.Status.ObservedGeneration = mr.Generation
		mr.Status.Conditions = []gardencorev1beta1.Condition{
			{Type: resourcesv1alpha1.ResourcesApplied, Status: gardencorev1beta1.ConditionTrue, Reason: "Applied", LastTransitionTime: now, LastUpdateTime: now},
			{Type: resourcesv1alpha1.ResourcesHealthy, Status: healthy, Reason: "Checked", Message: "checked", LastTransitionTime: now, LastUpdateTime: now},
		}
	})
}

func newDeployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: meta(namespace, name),
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "it", Image: "it"}}}},
		},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
		}},
	}
}

func newMachineDeployment(namespace string, replicas int32) *machinev1alpha1.MachineDeployment {
	labels := map[string]string{"pool": "it"}
	return &machinev1alpha1.MachineDeployment{
		ObjectMeta: meta(namespace, "pool"),
		Spec: machinev1alpha1.MachineDeploymentSpec{
			Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: machinev1alpha1.MachineTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
		Status: machinev1alpha1.MachineDeploymentStatus{Conditions: []machinev1alpha1.MachineDeploymentCondition{
			{Type: machinev1alpha1.MachineDeploymentAvailable, Status: machinev1alpha1.ConditionTrue, LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now()},
		}},
	}
}

func newMachine(namespace, node string) *machinev1alpha1.Machine {
	return &machinev1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine", Labels: map[string]string{machinev1alpha1.NodeLabelKey: node}},
		Status: machinev1alpha1.MachineStatus{
			CurrentStatus: machinev1alpha1.CurrentStatus{Phase: machinev1alpha1.MachineRunning},
			Conditions:    []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// copied is machine-controller-manager's hand on a Machine whose Node has become ready or not.
func copied(ctx context.Context, machine *machinev1alpha1.Machine, ready corev1.ConditionStatus) {
	GinkgoHelper()
	change(ctx, seed, machine, true, func(machine *machinev1alpha1.Machine) { machine.Status.Conditions[0].Status = ready })
}

// condition reads a condition for Eventually; the zero one if there is none.
func condition(ctx context.Context, obj extensionsv1alpha1.Object, conditionType gardencorev1beta1.ConditionType) func() (gardencorev1beta1.Condition, error) {
	return func() (gardencorev1beta1.Condition, error) {
		if err := seed.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return gardencorev1beta1.Condition{}, err
		}
		if condition := v1beta1helper.GetCondition(obj.GetExtensionStatus().GetConditions(), conditionType); condition != nil {
			return *condition, nil
		}
		return gardencorev1beta1.Condition{}, nil
	}
}

// elapse lets time go by in which something is counted.
func elapse(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	select {
	case <-ctx.Done():
		Fail("the suite has ended")
	case <-time.After(d):
	}
}
