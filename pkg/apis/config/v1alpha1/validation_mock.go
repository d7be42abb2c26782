// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// minMockRetry keeps an operation that always fails from being tried again without pause.
const minMockRetry = 10 * time.Millisecond

var (
	mockOperations = []MockOperation{
		MockOperationCreate, MockOperationReconcile, MockOperationDelete, MockOperationForceDelete, MockOperationMigrate, MockOperationRestore,
	}
	mockErrorCodes = []gardencorev1beta1.ErrorCode{
		gardencorev1beta1.ErrorInfraUnauthenticated, gardencorev1beta1.ErrorInfraUnauthorized, gardencorev1beta1.ErrorInfraQuotaExceeded,
		gardencorev1beta1.ErrorInfraRateLimitsExceeded, gardencorev1beta1.ErrorInfraDependencies,
		gardencorev1beta1.ErrorRetryableInfraDependencies, gardencorev1beta1.ErrorInfraResourcesDepleted,
		gardencorev1beta1.ErrorCleanupClusterResources, gardencorev1beta1.ErrorConfigurationProblem,
		gardencorev1beta1.ErrorRetryableConfigurationProblem, gardencorev1beta1.ErrorProblematicWebhook,
	}
)

func setMockDefaults(mock *MockConfiguration) {
	setPointerDefault(&mock.ConcurrentSyncs, 20)
	setPointerDefault(&mock.Nodes.KubeletPort, 10250)
	for i := range mock.Behaviours {
		setPointerDefault(&mock.Behaviours[i].RetryAfter, metav1.Duration{Duration: 5 * time.Second})
		setDefault(&mock.Behaviours[i].Error.Message, "failure injected by the configuration of the mock provider")
	}
}

func validateMock(mock *MockConfiguration, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	if *mock.ConcurrentSyncs <= 0 {
		allErrs = append(allErrs, field.Invalid(path.Child("concurrentSyncs"), *mock.ConcurrentSyncs, "must be greater than 0"))
	}
	for _, message := range validation.IsValidPortNum(*mock.Nodes.KubeletPort) {
		allErrs = append(allErrs, field.Invalid(path.Child("nodes", "kubeletPort"), *mock.Nodes.KubeletPort, message))
	}
	for i := range mock.Behaviours {
		allErrs = append(allErrs, validateMockBehaviour(&mock.Behaviours[i], path.Child("behaviours").Index(i))...)
	}
	return allErrs
}

func validateMockBehaviour(behaviour *MockBehaviour, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	if behaviour.Kind != "" && !extensionsv1alpha1.AllExtensionKinds.Has(behaviour.Kind) {
		allErrs = append(allErrs, field.NotSupported(path.Child("kind"), behaviour.Kind, sets.List(extensionsv1alpha1.AllExtensionKinds)))
	}
	if behaviour.Operation != "" && !slices.Contains(mockOperations, behaviour.Operation) {
		allErrs = append(allErrs, field.NotSupported(path.Child("operation"), behaviour.Operation, mockOperations))
	}
	for _, duration := range []struct {
		name string
		set  *metav1.Duration
		min  time.Duration
	}{
		{"delay", behaviour.Delay, 0}, {"jitter", behaviour.Jitter, 0}, {"retryAfter", behaviour.RetryAfter, minMockRetry},
	} {
		if duration.set != nil && duration.set.Duration < duration.min {
			allErrs = append(allErrs, field.Invalid(path.Child(duration.name), duration.set.Duration.String(), "must be at least "+duration.min.String()))
		}
	}
	if behaviour.Failures < 0 {
		allErrs = append(allErrs, field.Invalid(path.Child("failures"), behaviour.Failures, "must not be negative"))
	}
	if rate := behaviour.ErrorRate; math.IsNaN(rate) || rate < 0 || rate > 1 {
		allErrs = append(allErrs, field.Invalid(path.Child("errorRate"), behaviour.ErrorRate, "must be from 0 to 1"))
	}
	for i, code := range behaviour.Error.Codes {
		if !slices.Contains(mockErrorCodes, code) {
			allErrs = append(allErrs, field.NotSupported(path.Child("error", "codes").Index(i), code, mockErrorCodes))
		}
	}
	return allErrs
}
