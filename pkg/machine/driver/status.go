// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcmdriver "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// GetMachineStatus implements machine-controller-manager's driver. It is asked before CreateMachine, and before a machine is
// deleted whose Node is not known; never of one that works, whose Node tells enough: if the pod of a Node vanishes, its Machine
// fails after the health timeout (10 minutes) and is replaced. Codes:
//
//   - NotFound: there is no pod, or not one that runs: it is being made, has ended or is being deleted. Either way it takes
//     CreateMachine to get a machine, which goes on with the pod or replaces it, and nothing has to be drained.
//   - InvalidArgument, FailedPrecondition, PermissionDenied, Unauthenticated, Unavailable, DeadlineExceeded: as for DeleteMachine.
func (d *driver) GetMachineStatus(ctx context.Context, req *mcmdriver.GetMachineStatusRequest) (*mcmdriver.GetMachineStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultReadTimeout)
	defer cancel()
	pod, err := d.running(ctx, req)
	if err != nil {
		return nil, asStatus(ctx, err, "reading machine %s", req.Machine.Name)
	}
	return &mcmdriver.GetMachineStatusResponse{ProviderID: pod.Name, NodeName: pod.Name, Addresses: addresses(pod)}, nil
}

func (d *driver) running(ctx context.Context, req *mcmdriver.GetMachineStatusRequest) (*corev1.Pod, error) {
	t, err := d.target(ctx, req.MachineClass)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	err = t.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: machine.PodName(req.Machine.Name)}, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && !belongsTo(pod, req.Machine.Name):
		return nil, newStatus(codes.NotFound, "there is no pod %s/%s for machine %s", t.namespace, machine.PodName(req.Machine.Name), req.Machine.Name)
	case err != nil:
		return nil, err
	case pod.DeletionTimestamp != nil:
		return nil, newStatus(codes.NotFound, "pod %s/%s is being deleted", pod.Namespace, pod.Name)
	case !isRunning(pod):
		return nil, newStatus(codes.NotFound, "pod %s/%s does not run: %s", pod.Namespace, pod.Name, progress(pod))
	}
	return pod, nil
}

// ListMachines implements machine-controller-manager's driver. machine-controller-manager asks it for each MachineClass now
// and then, and calls DeleteMachine for those of which it has no Machine in its namespace, of whatever class.
//
// So the answer has all machines in the namespace of the class's machines, which is that of one shoot: those of other classes
// as well, as theirs may be gone by now. A Secret with user data but no pod counts as a machine: it is what is left if
// the driver was stopped between the two. Codes: as for GetMachineStatus, but NotFound.
func (d *driver) ListMachines(ctx context.Context, req *mcmdriver.ListMachinesRequest) (*mcmdriver.ListMachinesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultReadTimeout)
	defer cancel()
	machines, err := d.list(ctx, req)
	if err != nil {
		return nil, asStatus(ctx, err, "listing machines of MachineClass %s", req.MachineClass.Name)
	}
	return &mcmdriver.ListMachinesResponse{MachineList: machines}, nil
}

func (d *driver) list(ctx context.Context, req *mcmdriver.ListMachinesRequest) (map[string]string, error) {
	t, err := d.target(ctx, req.MachineClass)
	if err != nil {
		return nil, err
	}
	machines := map[string]string{}
	for kind, objectName := range map[string]func(string) string{"Pod": machine.PodName, "Secret": userDataName} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := t.client.List(ctx, list, client.InNamespace(t.namespace), client.MatchingLabels(machine.Selector())); err != nil {
			return nil, err
		}
		for _, obj := range list.Items {
			// What has another name is none of the driver's.
			if name := obj.Labels[machine.LabelMachine]; name != "" && obj.Name == objectName(name) {
				machines[machine.PodName(name)] = name
			}
		}
	}
	return machines, nil
}
