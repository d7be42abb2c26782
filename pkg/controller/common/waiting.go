// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common

import (
	"errors"
	"time"

	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
)

// Waiting returns an error for an operation that goes on by itself: nothing is wrong, something is just not there yet. A
// watch is to wake the object; retryAfter is for when it does not.
//
// WithCheck puts the cause on lastOperation, whose state stays Processing, and takes an older lastError off: gardenlet takes
// that for a failure, and does not go on with what needs no more than a part of the operation.
func Waiting(cause error, retryAfter time.Duration) error {
	return &reconcilerutils.RequeueAfterError{Cause: &waiting{cause: cause}, RequeueAfter: retryAfter}
}

// IsWaiting tells whether an error is one of Waiting.
func IsWaiting(err error) bool {
	var w *waiting
	return errors.As(reconcilerutils.ReconcileErrCauseOrErr(err), &w)
}

type waiting struct {
	cause error
}

// Error implements error.
func (w *waiting) Error() string { return w.cause.Error() }

// Unwrap is for package errors.
func (w *waiting) Unwrap() error { return w.cause }
