// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package driver is how machine-controller-manager makes the machines of shoots: each is a pod in the seed, or in the
// cluster of the shoot's credentials. The command machine-controller of gardenlet-extension runs it beside
// machine-controller-manager, one for each shoot.
//
// A machine is three objects. The pod comes first, as it owns the Secret with the user data and the headless Service by
// which the machine's name resolves: neither outlives a pod that was deleted by hand. A kubelet that does not find the
// Secret yet tries the mount again. All three are named after the Machine, so whatever a call left half made is found by
// the next one, also after a restart.
//
// The functions return errors of machine-controller-manager's status package only, because its controller reads a code
// out of the text. What the codes make it do, as of v0.62.1:
//
//	CreateMachine     ResourceExhausted: again after 10 minutes, and cluster-autoscaler tries another pool.
//	                  Unknown, DeadlineExceeded, Aborted, Unavailable: again after 5 seconds.
//	                  All others: again after 3 minutes.
//	                  The Machine fails for good, and is replaced, when its creation timeout (20 minutes) is over.
//	GetMachineStatus  NotFound before a machine was created: CreateMachine. NotFound while one is deleted: go on.
//	DeleteMachine     Unknown, DeadlineExceeded, Aborted, Unavailable: again after 5 seconds.
//	                  NotFound: go on as if it had succeeded. All others: again after 10 minutes.
package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	mcmdriver "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

const (
	// createTimeout and deleteTimeout are for how long CreateMachine and DeleteMachine wait.
	createTimeout = 10 * time.Minute
	deleteTimeout = 5 * time.Minute
	readTimeout   = time.Minute
	// unschedulableGrace is for how long nodes may have too little room for a machine until CreateMachine says so: room that
	// the machine before it leaves is there after its last seconds.
	unschedulableGrace = 15 * time.Second

	// joinTime is less than a machine ever takes from its start until it is a Node.
	joinTime = 5 * time.Second
)

// New returns a driver for machines in these clusters. It reads Machines in the seed, so that CreateMachine ends as soon as its
// Machine is to be deleted: machine-controller-manager does not do both at a time.
func New(clusters cluster.Clusters, machines client.WithWatch) mcmdriver.Driver {
	return &driver{
		clusters: clusters, machines: machines,
		createTimeout: createTimeout, deleteTimeout: deleteTimeout, unschedulableGrace: unschedulableGrace,
	}
}

type driver struct {
	clusters cluster.Clusters
	machines client.WithWatch

	createTimeout, deleteTimeout, unschedulableGrace time.Duration
}

// InitializeMachine implements machine-controller-manager's driver: Unimplemented, as there is nothing to do, which lets it
// go on.
func (*driver) InitializeMachine(context.Context, *mcmdriver.InitializeMachineRequest) (*mcmdriver.InitializeMachineResponse, error) {
	return nil, newStatus(codes.Unimplemented, "a machine is complete when its pod runs")
}

// GetVolumeIDs implements machine-controller-manager's driver: no volume is ever attached to a machine, so there are no IDs
// and no error. It then drains pods with volumes without waiting for a volume to be detached.
func (*driver) GetVolumeIDs(context.Context, *mcmdriver.GetVolumeIDsRequest) (*mcmdriver.GetVolumeIDsResponse, error) {
	return &mcmdriver.GetVolumeIDsResponse{}, nil
}

