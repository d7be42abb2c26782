// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateCloudController checks a defaulted configuration.
func ValidateCloudController(config *CloudControllerConfiguration) field.ErrorList {
	allErrs := append(validateLogging(config.Logging), validateServer(config.Server.BindAddress, config.Server.Port, field.NewPath("server"))...)

	for _, msg := range validation.IsDNS1123Label(config.Seed.Namespace) {
		allErrs = append(allErrs, field.Invalid(field.NewPath("seed", "namespace"), config.Seed.Namespace, msg))
	}
	allErrs = append(allErrs, validateCIDRs(config.Seed.AllowedCIDRs, field.NewPath("seed", "allowedCIDRs"))...)
	if config.Shoot.Kubeconfig == "" {
		allErrs = append(allErrs, field.Required(field.NewPath("shoot", "kubeconfig"), "how else would the shoot be found"))
	}
	if *config.ConcurrentSyncs <= 0 {
		allErrs = append(allErrs, field.Invalid(field.NewPath("concurrentSyncs"), *config.ConcurrentSyncs, "must be greater than 0"))
	}
	return allErrs
}

// SetCloudControllerDefaults fills in what the user left out.
func SetCloudControllerDefaults(config *CloudControllerConfiguration) {
	setLoggingDefaults(&config.Logging)
	if config.Server.Port == 0 {
		config.Server.Port = 10258
	}
	setPointerDefault(&config.ConcurrentSyncs, 5)
}
