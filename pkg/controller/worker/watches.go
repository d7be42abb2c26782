// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

// watchAwaited adds the watches on what Workers wait for. They wake those of which an operation is under way.
func watchAwaited(b *builder.Builder, reader client.Reader, classes class.Set) *builder.Builder {
	waker := &common.Waker{
		Reader:  reader,
		NewList: func() client.ObjectList { return &extensionsv1alpha1.WorkerList{} },
		Type:    localv1alpha1.Type,
		Classes: classes,
	}
	wake := handler.EnqueueRequestsFromMapFunc(waker.Requests)
	for _, kind := range []client.Object{
		&machinev1alpha1.MachineDeployment{}, &machinev1alpha1.MachineSet{}, &machinev1alpha1.Machine{}, &machinev1alpha1.MachineClass{},
	} {
		b = b.Watches(kind, wake, builder.WithPredicates(awaited()))
	}
	return b
}

// awaited lets through what may be the end of a wait: an object that is gone, a MachineSet that is new, and a change of
// what aspect returns. That all others are new is seen at the start of a program only, where all Workers that are under
// way are reconciled anyway.
func awaited() predicate.Predicate {
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		CreateFunc: func(e event.CreateEvent) bool {
			_, isSet := e.Object.(*machinev1alpha1.MachineSet)
			return isSet
		},
		UpdateFunc: func(e event.UpdateEvent) bool { return !reflect.DeepEqual(aspect(e.ObjectOld), aspect(e.ObjectNew)) },
	}
}

// aspect is what the checks look at, see availability.go and delete.go.
func aspect(obj client.Object) any {
	switch o := obj.(type) {
	case *machinev1alpha1.MachineDeployment:
		status := o.Status.DeepCopy()
		for i := range status.Conditions {
			// The times of conditions change without end.
			c := status.Conditions[i]
			status.Conditions[i] = machinev1alpha1.MachineDeploymentCondition{Type: c.Type, Status: c.Status, Message: c.Message}
		}
		return *status
	case *machinev1alpha1.MachineSet:
		return []any{o.Spec.Template.Spec.Class.Name, o.Status.Replicas}
	case *machinev1alpha1.Machine:
		reason := ""
		for _, condition := range o.Status.Conditions {
			if condition.Type == machinev1alpha1.NodeInPlaceUpdate {
				reason = condition.Reason
			}
		}
		failure := ""
		if o.DeletionTimestamp != nil && o.Status.LastOperation.State == machinev1alpha1.MachineStateFailed {
			failure = o.Status.LastOperation.Description
		}
		return []string{reason, failure}
	default:
		return nil
	}
}
