// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

// machineFinalizer is what machine-controller-manager puts on credentials that it uses.
const machineFinalizer = "machine.sapcloud.io/machine-controller-manager"

// follow calls handle for all objects of a kind, now and whenever one changes, until ctx ends. An API server may end a watch
// at any time; what is deleted until the next one is told as well.
func follow(ctx context.Context, c client.WithWatch, list client.ObjectList, handle func(watch.EventType, client.Object), opts ...client.ListOption) error {
	known := map[client.ObjectKey]client.Object{}
	for ctx.Err() == nil {
		if err := c.List(ctx, list, opts...); err != nil {
			return err
		}
		items, err := Items(list)
		if err != nil {
			return err
		}
		gone := known
		known = make(map[client.ObjectKey]client.Object, len(items))
		for _, obj := range items {
			key := client.ObjectKeyFromObject(obj)
			known[key] = obj
			delete(gone, key)
			handle(watch.Added, obj)
		}
		for _, obj := range gone {
			handle(watch.Deleted, obj)
		}

		events, err := c.Watch(ctx, list, append([]client.ListOption{&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}}, opts...)...)
		if apierrors.IsTooManyRequests(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			continue
		}
		if err != nil {
			return err
		}
		for event := range events.ResultChan() {
			obj, ok := event.Object.(client.Object)
			if !ok || event.Type == watch.Error {
				continue
			}
			if event.Type == watch.Deleted {
				delete(known, client.ObjectKeyFromObject(obj))
			} else {
				known[client.ObjectKeyFromObject(obj)] = obj
			}
			handle(event.Type, obj)
		}
		events.Stop()
	}
	return ctx.Err()
}

// answerManagedResources is in the place of gardener-resource-manager: whatever it is told to apply is healthy.
func answerManagedResources(ctx context.Context, c client.WithWatch) error {
	return follow(ctx, c, &resourcesv1alpha1.ManagedResourceList{}, func(event watch.EventType, obj client.Object) {
		mr := obj.(*resourcesv1alpha1.ManagedResource)
		if event == watch.Deleted || mr.DeletionTimestamp != nil || mr.Status.ObservedGeneration == mr.Generation {
			return
		}
		before, now := mr.DeepCopy(), metav1.Now()
		mr.Status.ObservedGeneration = mr.Generation
		mr.Status.Conditions = nil
		for condition, status := range map[gardencorev1beta1.ConditionType]gardencorev1beta1.ConditionStatus{
			resourcesv1alpha1.ResourcesApplied:     gardencorev1beta1.ConditionTrue,
			resourcesv1alpha1.ResourcesHealthy:     gardencorev1beta1.ConditionTrue,
			resourcesv1alpha1.ResourcesProgressing: gardencorev1beta1.ConditionFalse,
		} {
			mr.Status.Conditions = append(mr.Status.Conditions, gardencorev1beta1.Condition{Type: condition, Status: status, LastUpdateTime: now, LastTransitionTime: now})
		}
		_ = c.Status().Patch(ctx, mr, client.MergeFrom(before))
	})
}

// answerNamespaces is in the place of the controller of namespaces: what is deleted is gone. What was in it stays in etcd.
func answerNamespaces(ctx context.Context, c client.WithWatch) error {
	return follow(ctx, c, &corev1.NamespaceList{}, func(event watch.EventType, obj client.Object) {
		namespace := obj.(*corev1.Namespace)
		if event == watch.Deleted || namespace.DeletionTimestamp == nil || len(namespace.Spec.Finalizers) == 0 {
			return
		}
		namespace.Spec.Finalizers = nil
		_ = c.SubResource("finalize").Update(ctx, namespace)
	})
}

// answerMachineDeployments is in the place of machine-controller-manager: machines are there as soon as they are wanted.
func answerMachineDeployments(ctx context.Context, c client.WithWatch) error {
	go followWorkers(ctx, c)
	return follow(ctx, c, &machinev1alpha1.MachineDeploymentList{}, func(event watch.EventType, obj client.Object) {
		d := obj.(*machinev1alpha1.MachineDeployment)
		class := d.Spec.Template.Spec.Class.Name
		set := &machinev1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: class, Labels: map[string]string{"name": d.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "machine.sapcloud.io/v1alpha1", Kind: "MachineDeployment", Name: d.Name, UID: d.UID}},
		}}
		if event == watch.Deleted {
			_ = c.Delete(ctx, set)
			return
		}
		if d.DeletionTimestamp != nil || d.Status.ObservedGeneration == d.Generation {
			return
		}
		set.Spec.Template.Spec.Class = machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: class}
		if err := c.Create(ctx, set); err != nil && !apierrors.IsAlreadyExists(err) {
			return
		}
		before, now := d.DeepCopy(), metav1.NewTime(time.Now())
		d.Status = machinev1alpha1.MachineDeploymentStatus{
			ObservedGeneration: d.Generation, Replicas: d.Spec.Replicas, UpdatedReplicas: d.Spec.Replicas, AvailableReplicas: d.Spec.Replicas,
			Conditions: []machinev1alpha1.MachineDeploymentCondition{{
				Type: machinev1alpha1.MachineDeploymentAvailable, Status: machinev1alpha1.ConditionTrue, LastUpdateTime: now, LastTransitionTime: now,
			}},
		}
		_ = c.Status().Patch(ctx, d, client.MergeFrom(before))
	})
}

// followWorkers takes the credentials of a Worker into use, and lets go of them when it is deleted and has no machines.
func followWorkers(ctx context.Context, c client.WithWatch) {
	_ = follow(ctx, c, &machinev1alpha1.MachineClassList{}, func(event watch.EventType, obj client.Object) {
		key := client.ObjectKey{Namespace: obj.GetNamespace(), Name: credentials}
		secret := &corev1.Secret{}
		if event == watch.Modified || c.Get(ctx, key, secret) != nil {
			return
		}
		before := secret.DeepCopy()
		changed := false
		if event == watch.Deleted {
			changed = controllerutil.RemoveFinalizer(secret, machineFinalizer)
		} else {
			changed = controllerutil.AddFinalizer(secret, machineFinalizer)
		}
		if changed {
			_ = c.Patch(ctx, secret, client.MergeFrom(before))
		}
	})
}

// Ready reports whether Gardener would take an object for reconciled.
func Ready(obj extensionsv1alpha1.Object) bool {
	status := obj.GetExtensionStatus()
	last := status.GetLastOperation()
	return obj.GetDeletionTimestamp() == nil && status.GetObservedGeneration() == obj.GetGeneration() && status.GetLastError() == nil &&
		last != nil && last.State == gardencorev1beta1.LastOperationStateSucceeded && obj.GetAnnotations()["gardener.cloud/operation"] == ""
}
