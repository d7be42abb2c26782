// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// MachinesConfiguration is how the machines of shoots are made.
type MachinesConfiguration struct {
	// ControllerImage is the image of the container that is put beside machine-controller-manager: gardenlet-extension's.
	// +optional
	ControllerImage string `json:"controllerImage,omitempty"`
	// RegistryMirrors are written to the containerd configuration of all machines.
	// +optional
	RegistryMirrors []RegistryMirror `json:"registryMirrors,omitempty"`
	// Sizing is how the machine type of a CloudProfile bounds a machine, unless the worker pool's providerConfig says
	// otherwise: Exact (default), Overcommit or Unlimited.
	// +optional
	Sizing localv1alpha1.MachineSizing `json:"sizing,omitempty"`
	// AllowedSizings are what the providerConfig of a worker pool may choose. Default: Exact, Overcommit and Sizing. A machine
	// that is Unlimited may take all of its node, past the quota of its project.
	// +optional
	AllowedSizings []localv1alpha1.MachineSizing `json:"allowedSizings,omitempty"`
	// GPUResourceName is the resource of which a machine gets as many as its machine type has GPUs. Default:
	// nvidia.com/gpu.
	// +optional
	GPUResourceName corev1.ResourceName `json:"gpuResourceName,omitempty"`
	// EgressCIDRs are ranges that machines may reach besides those that every machine reaches: the machines of its shoot,
	// the gateways and DNS servers of the seed, the seed's nodes, and public addresses. They are meant for registries and
	// mirrors in private networks.
	// +optional
	EgressCIDRs []string `json:"egressCIDRs,omitempty"`
	// NodeCIDRs are ranges from which Shoots may have their nodes besides private (RFC 1918), shared (RFC 6598) and unique
	// local ones (RFC 4193). Each node of the seed sends to machines what is for such a range. The admission has the same
	// field.
	// +optional
	NodeCIDRs []string `json:"nodeCIDRs,omitempty"`
	// Remote is about machines in clusters other than the seed, to which kubeconfigs of users lead.
	// +optional
	Remote RemoteMachinesConfiguration `json:"remote,omitempty"`
}

// RemoteMachinesConfiguration is about machines in clusters other than the seed.
type RemoteMachinesConfiguration struct {
	// AllowedCIDRs are the ranges to which the servers of kubeconfigs may resolve. Default: all addresses. Loopback, link-local,
	// multicast and unspecified ones are refused in any case.
	// +optional
	AllowedCIDRs []string `json:"allowedCIDRs,omitempty"`
}

// RegistryMirror is a mirror for the images of one registry.
type RegistryMirror struct {
	// Upstream is the registry as images name it, for example "registry.k8s.io".
	Upstream string `json:"upstream"`
	// Server is the URL of the registry itself, asked if no host has an image. Default: https:// and Upstream.
	// +optional
	Server string `json:"server,omitempty"`
	// Hosts are the URLs of the mirrors, asked in this order.
	Hosts []string `json:"hosts"`
}

// NodesConfiguration is what Nodes report.
type NodesConfiguration struct {
	// Capacity is what a Node has unless its machine type says so. Default: 100 CPUs and 100Gi of memory.
	// +optional
	Capacity NodeCapacity `json:"capacity,omitempty"`
}

// NodeCapacity is what a Node has.
type NodeCapacity struct {
	// CPU is the number of CPUs.
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// Memory is in bytes.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}