// CreateMachine implements machine-controller-manager's driver. It makes what the machine lacks and returns when the pod
// runs. What it returns is the pod's name, which is the Node's as well, and the pod's addresses. Codes:
//
//   - InvalidArgument: the class is not of this provider or its providerSpec is wrong, there is no user data, the Machine's
//     name is too long, the credentials can't be used or lead to another namespace than the class, the image's name is
//     malformed, or the API server rejects an object.
//   - ResourceExhausted: a ResourceQuota is used up, or no node has room for the machine, or kubelet found that out. In the
//     latter cases the pod stays, and the machine comes up as soon as there is room.
//   - FailedPrecondition: the image can't be pulled or its container can't be started, which kubelet goes on trying; the
//     namespace is being deleted.
//   - AlreadyExists: something else has the name of the pod, the Secret or the Service.
//   - Internal: the container ends again and again.
//   - PermissionDenied, Unauthenticated, NotFound (the namespace): as the API server says.
//   - DeadlineExceeded: the pod still does not run; the message says what it does instead.
//   - Aborted: the pod was deleted or ended, the Machine is to be deleted, or somebody changed an object at the same time.
//   - Unavailable: the API server can't be reached or asks for patience.
func (d *driver) CreateMachine(ctx context.Context, req *mcmdriver.CreateMachineRequest) (_ *mcmdriver.CreateMachineResponse, err error) {
	name := req.Machine.Name
	ctx, cancel := context.WithTimeout(ctx, d.createTimeout)
	defer cancel()
	ctx, stop := d.whileWanted(ctx, req.Machine)
	defer stop()
	defer func() { err = asStatus(ctx, err, "creating machine %s", name) }()

	spec, userData, err := inputs(req)
	if err != nil {
		return nil, err
	}
	t, err := d.target(ctx, req.MachineClass)
	if err != nil {
		return nil, err
	}
	pod, err := t.existing(ctx, name, spec.Image)
	if err != nil {
		return nil, err
	}
	if pod == nil {
		pod = newPod(t.namespace, name, spec)
		if err := t.client.Create(ctx, pod); err != nil {
			return nil, err
		}
	}
	for _, obj := range []client.Object{newUserData(t.namespace, name, userData), newService(t.namespace, name)} {
		obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Name: pod.Name, UID: pod.UID}})
		if err := t.replace(ctx, obj, name); err != nil {
			return nil, err
		}
	}

	pod, err = d.untilRunning(ctx, t, pod)
	if err != nil {
		return nil, err
	}
	return &mcmdriver.CreateMachineResponse{ProviderID: pod.Name, NodeName: pod.Name, Addresses: addresses(pod)}, nil
}

