// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// CloudControllerConfiguration is the configuration of the command cloud-controller of gardenlet-extension, which serves
// the Services of type LoadBalancer of one shoot.
type CloudControllerConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Logging         `json:",inline"`

	// Seed is the cluster in which the machines of the shoot are.
	Seed CloudControllerSeed `json:"seed"`
	// Shoot is the cluster whose Services are served.
	Shoot CloudControllerShoot `json:"shoot"`
	// Server serves /healthz, /readyz and /metrics.
	// +optional
	Server CloudControllerServer `json:"server,omitempty"`
}

// CloudControllerSeed is the cluster in which the machines of a shoot are.
type CloudControllerSeed struct {
	// Kubeconfig is the path of a kubeconfig with all that it needs in itself: one that names files or commands is refused,
	// as a user may have written it. Default: the ServiceAccount of the pod.
	// +optional
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// AllowedCIDRs are the ranges to which the server of the kubeconfig may resolve. Default: all addresses. Loopback, link-local,
	// multicast and unspecified ones are refused in any case.
	// +optional
	AllowedCIDRs []string `json:"allowedCIDRs,omitempty"`
	// Namespace is where the machines are, and the Services that lead to them.
	Namespace string `json:"namespace"`
	// OneNode tells that the cluster has one node and no other. Then Services with externalTrafficPolicy Local keep the
	// addresses of their clients. Default false.
	// +optional
	OneNode bool `json:"oneNode,omitempty"`
	// NodePorts has the Services made there with node ports. Provider-local's own load balancers need none; a cluster that is itself a
	// Shoot reaches its machines only by them. Default false.
	// +optional
	NodePorts bool `json:"nodePorts,omitempty"`
}

// CloudControllerShoot is the cluster whose Services are served.
type CloudControllerShoot struct {
	// Kubeconfig is the path of a kubeconfig.
	Kubeconfig string `json:"kubeconfig"`
}

// CloudControllerServer is an HTTPS server.
type CloudControllerServer struct {
	// BindAddress is an IP address; empty for all of them.
	// +optional
	BindAddress string `json:"bindAddress,omitempty"`
	// Port is a TCP port, 1 to 65535. Default 10258.
	// +optional
	Port int `json:"port,omitempty"`
	// CertificateDirectory has tls.crt and tls.key, which are read again when they change. Empty for plain HTTP.
	// +optional
	CertificateDirectory string `json:"certificateDirectory,omitempty"`
}
