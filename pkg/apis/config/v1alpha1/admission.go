// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfigv1alpha1 "k8s.io/component-base/config/v1alpha1"
)

// LoadAdmission reads, defaults and validates the file at path. Like Load, it is strict: a field that does not exist or that
// is there twice is an error which names it.
func LoadAdmission(path string) (*AdmissionConfiguration, error) {
	data, err := os.ReadFile(path) // #nosec G304 -- the path is the operator's own, given on the command line
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	config, err := DecodeAdmission(data)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return config, nil
}

// DecodeAdmission decodes (strictly), defaults and validates a configuration in YAML or JSON.
func DecodeAdmission(data []byte) (*AdmissionConfiguration, error) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := singleDocument(data); err != nil {
		return nil, err
	}
	config := &AdmissionConfiguration{}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(SchemeGroupVersion)
	if err := runtime.DecodeInto(decoder, data, config); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	if err := ValidateAdmission(config).ToAggregate(); err != nil {
		return nil, fmt.Errorf("validating: %w", err)
	}
	return config, nil
}

// ValidateAdmission checks a defaulted configuration.
func ValidateAdmission(config *AdmissionConfiguration) field.ErrorList {
	var allErrs field.ErrorList
	if !sets.New(logLevels...).Has(config.LogLevel) {
		allErrs = append(allErrs, field.NotSupported(field.NewPath("logLevel"), config.LogLevel, logLevels))
	}
	if !sets.New(logFormats...).Has(config.LogFormat) {
		allErrs = append(allErrs, field.NotSupported(field.NewPath("logFormat"), config.LogFormat, logFormats))
	}
	allErrs = append(allErrs, validateServers(&config.Server, field.NewPath("server"))...)

	path := field.NewPath("webhooks")
	for _, msg := range validation.IsValidPortNum(*config.Webhooks.ServicePort) {
		allErrs = append(allErrs, field.Invalid(path.Child("servicePort"), *config.Webhooks.ServicePort, msg))
	}
	for name, namespace := range map[string]string{"certificateNamespace": config.Webhooks.CertificateNamespace, "ownerNamespace": config.Webhooks.OwnerNamespace} {
		for _, msg := range validation.IsDNS1123Label(namespace) {
			allErrs = append(allErrs, field.Invalid(path.Child(name), namespace, msg))
		}
	}
	return allErrs
}

// SetAdmissionDefaults fills in what the user left out.
func SetAdmissionDefaults(config *AdmissionConfiguration) {
	if config.ClientConnection.QPS == 0 {
		config.ClientConnection.QPS = 100
	}
	if config.ClientConnection.Burst == 0 {
		config.ClientConnection.Burst = 200
	}
	setDefault(&config.LeaderElection.ResourceLock, resourcelock.LeasesResourceLock)
	componentbaseconfigv1alpha1.RecommendedDefaultLeaderElectionConfiguration(&config.LeaderElection)
	setDefault(&config.LogLevel, "info")
	setDefault(&config.LogFormat, "json")
	setPointerDefault(&config.Server.HealthProbes, Server{Port: 8081})
	setPointerDefault(&config.Server.Metrics, Server{Port: 8080})
	setPointerDefault(&config.Server.Webhooks, Server{Port: 10443})
	setPointerDefault(&config.Webhooks.ServicePort, 443)
}
