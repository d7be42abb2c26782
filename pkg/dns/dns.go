// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package dns holds what a DNSRecord asks for, checked, and the interface of those who serve it. The DNSRecord
// controller makes a Request of an object and hands it to a Provider; the providers are the packages below this one. The
// rules for names and values are here, apart from both, as they are those of DNS and the same for all providers.
package dns

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

const (
	// Type is the extension type of the DNSRecords that this extension serves.
	Type = "local"
	// DefaultTTL is the TTL in seconds of a record that doesn't say (DNSRecord.spec.ttl).
	DefaultTTL int64 = 120
	// ReservedLabel is a label at the top of a zone below which no record may be: <something>._sync.<zone> tells which
	// state a server is at.
	ReservedLabel = "_sync"
	// LabelIngress is on a DNSRecord that the Ingress controller made. Its value is the name of the Ingress; that there is
	// one tells that the record leads to an Ingress controller rather than to an API server.
	LabelIngress = "local.provider.extensions.gardener.cloud/ingress"
	// ReasonReserved is the reason of the condition Created of a DNSRecord that is not served as its domain is reserved.
	ReasonReserved = "Reserved"
)

// Record types that are served.
const (
	TypeA     = "A"
	TypeAAAA  = "AAAA"
	TypeCNAME = "CNAME"
	TypeTXT   = "TXT"
)

// Record is what one DNSRecord asks for. Make it with New, which checks and normalises it.
type Record struct {
	// Owner is the DNSRecord.
	Owner types.NamespacedName
	// Class is the class on whose behalf the DNSRecord is there; empty means that of shoots.
	Class extensionsv1alpha1.ExtensionClass
	// Created is the creation timestamp of the DNSRecord. Of several holders of a class the one that came first has a name.
	Created time.Time
	// Name is in lower case and without a dot at the end; it may start with "*.".
	Name string
	// Type is A, AAAA, CNAME or TXT.
	Type string
	// TTL is in seconds.
	TTL int64
	// Values are in the form that DNS gives them back in: addresses in their shortest form, a host name in lower case
	// without a dot at the end, a text as it is. They are sorted.
	Values []string
	// Ingress tells that the DNSRecord has LabelIngress.
	Ingress bool
	// Internal tells that gardenlet made the DNSRecord for the internal domain of a shoot.
	Internal bool
}

// Request is what a Provider is asked for.
type Request struct {
	// Record is what the DNSRecord asks for. Only Owner is certain to be set if it is to be removed.
	Record Record
	// TechnicalID is that of the shoot: it is the same for both seeds of a control plane migration. Empty if there is none.
	TechnicalID string
	// Config is the DNSRecord's providerConfig.
	Config localv1alpha1.DNSRecordConfig
	// Secret is the DNSRecord's spec.secretRef.
	Secret corev1.SecretReference
	// Serving is the provider that serves the record by the providerStatus, and Written what servers may have of it.
	Serving string
	Written []localv1alpha1.WrittenRecord
	// Save writes the providerStatus. A provider that leaves anything behind which is not found again from the DNSRecord
	// itself saves it before.
	Save func(ctx context.Context, status localv1alpha1.DNSRecordStatus) error
	// Keep notes the providerStatus, which is written once the provider has returned: if that is lost, what was saved before
	// is more than there is.
	Keep func(status localv1alpha1.DNSRecordStatus)
}

// Provider serves records.
type Provider interface {
	// Apply serves a record in place of what its owner had before. It returns nil only once the record resolves. The
	// error has a code of Gardener's if only a user can put it right, such as a ConflictError; any other may pass by itself.
	Apply(ctx context.Context, request Request) error
	// Remove removes what an owner had; nil if there was nothing. The errors are those of Apply.
	Remove(ctx context.Context, request Request) error
}

// ProviderOf returns who has to serve a DNSRecord by its providerConfig. An error is a mistake in the providerConfig.
func ProviderOf(object *extensionsv1alpha1.DNSRecord, defaultProvider configv1alpha1.DNSProvider) (configv1alpha1.DNSProvider, *localv1alpha1.DNSRecordConfig, error) {
	config, err := localv1alpha1.DecodeDNSRecordConfig(object.Spec.ProviderConfig)
	switch {
	case err != nil:
		return "", nil, err
	case config.Provider != "":
		return configv1alpha1.DNSProvider(config.Provider), config, nil
	case config.RFC2136 != nil && defaultProvider != configv1alpha1.DNSProviderRFC2136:
		return "", nil, fmt.Errorf("spec.providerConfig.rfc2136: has no meaning with provider %s, which is the default here: set spec.providerConfig.provider to %s", defaultProvider, configv1alpha1.DNSProviderRFC2136)
	default:
		return defaultProvider, config, nil
	}
}

// IsServedBy reports whether a provider has to keep serving a DNSRecord: one that asks for another provider is kept until
// it has been seen to resolve there.
func IsServedBy(provider configv1alpha1.DNSProvider, object *extensionsv1alpha1.DNSRecord, defaultProvider configv1alpha1.DNSProvider) bool {
	serving := localv1alpha1.DecodeDNSRecordStatus(object.Status.ProviderStatus).Provider
	if serving == "" || serving == string(provider) {
		return true
	}
	wanted, _, err := ProviderOf(object, defaultProvider)
	return err == nil && wanted == provider
}

// ConfigurationProblem returns an error with Gardener's code for what only a user can put right.
func ConfigurationProblem(err error) error {
	return v1beta1helper.NewErrorWithCodes(err, gardencorev1beta1.ErrorConfigurationProblem)
}

// ConflictError reports that another record keeps this one from being served. It names that one as far as the holder may know it.
type ConflictError struct{ error }
