// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// belongsTo reports whether an object is part of the machine with this name.
func belongsTo(obj client.Object, name string) bool {
	labels := obj.GetLabels()
	for key, value := range machine.Labels(name) {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// taken is the error for an object that has the name of one of a machine's.
func taken(obj client.Object, name string) error {
	return newStatus(codes.AlreadyExists, "%T %s/%s is there already and not part of machine %s: its labels are others", obj, obj.GetNamespace(), obj.GetName(), name)
}

func ownedBy(pod *corev1.Pod) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Name: pod.Name, UID: pod.UID}}
}

// ownerOf returns the UID of the pod that owns an object, if any.
func ownerOf(obj client.Object) types.UID {
	for _, owner := range obj.GetOwnerReferences() {
		if owner.Kind == "Pod" {
			return owner.UID
		}
	}
	return ""
}

// ensure creates an object of a machine, or returns that of an earlier attempt as it is. One that belongs to another pod
// than the given one, which may be nil, is replaced: that pod is no more, and Kubernetes is about to delete the object.
func ensure[T client.Object](ctx context.Context, c client.Client, wanted T, name string, pod *corev1.Pod) (T, error) {
	obj := wanted.DeepCopyObject().(T)
	err := c.Create(ctx, obj)
	if !apierrors.IsAlreadyExists(err) {
		return obj, err
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(wanted), obj); err != nil {
		return obj, err
	}
	if !belongsTo(obj, name) {
		return obj, taken(obj, name)
	}
	if owner := ownerOf(obj); owner == "" || pod != nil && owner == pod.UID {
		return obj, nil
	}
	if err := c.Delete(ctx, obj, client.Preconditions{UID: new(obj.GetUID())}); client.IgnoreNotFound(err) != nil {
		return obj, err
	}
	obj = wanted.DeepCopyObject().(T)
	return obj, c.Create(ctx, obj)
}
