// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbaseconfigv1alpha1 "k8s.io/component-base/config/v1alpha1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// AdmissionConfiguration is the configuration of the command admission of operator-extension, which serves the admission
// webhooks of the virtual garden from the garden runtime cluster.
type AdmissionConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Logging         `json:",inline"`

	// ClientConnection configures the client of the virtual garden. Default: the kubeconfig that the environment variable
	// GARDEN_KUBECONFIG names, which gardener-operator sets; 100 requests a second and bursts of 200.
	ClientConnection componentbaseconfigv1alpha1.ClientConnectionConfiguration `json:"clientConnection"`
	// LeaderElection configures which replica keeps the certificates and the registration. The Lease is in the garden runtime
	// cluster. All replicas serve.
	LeaderElection componentbaseconfigv1alpha1.LeaderElectionConfiguration `json:"leaderElection"`
	// Server configures what the program listens on.
	Server ServerConfiguration `json:"server"`
	// Webhooks configures the registration of the webhooks.
	Webhooks AdmissionWebhooks `json:"webhooks"`
	// Machines configures what the machines of shoots may be.
	// +optional
	Machines AdmissionMachines `json:"machines,omitempty"`
}

// AdmissionMachines is what the machines of shoots may be.
type AdmissionMachines struct {
	// NodeCIDRs are ranges from which Shoots may have their nodes besides private (RFC 1918), shared (RFC 6598) and unique
	// local ones (RFC 4193). The instances in seeds have the same field.
	// +optional
	NodeCIDRs []string `json:"nodeCIDRs,omitempty"`
}

// AdmissionWebhooks is how the admission webhooks are registered.
type AdmissionWebhooks struct {
	// ServicePort is the port of the Service before the program. Default 443.
	// +optional
	ServicePort *int `json:"servicePort,omitempty"`
	// CertificateNamespace is a namespace of the garden runtime cluster that has the certificates and nothing else.
	CertificateNamespace string `json:"certificateNamespace"`
	// OwnerNamespace is the namespace of the virtual garden with which the registration goes.
	OwnerNamespace string `json:"ownerNamespace"`
}
