// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package matchers says in the suites of test/integration and test/e2e what they expect of extension objects and of DNS,
// so that both mean the same by it.
package matchers

import (
	"fmt"

	"github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// HaveSucceeded matches an extension object that Gardener takes for ready: its generation is observed, no operation is
// asked for any more, there is no error, and the last operation is Succeeded.
func HaveSucceeded() gomegatypes.GomegaMatcher {
	return gomega.WithTransform(state, gomega.Equal(string(gardencorev1beta1.LastOperationStateSucceeded)))
}

// HaveConfigurationProblem matches an extension object whose last error is the user's to mend and holds the message.
func HaveConfigurationProblem(message string) gomegatypes.GomegaMatcher {
	return gomega.WithTransform(state, gomega.And(gomega.ContainSubstring(string(gardencorev1beta1.ErrorConfigurationProblem)), gomega.ContainSubstring(message)))
}

func state(obj extensionsv1alpha1.Object) string {
	status := obj.GetExtensionStatus()
	switch {
	case status.GetLastError() != nil:
		return fmt.Sprintf("error %v: %s", status.GetLastError().Codes, status.GetLastError().Description)
	case status.GetLastOperation() == nil:
		return "no last operation"
	case status.GetObservedGeneration() != obj.GetGeneration():
		return "generation not observed"
	case obj.GetAnnotations()[v1beta1constants.GardenerOperation] != "":
		return "operation still asked for"
	}
	return string(status.GetLastOperation().State)
}
