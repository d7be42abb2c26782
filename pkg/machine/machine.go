// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package machine holds what all parts of this extension know of machines, which are pods: their names and labels, and
// how much of a node they get. The controllers for Infrastructures, Workers and Bastions, the webhook for Nodes and the
// machine driver use it, so that none of them has to know another.
package machine

import (
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

const (
	// LabelApp with the value AppMachine is on all pods and Services of machines, and with AppBastion on those of bastions.
	LabelApp = "app"
	// AppMachine is a value of LabelApp.
	AppMachine = "machine"
	// AppBastion is a value of LabelApp.
	AppBastion = "bastion"
	// LabelProvider with the value Provider tells the machines of this extension's driver.
	LabelProvider = "machine-provider"
	// Provider is the value of LabelProvider, and the provider that a MachineClass names.
	Provider = "local"
	// LabelMachine names the Machine that a pod, Service or Secret belongs to.
	LabelMachine = "machine"
	// ContainerName is the name of the container in a pod of the machine image.
	ContainerName = "node"
	// UserDataFile is the key of the user data in the Secret for such a pod, and the name of the file in it.
	UserDataFile = "userdata"
	// SSHPort is the port of the SSH server in it.
	SSHPort = 22
	// UserDataKey is the key in the Secret of a MachineClass that machine-controller-manager demands. To the driver it gives that Secret
	// together with the credentials, whose keys win.
	UserDataKey = "userData"
	// AllowedCIDRsFlag is the flag of the machine driver with the ranges to which servers of kubeconfigs may resolve.
	AllowedCIDRsFlag = "remote-allowed-cidrs"

	podPrefix  = "machine-"
	hashLength = 8

	// userDataMode lets the pod run the file.
	userDataMode = 0o500
	// memoryVolumeSize is for /run, of which journald takes a tenth at most, and for /tmp.
	memoryVolumeSize = "1Gi"
	// defaultEphemeralStorage is the limit of a machine whose type and volume do not say how much disk it has. System components
	// and their images take a few GiB.
	defaultEphemeralStorage = "20Gi"
)

// Selector selects the pods of all machines.
func Selector() map[string]string {
	return map[string]string{LabelApp: AppMachine, LabelProvider: Provider}
}

// Labels are the labels of everything that belongs to a machine, given the name of the Machine.
func Labels(name string) map[string]string {
	labels := Selector()
	labels[LabelMachine] = name
	return labels
}

// PodName is the name of the pod and of the headless Service of a machine, given the name of the Machine. It is the name
// of its Node and its provider ID, too. It is a DNS label: the end of a name that is too long, as those of a shoot and a
// pool with long names together are, gives way to a hash.
func PodName(name string) string {
	pod := podPrefix + name
	if len(pod) <= validation.DNS1123LabelMaxLength {
		return pod
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:hashLength]
	return strings.TrimRight(pod[:validation.DNS1123LabelMaxLength-1-hashLength], "-.") + "-" + hash
}

// NewPod returns the pod from which machines and bastions are made: it has what the machine image needs. userData is the name of the
// Secret with the file that the image runs at boot.
func NewPod(meta metav1.ObjectMeta, image, imageVersion, userData string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			EnableServiceLinks:           new(false),
			Containers: []corev1.Container{{
				Name:            ContainerName,
				Image:           image,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Env: []corev1.EnvVar{
					{Name: "NODE_NAME", Value: meta.Name},
					{Name: "MACHINE_IMAGE_VERSION", Value: imageVersion},
				},
				// systemd and containerd need it.
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
				TTY:             true,
				VolumeMounts: []corev1.VolumeMount{
					{Name: UserDataFile, MountPath: "/etc/machine", ReadOnly: true},
					{Name: "run", MountPath: "/run"},
					{Name: "tmp", MountPath: "/tmp"},
					{Name: "modules", MountPath: "/lib/modules", ReadOnly: true},
				},
			}},
			Volumes: []corev1.Volume{
				{Name: UserDataFile, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
					SecretName: userData, DefaultMode: new(int32(userDataMode)),
				}}},
				inMemory("run"),
				inMemory("tmp"),
				{Name: "modules", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
					Path: "/lib/modules", Type: new(corev1.HostPathDirectoryOrCreate),
				}}},
			},
		},
	}
}

