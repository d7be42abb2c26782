// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	mcmdriver "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

const (
	namespace = "shoot--local--local"
	name      = "shoot--local--local-pool-z1-abcde-12345"
	testImage = "registry.example.org/machine:1.0.0"
)

var scheme = newScheme()

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubernetesscheme.AddToScheme, machinev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

// seedOnly are clusters without any but the seed, and a remote one for the Secret "remote".
type seedOnly struct {
	seed client.Client
}

func (s seedOnly) Get(_ context.Context, ref corev1.SecretReference, technicalID string) (*cluster.Cluster, error) {
	if ref.Name == "remote" {
		return &cluster.Cluster{Client: s.seed, Namespace: machine.RemoteNamespace(technicalID), Remote: true}, nil
	}
	return &cluster.Cluster{Client: s.seed, Namespace: technicalID}, nil
}

// newClient returns a client for a fake API server that gives UIDs and, once a pod is created, lets boot set its status.
func newClient(boot func(*corev1.Pod), objects ...client.Object) client.WithWatch {
	byName := func(obj client.Object) []string { return []string{obj.GetName()} }
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&corev1.Pod{}).
		WithIndex(&corev1.Pod{}, metav1.ObjectNameField, byName).
		WithIndex(&machinev1alpha1.Machine{}, metav1.ObjectNameField, byName).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				obj.SetUID(uuid.NewUUID())
				if err := c.Create(ctx, obj, opts...); err != nil {
					return err
				}
				pod, ok := obj.(*corev1.Pod)
				if !ok || boot == nil {
					return nil
				}
				started := pod.DeepCopy()
				boot(started)
				return c.Status().Patch(ctx, started, client.MergeFrom(pod))
			},
		}).Build()
}

// run makes a pod as kubelet makes one that starts.
func run(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.7"}, {IP: "fd00::7"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: machine.ContainerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

// waitsFor makes a pod as kubelet makes one that it can't start.
func waitsFor(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodPending
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: machine.ContainerName, State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
		}}}
	}
}

// notScheduled makes a pod as the scheduler makes one for which it has no node.
func notScheduled(message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodPending
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}}
	}
}

func newClass(change ...func(*localv1alpha1.MachineProviderSpec)) *machinev1alpha1.MachineClass {
	spec := &localv1alpha1.MachineProviderSpec{
		TypeMeta: metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.MachineProviderSpecKind},
		Image:    testImage, ImageVersion: "1.0.0",
	}
	for _, change := range change {
		change(spec)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return &machinev1alpha1.MachineClass{
		ObjectMeta:           metav1.ObjectMeta{Namespace: namespace, Name: "class"},
		Provider:             machine.Provider,
		ProviderSpec:         runtime.RawExtension{Raw: raw},
		CredentialsSecretRef: &corev1.SecretReference{Namespace: namespace, Name: "cloudprovider"},
	}
}

func newMachine() *machinev1alpha1.Machine {
	return &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "machine"}}
}

func createRequest(class *machinev1alpha1.MachineClass) *mcmdriver.CreateMachineRequest {
	return &mcmdriver.CreateMachineRequest{Machine: newMachine(), MachineClass: class, Secret: &corev1.Secret{Data: map[string][]byte{"userData": []byte("#!/bin/sh\n")}}}
}

func deleteRequest() *mcmdriver.DeleteMachineRequest {
	return &mcmdriver.DeleteMachineRequest{Machine: newMachine(), MachineClass: newClass()}
}

// newDriver returns a driver that waits for seconds at most, for a Machine that is there.
func newDriver(c client.Client, change ...func(*driver)) mcmdriver.Driver {
	d := New(seedOnly{c}, newClient(nil, newMachine())).(*driver)
	d.createTimeout, d.deleteTimeout, d.unschedulableGrace = 20*time.Second, 20*time.Second, time.Millisecond
	for _, change := range change {
		change(d)
	}
	return d
}

// haveCode matches an error out of whose text machine-controller-manager reads this code.
func haveCode(code codes.Code) OmegaMatcher {
	return WithTransform(func(err error) (string, error) {
		decoded, ok := status.FromError(err)
		if !ok {
			return "", fmt.Errorf("has no code: %w", err)
		}
		return decoded.Code().String(), nil
	}, Equal(code.String()))
}

func podOf(uid types.UID, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := newPod(namespace, name, &localv1alpha1.MachineProviderSpec{Image: testImage})
	pod.UID = uid
	for _, change := range change {
		change(pod)
	}
	return pod
}

// ownedByPod lets a pod of this UID own an object.
func ownedByPod[T client.Object](obj T, uid types.UID) T {
	obj.SetUID("of-" + uid)
	obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: machine.PodName(name), UID: uid}})
	return obj
}

// get reads an object of the machine.
func get[T client.Object](t *testing.T, c client.Client, obj T, objectName string) T {
	t.Helper()
	NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: objectName}, obj)).To(Succeed())
	return obj
}

func getPod(t *testing.T, c client.Client) *corev1.Pod {
	t.Helper()
	return get(t, c, &corev1.Pod{}, machine.PodName(name))
}

// left returns the names of all that is in the API server.
func left(t *testing.T, c client.Client) []string {
	t.Helper()
	var out []string
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ServiceList{}, &corev1.SecretList{}} {
		NewWithT(t).Expect(c.List(t.Context(), list)).To(Succeed())
		switch list := list.(type) {
		case *corev1.PodList:
			for _, obj := range list.Items {
				out = append(out, "pod "+obj.Name)
			}
		case *corev1.ServiceList:
			for _, obj := range list.Items {
				out = append(out, "service "+obj.Name)
			}
		case *corev1.SecretList:
			for _, obj := range list.Items {
				out = append(out, "secret "+obj.Name)
			}
		}
	}
	return out
}
