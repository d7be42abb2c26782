// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	mcmdriver "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// joinTime is less than a machine ever takes from its start until it is a Node.
const joinTime = 5 * time.Second

// CreateMachine implements machine-controller-manager's driver. It makes what the machine lacks and returns when the pod
// runs. What it returns is the pod's name, which is the Node's as well, and the pod's addresses. Codes:
//
//   - InvalidArgument: the class is not of this provider or its providerSpec is wrong, there is no user data, the Machine's
//     name is too long, the credentials can't be used, the image's name is malformed, or the API server rejects an object.
//   - ResourceExhausted: a ResourceQuota is used up, or no node has room for the machine, or kubelet found that out. In the
//     latter cases the pod stays, and the machine comes up as soon as there is room.
//   - FailedPrecondition: the image can't be pulled or its container can't be started, which kubelet goes on trying; the
//     namespace is being deleted; the credentials lead to another namespace than the class.
//   - AlreadyExists: something else has the name of the pod, the Secret or the Service.
//   - Internal: the container ends again and again.
//   - PermissionDenied, Unauthenticated, NotFound (the namespace): as the API server says.
//   - DeadlineExceeded: the pod still does not run; the message says what it does instead.
//   - Aborted: the pod was deleted or ended, the Machine is to be deleted, or somebody changed an object at the same time.
//   - Unavailable: the API server can't be reached or asks for patience.
func (d *driver) CreateMachine(ctx context.Context, req *mcmdriver.CreateMachineRequest) (*mcmdriver.CreateMachineResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, d.CreateTimeout)
	defer cancel()
	ctx, stop := d.whileWanted(ctx, req.Machine)
	defer stop()

	pod, err := d.create(ctx, req)
	if err != nil {
		return nil, asStatus(ctx, err, "creating machine %s", req.Machine.Name)
	}
	return &mcmdriver.CreateMachineResponse{ProviderID: pod.Name, NodeName: pod.Name, Addresses: addresses(pod)}, nil
}

// whileWanted returns a context that ends when the Machine is to be deleted, and what ends it and the watch at any time.
func (d *driver) whileWanted(ctx context.Context, m *machinev1alpha1.Machine) (context.Context, func()) {
	if d.Machines == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		// Without permission for it there is no watch, and deletion has to wait.
		_ = watchObject(ctx, d.Machines, client.ObjectKeyFromObject(m), &machinev1alpha1.Machine{}, &machinev1alpha1.MachineList{},
			func(current *machinev1alpha1.Machine) (bool, error) {
				if current != nil && current.UID == m.UID && current.DeletionTimestamp == nil {
					return false, nil
				}
				cancel(newStatus(codes.Aborted, "Machine %s/%s is to be deleted before its pod runs", m.Namespace, m.Name))
				return true, nil
			})
	})
	return ctx, func() {
		cancel(nil)
		watching.Wait()
	}
}

func (d *driver) create(ctx context.Context, req *mcmdriver.CreateMachineRequest) (*corev1.Pod, error) {
	spec, userData, err := inputs(req)
	if err != nil {
		return nil, err
	}
	t, err := d.target(ctx, req.MachineClass)
	if err != nil {
		return nil, err
	}

	name := req.Machine.Name
	pod, err := t.existing(ctx, name, spec.Image)
	if err != nil {
		return nil, err
	}
	secret, err := t.ensureUserData(ctx, name, userData, pod)
	if err != nil {
		return nil, err
	}
	if pod == nil {
		pod = newPod(t.namespace, name, spec)
		if err := t.client.Create(ctx, pod); err != nil {
			return nil, err
		}
	}
	if err := t.ensureService(ctx, name, pod); err != nil {
		return nil, err
	}
	if err := t.ensureOwned(ctx, secret, pod); err != nil {
		return nil, err
	}
	return d.untilRunning(ctx, t, pod)
}

// inputs checks what is needed to make a machine.
func inputs(req *mcmdriver.CreateMachineRequest) (*localv1alpha1.MachineProviderSpec, []byte, error) {
	class := req.MachineClass
	spec, err := localv1alpha1.DecodeMachineProviderSpec(&class.ProviderSpec)
	if err != nil {
		return nil, nil, newStatus(codes.InvalidArgument, "MachineClass %s/%s: %v", class.Namespace, class.Name, err)
	}
	if req.Secret == nil || len(req.Secret.Data[classUserDataKey]) == 0 {
		return nil, nil, newStatus(codes.InvalidArgument, "MachineClass %s/%s: the Secret of its secretRef has no %s", class.Namespace, class.Name, classUserDataKey)
	}
	// It is the name of a Service, and a label of the Node.
	if problems := validation.IsDNS1123Label(machine.PodName(req.Machine.Name)); len(problems) > 0 {
		return nil, nil, newStatus(codes.InvalidArgument, "%s cannot be the name of a Node: %s", machine.PodName(req.Machine.Name), problems[0])
	}
	return spec, req.Secret.Data[classUserDataKey], nil
}