// inMemory is a volume in the memory of the pod or, if that has no limit, of the node.
func inMemory(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse(memoryVolumeSize)),
	}}}
}

// HasEnded reports whether a pod has ended, as one that was evicted. It stays, and so do the addresses in its status, which may be
// another pod's by now.
func HasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// Name is the name of the Machine, given that of its pod if it was short enough. The label LabelMachine always has it.
func Name(podName string) string { return strings.TrimPrefix(podName, podPrefix) }

// PolicyPort is a port in a NetworkPolicy for machines.
func PolicyPort(protocol corev1.Protocol, number int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(number))}
}

// RemoteNamespace is the namespace of a shoot's machines in a cluster other than the seed, given the shoot's technical ID,
// which is the name of its namespace in the seed.
func RemoteNamespace(technicalID string) string { return "infra-" + technicalID }

// IPPoolKind is Calico's IPPool, in the version in which Calico stores it.
var IPPoolKind = schema.GroupVersionKind{Group: "crd.projectcalico.org", Version: "v1", Kind: "IPPool"}

// IPPoolName is the name of Calico's IPPool for the machines of a shoot.
func IPPoolName(technicalID string, family gardencorev1beta1.IPFamily) string {
	return "shoot-machines-" + technicalID + "-" + strings.ToLower(string(family))
}

// Capacity is what a machine has: cpu and memory of its type, GPUs under the given name of a resource, and as much
// ephemeral storage as its volume or, if it has none, the storage of the type. What is zero or not given is left out. The
// type may be nil; volumeSize is empty or a quantity.
func Capacity(machineType *gardencorev1beta1.MachineType, volumeSize string, gpu corev1.ResourceName) corev1.ResourceList {
	capacity := corev1.ResourceList{}
	add := func(name corev1.ResourceName, quantity resource.Quantity) {
		if quantity.Sign() > 0 {
			capacity[name] = quantity.DeepCopy()
		}
	}
	if machineType != nil {
		add(corev1.ResourceCPU, machineType.CPU)
		add(corev1.ResourceMemory, machineType.Memory)
		add(gpu, machineType.GPU)
		if storage := machineType.Storage; storage != nil && storage.StorageSize != nil {
			add(corev1.ResourceEphemeralStorage, *storage.StorageSize)
		}
	}
	if size, err := resource.ParseQuantity(volumeSize); err == nil {
		add(corev1.ResourceEphemeralStorage, size)
	}
	return capacity
}

// Resources are the requests and limits of the pod of a machine with this capacity. Of a resource that is no part of a
// node, like GPUs, requests and limits are always the same, as Kubernetes wants it. A machine that has a size has one for its
// disk, too, and does not request it if that is the default: it must not fill the disk that all others share.
func Resources(capacity corev1.ResourceList, sizing localv1alpha1.MachineSizing) corev1.ResourceRequirements {
	if sizing == localv1alpha1.MachineSizingUnlimited {
		return corev1.ResourceRequirements{}
	}
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for name, quantity := range capacity {
		requests[name], limits[name] = quantity.DeepCopy(), quantity.DeepCopy()
	}
	// Kubernetes takes the limit for a request that is not there.
	if sizing == localv1alpha1.MachineSizingOvercommit {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			if _, ok := requests[name]; ok {
				requests[name] = resource.Quantity{}
			}
		}
	}
	if _, ok := limits[corev1.ResourceEphemeralStorage]; !ok {
		requests[corev1.ResourceEphemeralStorage] = resource.Quantity{}
		limits[corev1.ResourceEphemeralStorage] = resource.MustParse(defaultEphemeralStorage)
	}
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}
