// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

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

// defaultEphemeralStorage is the limit of a machine whose type and volume do not say how much disk it has. System components
// and their images take a few GiB.
const defaultEphemeralStorage = "20Gi"

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
