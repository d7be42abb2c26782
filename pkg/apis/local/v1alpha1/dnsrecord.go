// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What DNSRecordConfig.Provider may be.
const (
	// DNSProviderCoreDNS is the CoreDNS that the instances of a cluster share.
	DNSProviderCoreDNS = "coredns"
	// DNSProviderRFC2136 is a server that takes dynamic updates.
	DNSProviderRFC2136 = "rfc2136"
)

// DecodeDNSRecordConfig decodes the providerConfig of a DNSRecord; nil is an empty one. It is strict: an error names
// the path of a field that doesn't exist or is there twice, below spec.providerConfig.
func DecodeDNSRecordConfig(raw *runtime.RawExtension) (*DNSRecordConfig, error) {
	config := &DNSRecordConfig{}
	if problem := decodeAt(raw, config, DNSRecordConfigKind, field.NewPath("spec", "providerConfig")); problem != nil {
		return nil, problem
	}

	switch config.Provider {
	case "", DNSProviderRFC2136:
	case DNSProviderCoreDNS:
		if config.RFC2136 != nil {
			return nil, fmt.Errorf("spec.providerConfig.rfc2136: has no meaning with provider %s: take it out or set spec.providerConfig.provider to %s", config.Provider, DNSProviderRFC2136)
		}
	default:
		return nil, fmt.Errorf("spec.providerConfig.provider: %q is neither %s nor %s", config.Provider, DNSProviderCoreDNS, DNSProviderRFC2136)
	}
	return config, nil
}

// DecodeDNSRecordStatus decodes the providerStatus of a DNSRecord; nil, and what is not a DNSRecordStatus, is an empty
// one.
func DecodeDNSRecordStatus(raw *runtime.RawExtension) *DNSRecordStatus {
	status := &DNSRecordStatus{}
	if raw == nil || json.Unmarshal(raw.Raw, status) != nil || status.Kind != DNSRecordStatusKind {
		return &DNSRecordStatus{}
	}
	return status
}
