// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcmdriver "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// DeleteMachine implements machine-controller-manager's driver. It deletes all that the machine has, and returns when the
// API server says that the pod is gone: until then, its kubelet could make a Node again. It forces nothing, so the pod of a
// node that does not answer stays until it does, or is gone itself. Where there is nothing (any more), that is success. What has
// the names of the machine's objects but is none of them is left alone. Codes:
//
//   - DeadlineExceeded: the pod is still there.
//   - Aborted: something was replaced by another of its name at the same time.
//   - Unavailable: the API server can't be reached or asks for patience.
//   - InvalidArgument, FailedPrecondition: the class is not of this provider, or its credentials don't lead to its machines.
//   - PermissionDenied, Unauthenticated: as the API server says.
func (d *driver) DeleteMachine(ctx context.Context, req *mcmdriver.DeleteMachineRequest) (*mcmdriver.DeleteMachineResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, d.DeleteTimeout)
	defer cancel()
	if err := d.delete(ctx, req); err != nil {
		return nil, asStatus(ctx, err, "deleting machine %s", req.Machine.Name)
	}
	return &mcmdriver.DeleteMachineResponse{}, nil
}

func (d *driver) delete(ctx context.Context, req *mcmdriver.DeleteMachineRequest) error {
	t, err := d.target(ctx, req.MachineClass)
	if err != nil {
		return err
	}
	name := req.Machine.Name
	pod, err := t.remove(ctx, "Pod", machine.PodName(name), name)
	if err != nil {
		return err
	}
	if _, err := t.remove(ctx, "Service", machine.PodName(name), name); err != nil {
		return err
	}
	if _, err := t.remove(ctx, "Secret", userDataName(name), name); err != nil {
		return err
	}
	if pod == nil {
		return nil
	}
	return t.untilGone(ctx, pod)
}

// remove deletes an object of a machine and returns what is known of it, which is nothing if it is not there or belongs to
// something else.
func (t *target) remove(ctx context.Context, kind, objectName, name string) (*metav1.PartialObjectMetadata, error) {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	if err := t.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: objectName}, obj); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !belongsTo(obj, name) {
		return nil, nil
	}
	if obj.DeletionTimestamp != nil {
		return obj, nil
	}
	return obj, client.IgnoreNotFound(t.client.Delete(ctx, obj, client.Preconditions{UID: new(obj.UID)}))
}

// untilGone waits until a pod is gone.
func (t *target) untilGone(ctx context.Context, pod client.Object) error {
	uid := pod.GetUID()
	node := ""
	err := watchObject(ctx, t.client, client.ObjectKeyFromObject(pod), &corev1.Pod{}, &corev1.PodList{}, func(current *corev1.Pod) (bool, error) {
		if current == nil || current.UID != uid {
			return true, nil
		}
		node = current.Spec.NodeName
		return false, nil
	})
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return newStatus(codes.DeadlineExceeded, "pod %s/%s on node %q has not gone in time: %v", pod.GetNamespace(), pod.GetName(), node, err)
	}
	return err
}