// untilRunning waits until the pod runs and returns it as it is then.
func (d *driver) untilRunning(parent context.Context, t *target, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var lacking *time.Timer
	last := pod

	err := watchObject(ctx, t.client, client.ObjectKeyFromObject(pod), &corev1.Pod{}, &corev1.PodList{}, func(current *corev1.Pod) (bool, error) {
		if current == nil || current.UID != pod.UID || current.DeletionTimestamp != nil {
			return false, newStatus(codes.Aborted, "pod %s/%s was deleted before it ran", pod.Namespace, pod.Name)
		}
		last = current
		if isRunning(current) {
			return true, nil
		}
		message := unschedulable(current)
		switch lacks := lacksResources(message); {
		case lacks && lacking == nil:
			exhausted := newStatus(codes.ResourceExhausted, "no node has room for pod %s/%s: %s", pod.Namespace, pod.Name, message)
			lacking = time.AfterFunc(d.UnschedulableGrace, func() { cancel(exhausted) })
		case !lacks && lacking != nil:
			lacking.Stop()
			lacking = nil
		}
		return false, failure(current)
	})
	if lacking != nil {
		lacking.Stop()
	}
	if err != nil && errors.Is(context.Cause(parent), context.DeadlineExceeded) {
		return nil, newStatus(codes.DeadlineExceeded, "pod %s/%s does not run after %s: %s: %v", pod.Namespace, pod.Name, d.CreateTimeout, progress(last), err)
	}
	if err != nil {
		return nil, err
	}
	return last, d.checkFresh(last)
}

// checkFresh returns an error if the pod may have become a Node already, because the watch was interrupted or this is not
// the call that made it. machine-controller-manager deletes a machine if it finds its Node right after CreateMachine, which it
// takes for one left behind; after the error it asks GetMachineStatus and finds the machine.
func (d *driver) checkFresh(pod *corev1.Pod) error {
	for _, status := range pod.Status.ContainerStatuses {
		if running := status.State.Running; running != nil && !running.StartedAt.IsZero() {
			if age := d.Clock.Since(running.StartedAt.Time); age > joinTime {
				return newStatus(codes.Aborted, "pod %s/%s has been running for %s already, its status is to be asked for", pod.Namespace, pod.Name, age.Round(time.Second))
			}
		}
	}
	return nil
}

// existing returns the pod of a machine if there is one that may still run. One that never will is deleted.
func (t *target) existing(ctx context.Context, name, wantedImage string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: t.namespace, Name: machine.PodName(name)}
	if err := t.client.Get(ctx, key, pod); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !belongsTo(pod, name) {
		return nil, taken(pod, name)
	}
	// A pod with another image is of the time before the class was changed.
	if pod.DeletionTimestamp == nil && !isOver(pod) && (pod.Status.Phase == corev1.PodRunning || image(pod) == wantedImage) {
		return pod, nil
	}
	if err := client.IgnoreNotFound(t.client.Delete(ctx, pod, client.Preconditions{UID: new(pod.UID)})); err != nil {
		return nil, err
	}
	return nil, t.untilGone(ctx, pod)
}

// ensureUserData makes the Secret with the user data, or brings that of an earlier attempt up to date.
func (t *target) ensureUserData(ctx context.Context, name string, userData []byte, pod *corev1.Pod) (*corev1.Secret, error) {
	secret, err := ensure(ctx, t.client, newUserData(t.namespace, name, userData), name, pod)
	if err != nil || bytes.Equal(secret.Data[userDataKey], userData) {
		return secret, err
	}
	before := secret.DeepCopy()
	secret.Data = map[string][]byte{userDataKey: userData}
	return secret, t.client.Patch(ctx, secret, client.MergeFrom(before))
}

// ensureService makes the Service of a pod.
func (t *target) ensureService(ctx context.Context, name string, pod *corev1.Pod) error {
	service := newService(t.namespace, name)
	service.OwnerReferences = ownedBy(pod)
	_, err := ensure(ctx, t.client, service, name, pod)
	return err
}

// ensureOwned lets Kubernetes delete the Secret when the pod goes.
func (t *target) ensureOwned(ctx context.Context, secret *corev1.Secret, pod *corev1.Pod) error {
	if ownerOf(secret) == pod.UID {
		return nil
	}
	before := secret.DeepCopy()
	secret.OwnerReferences = ownedBy(pod)
	return t.client.Patch(ctx, secret, client.MergeFrom(before))
}