// whileWanted returns a context that ends when the Machine is to be deleted, and what ends it and the watch at any time.
func (d *driver) whileWanted(ctx context.Context, m *machinev1alpha1.Machine) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		// Without permission for it there is no watch, and deletion has to wait.
		_ = watchObject(ctx, d.machines, client.ObjectKeyFromObject(m), &machinev1alpha1.MachineList{}, func(current *machinev1alpha1.Machine) (bool, error) {
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

// inputs checks what is needed to make a machine.
func inputs(req *mcmdriver.CreateMachineRequest) (*localv1alpha1.MachineProviderSpec, []byte, error) {
	class := req.MachineClass
	spec, err := localv1alpha1.DecodeMachineProviderSpec(&class.ProviderSpec)
	if err != nil {
		return nil, nil, newStatus(codes.InvalidArgument, "MachineClass %s/%s: %v", class.Namespace, class.Name, err)
	}
	if req.Secret == nil || len(req.Secret.Data[machine.UserDataKey]) == 0 {
		return nil, nil, newStatus(codes.InvalidArgument, "MachineClass %s/%s: the Secret of its secretRef has no %s", class.Namespace, class.Name, machine.UserDataKey)
	}
	// It is the name of a Service, and a label of the Node.
	if problems := validation.IsDNS1123Label(machine.PodName(req.Machine.Name)); len(problems) > 0 {
		return nil, nil, newStatus(codes.InvalidArgument, "%s cannot be the name of a Node: %s", machine.PodName(req.Machine.Name), problems[0])
	}
	return spec, req.Secret.Data[machine.UserDataKey], nil
}

// untilRunning waits until the pod runs and returns it as it is then.
func (d *driver) untilRunning(parent context.Context, t *target, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var lacking *time.Timer
	last := pod

	err := watchObject(ctx, t.client, client.ObjectKeyFromObject(pod), &corev1.PodList{}, func(current *corev1.Pod) (bool, error) {
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
			lacking = time.AfterFunc(d.unschedulableGrace, func() { cancel(exhausted) })
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
		return nil, newStatus(codes.DeadlineExceeded, "pod %s/%s does not run after %s: %s: %v", pod.Namespace, pod.Name, d.createTimeout, progress(last), err)
	}
	if err != nil {
		return nil, err
	}
	return last, checkFresh(last)
}

// checkFresh returns an error if the pod may have become a Node already, because the watch was interrupted or this is not
// the call that made it. machine-controller-manager deletes a machine if it finds its Node right after CreateMachine, which it
// takes for one left behind; after the error it asks GetMachineStatus and finds the machine.
func checkFresh(pod *corev1.Pod) error {
	for _, status := range pod.Status.ContainerStatuses {
		if running := status.State.Running; running != nil && !running.StartedAt.IsZero() {
			if age := time.Since(running.StartedAt.Time); age > joinTime {
				return newStatus(codes.Aborted, "pod %s/%s has been running for %s already, its status is to be asked for", pod.Namespace, pod.Name, age.Round(time.Second))
			}
		}
	}
	return nil
}

// DeleteMachine implements machine-controller-manager's driver. It deletes all that the machine has, and returns when the
// API server says that the pod is gone: until then, its kubelet could make a Node again. It forces nothing, so the pod of a
// node that does not answer stays until it does, or is gone itself. Where there is nothing (any more), that is success. What has
// the names of the machine's objects but is none of them is left alone. Codes:
//
//   - DeadlineExceeded: the pod is still there.
//   - Aborted: something was replaced by another of its name at the same time.
//   - Unavailable: the API server can't be reached or asks for patience.
//   - InvalidArgument: the class is not of this provider, or its credentials don't lead to its machines.
//   - PermissionDenied, Unauthenticated: as the API server says.
func (d *driver) DeleteMachine(ctx context.Context, req *mcmdriver.DeleteMachineRequest) (_ *mcmdriver.DeleteMachineResponse, err error) {
	name := req.Machine.Name
	ctx, cancel := context.WithTimeout(ctx, d.deleteTimeout)
	defer cancel()
	defer func() { err = asStatus(ctx, err, "deleting machine %s", name) }()

	t, err := d.target(ctx, req.MachineClass)
	if err != nil {
		return nil, err
	}
	pod, err := t.remove(ctx, "Pod", machine.PodName(name), name)
	if err != nil {
		return nil, err
	}
	for kind, objectName := range map[string]string{"Service": machine.PodName(name), "Secret": userDataName(name)} {
		if _, err := t.remove(ctx, kind, objectName, name); err != nil {
			return nil, err
		}
	}
	if pod != nil {
		if err := t.untilGone(ctx, pod); err != nil {
			return nil, err
		}
	}
	return &mcmdriver.DeleteMachineResponse{}, nil
}

// GetMachineStatus implements machine-controller-manager's driver. It is asked before CreateMachine, and before a machine is
// deleted whose Node is not known; never of one that works, whose Node tells enough: if the pod of a Node vanishes, its Machine
// fails after the health timeout (10 minutes) and is replaced. Codes:
//
//   - NotFound: there is no pod, or not one that runs: it is being made, has ended or is being deleted. Either way it takes
//     CreateMachine to get a machine, which goes on with the pod or replaces it, and nothing has to be drained.
//   - InvalidArgument, FailedPrecondition, PermissionDenied, Unauthenticated, Unavailable, DeadlineExceeded: as for DeleteMachine.
func (d *driver) GetMachineStatus(ctx context.Context, req *mcmdriver.GetMachineStatusRequest) (_ *mcmdriver.GetMachineStatusResponse, err error) {
	name := req.Machine.Name
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	defer func() { err = asStatus(ctx, err, "reading machine %s", name) }()

	t, err := d.target(ctx, req.MachineClass)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	err = t.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: machine.PodName(name)}, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && !belongsTo(pod, name):
		return nil, newStatus(codes.NotFound, "there is no pod %s/%s for machine %s", t.namespace, machine.PodName(name), name)
	case err != nil:
		return nil, err
	case pod.DeletionTimestamp != nil:
		return nil, newStatus(codes.NotFound, "pod %s/%s is being deleted", pod.Namespace, pod.Name)
	case !isRunning(pod):
		return nil, newStatus(codes.NotFound, "pod %s/%s does not run: %s", pod.Namespace, pod.Name, progress(pod))
	}
	return &mcmdriver.GetMachineStatusResponse{ProviderID: pod.Name, NodeName: pod.Name, Addresses: addresses(pod)}, nil
}

// ListMachines implements machine-controller-manager's driver. machine-controller-manager asks it for each MachineClass now
// and then, and calls DeleteMachine for those of which it has no Machine in its namespace, of whatever class.
//
// So the answer has all machines in the namespace of the class's machines, which is that of one shoot: those of other classes
// as well, as theirs may be gone by now. Codes: as for GetMachineStatus, but NotFound.
func (d *driver) ListMachines(ctx context.Context, req *mcmdriver.ListMachinesRequest) (_ *mcmdriver.ListMachinesResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	defer func() { err = asStatus(ctx, err, "listing machines of MachineClass %s", req.MachineClass.Name) }()

	t, err := d.target(ctx, req.MachineClass)
	if err != nil {
		return nil, err
	}
	machines := map[string]string{}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := t.client.List(ctx, list, client.InNamespace(t.namespace), client.MatchingLabels(machine.Selector())); err != nil {
		return nil, err
	}
	for _, obj := range list.Items {
		// What has another name is none of the driver's.
		if name := obj.Labels[machine.LabelMachine]; name != "" && obj.Name == machine.PodName(name) {
			machines[obj.Name] = name
		}
	}
	return &mcmdriver.ListMachinesResponse{MachineList: machines}, nil
}

// target is where the machines of a class are.
type target struct {
	client    client.WithWatch
	namespace string
}

// target finds where the machines of a class are. The class says whether it is the seed: the credentials may have got, or
// lost, a kubeconfig since it was written, which must not make its machines impossible to find.
func (d *driver) target(ctx context.Context, class *machinev1alpha1.MachineClass) (*target, error) {
	if class.Provider != machine.Provider {
		return nil, newStatus(codes.InvalidArgument, "MachineClass %s/%s is for provider %q, this one is %q", class.Namespace, class.Name, class.Provider, machine.Provider)
	}
	credentials, namespace := corev1.SecretReference{}, namespaceOf(class)
	if namespace != class.Namespace && class.CredentialsSecretRef != nil {
		credentials = *class.CredentialsSecretRef
	}
	c, err := d.clusters.Get(ctx, credentials, class.Namespace)
	if err != nil {
		return nil, err
	}
	if c.Namespace != namespace {
		return nil, newStatus(codes.InvalidArgument,
			"MachineClass %s/%s has its machines in namespace %s, but the credentials in Secret %s/%s lead to namespace %s: has their kubeconfig been removed?",
			class.Namespace, class.Name, namespace, credentials.Namespace, credentials.Name, c.Namespace)
	}
	watching, ok := c.Client.(client.WithWatch)
	if !ok {
		return nil, newStatus(codes.Internal, "the client for the cluster of the machines cannot watch")
	}
	return &target{client: watching, namespace: namespace}, nil
}

// namespaceOf returns where the machines of a class are. It is lenient: a class with which no machine can be made must not
// keep its Machines from being deleted.
func namespaceOf(class *machinev1alpha1.MachineClass) string {
	spec := &localv1alpha1.MachineProviderSpec{}
	if json.Unmarshal(class.ProviderSpec.Raw, spec) != nil {
		return class.Namespace
	}
	return cmp.Or(spec.Namespace, class.Namespace)
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
	if pod.DeletionTimestamp == nil && !machine.HasEnded(pod) && (pod.Status.Phase == corev1.PodRunning || image(pod) == wantedImage) {
		return pod, nil
	}
	if err := client.IgnoreNotFound(t.client.Delete(ctx, pod, client.Preconditions{UID: new(pod.UID)})); err != nil {
		return nil, err
	}
	return nil, t.untilGone(ctx, pod)
}

// replace creates an object of a machine, in place of what an earlier attempt has left: that may have other user data, or belong
// to a pod that is no more.
func (t *target) replace(ctx context.Context, obj client.Object, name string) error {
	wanted := obj.DeepCopyObject().(client.Object)
	err := t.client.Create(ctx, obj)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := t.client.Get(ctx, client.ObjectKeyFromObject(wanted), obj); err != nil {
		return err
	}
	if !belongsTo(obj, name) {
		return taken(obj, name)
	}
	if err := t.client.Delete(ctx, obj, client.Preconditions{UID: new(obj.GetUID())}); client.IgnoreNotFound(err) != nil {
		return err
	}
	return t.client.Create(ctx, wanted)
}

// belongsTo reports whether an object is part of the machine with this name.
func belongsTo(obj client.Object, name string) bool {
	return labels.SelectorFromSet(machine.Labels(name)).Matches(labels.Set(obj.GetLabels()))
}

// taken is the error for an object that has the name of one of a machine's.
func taken(obj client.Object, name string) error {
	return newStatus(codes.AlreadyExists, "%T %s/%s is there already and not part of machine %s: its labels are others", obj, obj.GetNamespace(), obj.GetName(), name)
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
	node := ""
	err := watchObject(ctx, t.client, client.ObjectKeyFromObject(pod), &corev1.PodList{}, func(current *corev1.Pod) (bool, error) {
		if current == nil || current.UID != pod.GetUID() {
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
