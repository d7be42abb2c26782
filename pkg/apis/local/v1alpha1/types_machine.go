// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

const (
	// CloudProfileConfigKind is the kind of CloudProfileConfig.
	CloudProfileConfigKind = "CloudProfileConfig"
	// InfrastructureStatusKind is the kind of InfrastructureStatus.
	InfrastructureStatusKind = "InfrastructureStatus"
	// WorkerConfigKind is the kind of WorkerConfig.
	WorkerConfigKind = "WorkerConfig"
	// WorkerStatusKind is the kind of WorkerStatus.
	WorkerStatusKind = "WorkerStatus"
	// MachineProviderSpecKind is the kind of MachineProviderSpec.
	MachineProviderSpecKind = "MachineProviderSpec"
)

// MachineSizing tells how the machine type of a CloudProfile bounds the pod that is the machine.
type MachineSizing string

const (
	// MachineSizingExact makes what the machine type has the requests and limits of the pod: a machine has just that, and
	// is only scheduled where that is free. This is the default.
	MachineSizingExact MachineSizing = "Exact"
	// MachineSizingOvercommit makes it the limits only: a machine has at most that, and more machines than fit share a
	// node.
	MachineSizingOvercommit MachineSizing = "Overcommit"
	// MachineSizingUnlimited leaves the pod without requests and limits: each machine may use all that the node has. Its
	// Node still says what the machine type has.
	MachineSizingUnlimited MachineSizing = "Unlimited"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// CloudProfileConfig is the providerConfig of a CloudProfile of type local.
type CloudProfileConfig struct {
	metav1.TypeMeta `json:",inline"`

	// MachineImages tell which container image a machine image of the CloudProfile is.
	MachineImages []MachineImages `json:"machineImages"`
	// LoadBalancer is not looked at. CloudProfiles that were written for Gardener's own provider-local have it.
	// +optional
	LoadBalancer *runtime.RawExtension `json:"loadBalancer,omitempty"`
}

// MachineImages are the versions of a machine image.
type MachineImages struct {
	// Name is that of the machine image in the CloudProfile.
	Name string `json:"name"`
	// Versions are its versions.
	Versions []MachineImageVersion `json:"versions"`
}

// MachineImageVersion is the container image of one version of a machine image.
type MachineImageVersion struct {
	// Version is that of the CloudProfile.
	Version string `json:"version"`
	// Image is a reference to a container image, for CloudProfiles without machineCapabilities.
	// +optional
	Image string `json:"image,omitempty"`
	// CapabilityFlavors are container images by what they are capable of, for CloudProfiles with machineCapabilities.
	// +optional
	CapabilityFlavors []MachineImageFlavor `json:"capabilityFlavors,omitempty"`
}

// MachineImageFlavor is a container image that is capable of something.
type MachineImageFlavor struct {
	// Image is a reference to a container image.
	Image string `json:"image"`
	// Capabilities are those of spec.machineCapabilities of the CloudProfile that the image has.
	// +optional
	Capabilities gardencorev1beta1.Capabilities `json:"capabilities,omitempty"`
}

// GetCapabilities returns the capabilities. Gardener's library chooses an image by them.
func (f MachineImageFlavor) GetCapabilities() gardencorev1beta1.Capabilities { return f.Capabilities }

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// InfrastructureStatus is the providerStatus of an Infrastructure.
type InfrastructureStatus struct {
	metav1.TypeMeta `json:",inline"`

	// MachineNamespace is the namespace of the machine pods, in the seed or in the cluster of the shoot's credentials.
	MachineNamespace string `json:"machineNamespace"`
	// IPPools are Calico's pools of which machine pods get their addresses, one for each family. Empty if that cluster does
	// not have the API.
	// +optional
	IPPools []MachineIPPool `json:"ipPools,omitempty"`
	// Message tells what the machines have to do without, and why.
	// +optional
	Message string `json:"message,omitempty"`
}

// MachineIPPool is an IPPool of Calico for machine pods.
type MachineIPPool struct {
	// IPFamily is IPv4 or IPv6.
	IPFamily gardencorev1beta1.IPFamily `json:"ipFamily"`
	// Name is that of the IPPool.
	Name string `json:"name"`
	// CIDR is the range of the pool: that of the shoot's nodes.
	CIDR string `json:"cidr"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// WorkerConfig is the providerConfig of a worker pool of a Shoot.
type WorkerConfig struct {
	metav1.TypeMeta `json:",inline"`

	// Sizing is how the machine type bounds the machines of the pool. Default: machines.sizing of the instance's
	// configuration, which is Exact by default.
	// +optional
	Sizing MachineSizing `json:"sizing,omitempty"`
	// SharedBackupBuckets mounts the folder of the seed's backup buckets into the machines, where the extension has it in a
	// seed that the shoot becomes (a ManagedSeed): then control planes can move between both seeds. Whoever can run
	// privileged pods in the shoot can read and change all these backups, which is why only a Shoot in the garden namespace
	// may ask for it.
	// +optional
	SharedBackupBuckets bool `json:"sharedBackupBuckets,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// WorkerStatus is the providerStatus of a Worker.
type WorkerStatus struct {
	metav1.TypeMeta `json:",inline"`

	// MachineImages are those that the worker pools use. They are kept for when a CloudProfile drops one that is in use.
	// +optional
	MachineImages []MachineImage `json:"machineImages,omitempty"`
}

// MachineImage is the container image of a machine image that is in use.
type MachineImage struct {
	// Name and Version are those of the machine image in the CloudProfile.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Image is a reference to a container image.
	Image string `json:"image"`
	// Capabilities are those of the image.
	// +optional
	Capabilities gardencorev1beta1.Capabilities `json:"capabilities,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// MachineProviderSpec is the providerSpec of a MachineClass: all that the machine driver knows of a machine besides its
// name and its user data.
type MachineProviderSpec struct {
	metav1.TypeMeta `json:",inline"`

	// Namespace is that of the machine pods. Default: that of the Machine.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Image is a reference to a container image.
	Image string `json:"image"`
	// ImageVersion is the version of the machine image, which the operating system of the machine says it is.
	// +optional
	ImageVersion string `json:"imageVersion,omitempty"`
	// Resources are the requests and limits of the pod.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	// IPPoolNameV4 and IPPoolNameV6 are Calico's IPPools of which the pod gets its addresses. Default: those that Calico
	// chooses.
	// +optional
	IPPoolNameV4 string `json:"ipPoolNameV4,omitempty"`
	// +optional
	IPPoolNameV6 string `json:"ipPoolNameV6,omitempty"`
	// BackupHostPath is the folder of backup buckets on the node that the pod mounts, under the same path; empty for none.
	// +optional
	BackupHostPath string `json:"backupHostPath,omitempty"`
}
