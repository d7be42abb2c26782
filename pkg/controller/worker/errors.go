// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gardener/gardener/extensions/pkg/controller/worker/helper"
	"github.com/gardener/gardener/extensions/pkg/util"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// waitMax is how long something may be awaited until that is an error; the generic actuator's.
	waitMax = 5 * time.Minute
	// retryWait is when a Worker that waits is looked at again, should no watch wake it before.
	retryWait = time.Minute
	// retrySecret is for what no watch tells: whether machine-controller-manager has acquired or released the credentials.
	// Secrets are not watched, as there are many more in a seed than these.
	retrySecret = 2 * time.Second
	// settledAfter is when the cache has all that was deployed.
	settledAfter = 10 * time.Second
	// retryConflict is for the cache to catch up.
	retryConflict = time.Second
)

var (
	quotaExceeded = regexp.MustCompile("(?i)exceeded quota")
	exhausted     = regexp.MustCompile(`(?i)code = \[ResourceExhausted\]`)
	invalid       = regexp.MustCompile(`(?i)code = \[InvalidArgument\]`)
	denied        = regexp.MustCompile(`(?i)code = \[(Unauthenticated|PermissionDenied)\]`)
)

// errorCodes returns the codes of Gardener for what machine-controller-manager says of a machine. The machine driver
// returns status codes, which are in these messages as "code = [ResourceExhausted]".
func errorCodes(err error) []gardencorev1beta1.ErrorCode {
	return util.DetermineErrorCodes(err, map[gardencorev1beta1.ErrorCode]func(string) bool{
		gardencorev1beta1.ErrorInfraQuotaExceeded: quotaExceeded.MatchString,
		gardencorev1beta1.ErrorInfraResourcesDepleted: func(message string) bool {
			return exhausted.MatchString(message) && !quotaExceeded.MatchString(message)
		},
		gardencorev1beta1.ErrorConfigurationProblem: invalid.MatchString,
		gardencorev1beta1.ErrorInfraUnauthorized:    denied.MatchString,
	})
}

// failedMachines returns an error with codes if machines have failed, always with the same text for the same failures:
// the library's report is in the order of a map, so it is asked for one description at a time.
func failedMachines(status machinev1alpha1.MachineDeploymentStatus) error {
	byDescription := map[string][]*machinev1alpha1.MachineSummary{}
	for _, machine := range status.FailedMachines {
		description := machine.LastOperation.Description
		byDescription[description] = append(byDescription[description], machine)
	}
	var errs []error
	for _, description := range slices.Sorted(maps.Keys(byDescription)) {
		errs = append(errs, helper.ReportFailedMachines(machinev1alpha1.MachineDeploymentStatus{FailedMachines: byDescription[description]}))
	}
	if len(errs) == 0 {
		return nil
	}
	return failure(errors.Join(errs...))
}

// failure is for what will not go on without somebody's help: it is an error at once. A watch wakes the Worker if it does.
func failure(cause error) error {
	return &reconcilerutils.RequeueAfterError{Cause: v1beta1helper.NewErrorWithCodes(cause, errorCodes(cause)...), RequeueAfter: retryWait}
}

// waitSince is for what goes on by itself, until it has taken waitMax since start.
func (a *actuator) waitSince(start time.Time, cause error, retryAfter time.Duration) error {
	if taken := a.Clock.Since(start); taken > waitMax {
		return failure(fmt.Errorf("this takes more than %s: %w", waitMax, cause))
	}
	return reconciler.Waiting(cause, retryAfter)
}

// transient has what another client was faster with tried again soon, without calling it an error.
func transient(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconciler.Waiting(fmt.Errorf("trying again, as something has changed meanwhile: %w", err), retryConflict)
	}
	return err
}
