// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"net"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// LoadCloudController reads, defaults and validates the file at path. Like Load, it is strict: a field that does not exist
// or that is there twice is an error which names it.
func LoadCloudController(path string) (*CloudControllerConfiguration, error) {
	data, err := os.ReadFile(path) // #nosec G304 -- the path is the operator's own, given on the command line
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	config, err := decodeCloudController(data)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return config, nil
}

func decodeCloudController(data []byte) (*CloudControllerConfiguration, error) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := singleDocument(data); err != nil {
		return nil, err
	}
	config := &CloudControllerConfiguration{}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(SchemeGroupVersion)
	if err := runtime.DecodeInto(decoder, data, config); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	if err := ValidateCloudController(config).ToAggregate(); err != nil {
		return nil, fmt.Errorf("validating: %w", err)
	}
	return config, nil
}

// ValidateCloudController checks a defaulted configuration.
func ValidateCloudController(config *CloudControllerConfiguration) field.ErrorList {
	var allErrs field.ErrorList

	if !sets.New(logLevels...).Has(config.LogLevel) {
		allErrs = append(allErrs, field.NotSupported(field.NewPath("logLevel"), config.LogLevel, logLevels))
	}
	if !sets.New(logFormats...).Has(config.LogFormat) {
		allErrs = append(allErrs, field.NotSupported(field.NewPath("logFormat"), config.LogFormat, logFormats))
	}
	for _, msg := range validation.IsDNS1123Label(config.Seed.Namespace) {
		allErrs = append(allErrs, field.Invalid(field.NewPath("seed", "namespace"), config.Seed.Namespace, msg))
	}
	if config.Shoot.Kubeconfig == "" {
		allErrs = append(allErrs, field.Required(field.NewPath("shoot", "kubeconfig"), "how else would the shoot be found"))
	}
	for _, msg := range validation.IsValidPortNum(config.Server.Port) {
		allErrs = append(allErrs, field.Invalid(field.NewPath("server", "port"), config.Server.Port, msg))
	}
	if address := config.Server.BindAddress; address != "" && net.ParseIP(address) == nil {
		allErrs = append(allErrs, field.Invalid(field.NewPath("server", "bindAddress"), address, "must be an IP address"))
	}
	if *config.ConcurrentSyncs <= 0 {
		allErrs = append(allErrs, field.Invalid(field.NewPath("concurrentSyncs"), *config.ConcurrentSyncs, "must be greater than 0"))
	}
	return allErrs
}

// SetCloudControllerDefaults fills in what the user left out.
func SetCloudControllerDefaults(config *CloudControllerConfiguration) {
	setDefault(&config.LogLevel, "info")
	setDefault(&config.LogFormat, "json")
	if config.Server.Port == 0 {
		config.Server.Port = 10258
	}
	setPointerDefault(&config.ConcurrentSyncs, 5)
}
