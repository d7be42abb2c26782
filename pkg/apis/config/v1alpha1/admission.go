// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateAdmission checks a defaulted configuration.
func ValidateAdmission(config *AdmissionConfiguration) field.ErrorList {
	allErrs := append(validateLogging(config.Logging), validateServers(&config.Server, field.NewPath("server"))...)

	path := field.NewPath("webhooks")
	for _, msg := range validation.IsValidPortNum(*config.Webhooks.ServicePort) {
		allErrs = append(allErrs, field.Invalid(path.Child("servicePort"), *config.Webhooks.ServicePort, msg))
	}
	for name, namespace := range map[string]string{"certificateNamespace": config.Webhooks.CertificateNamespace, "ownerNamespace": config.Webhooks.OwnerNamespace} {
		for _, msg := range validation.IsDNS1123Label(namespace) {
			allErrs = append(allErrs, field.Invalid(path.Child(name), namespace, msg))
		}
	}
	return append(allErrs, validateCIDRs(config.Machines.NodeCIDRs, field.NewPath("machines", "nodeCIDRs"))...)
}

// SetAdmissionDefaults fills in what the user left out.
func SetAdmissionDefaults(config *AdmissionConfiguration) {
	setConnectionDefaults(&config.ClientConnection, 100, 200)
	setLeaderElectionDefaults(&config.LeaderElection)
	setLoggingDefaults(&config.Logging)
	setServerDefaults(&config.Server)
	setPointerDefault(&config.Webhooks.ServicePort, 443)
}
