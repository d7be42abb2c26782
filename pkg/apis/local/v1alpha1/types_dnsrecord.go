// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// DNSRecordConfigKind is the kind of DNSRecordConfig.
	DNSRecordConfigKind = "DNSRecordConfig"
	// DNSRecordStatusKind is the kind of DNSRecordStatus.
	DNSRecordStatusKind = "DNSRecordStatus"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// DNSRecordConfig is the providerConfig of a DNSRecord. A DNSRecord without one is served as the configuration of the
// instance says.
type DNSRecordConfig struct {
	metav1.TypeMeta `json:",inline"`

	// Provider serves the record: coredns or rfc2136. Default: dns.provider of the instance's configuration.
	// +optional
	Provider string `json:"provider,omitempty"`
	// RFC2136 tells where dynamic updates go, if the provider is rfc2136.
	// +optional
	RFC2136 *RFC2136Config `json:"rfc2136,omitempty"`
}

// RFC2136Config is a server that takes dynamic updates (RFC 2136). What it leaves out is taken from the Secret that the
// DNSRecord refers to, and then from the instance's configuration.
type RFC2136Config struct {
	// Server is the primary server of the zones, HOST[:PORT] with port 53 by default.
	// +optional
	Server string `json:"server,omitempty"`
	// Zones are zones of the server. The record is in the longest that its name ends in.
	// +optional
	Zones []string `json:"zones,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// DNSRecordStatus is the providerStatus of a DNSRecord that is or was served by dynamic updates. It tells what was sent
// where, so that just that can be removed.
type DNSRecordStatus struct {
	metav1.TypeMeta `json:",inline"`

	// Provider serves the record. It is empty until the record has been seen to resolve there.
	// +optional
	Provider string `json:"provider,omitempty"`
	// Written is what servers may have of this DNSRecord. An entry is here before it is sent, and until it is known to
	// be gone.
	// +optional
	Written []WrittenRecord `json:"written,omitempty"`
}

// WrittenRecord is all records of a name and type as they were sent to a server.
type WrittenRecord struct {
	// Server is HOST:PORT.
	Server string `json:"server"`
	// Zone, Name and Type tell what is on the server: Zone and Name are in lower case and without a dot at the end, Type
	// is A, AAAA, CNAME or TXT.
	Zone string `json:"zone"`
	Name string `json:"name"`
	Type string `json:"type"`
	// Values are in their normal form and sorted.
	Values []string `json:"values"`
	// TTL is in seconds.
	TTL int64 `json:"ttl"`
	// Mark is the TXT record beside them that tells other instances whose they are.
	// +optional
	Mark string `json:"mark,omitempty"`
}
