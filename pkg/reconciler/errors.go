// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"errors"
	"fmt"
	"time"

	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
)

// Waiting returns an error for an operation that goes on by itself: nothing is wrong, something is just not there yet. A
// watch is to wake the object; retryAfter is for when it does not.
//
// After Options.Quiet the cause is put on lastOperation, whose state is Processing, and an older lastError is taken off: gardenlet takes that for
// a failure, and does not go on with what needs no more than a part of the operation.
func Waiting(cause error, retryAfter time.Duration) error {
	return &reconcilerutils.RequeueAfterError{Cause: &waiting{cause: cause}, RequeueAfter: retryAfter}
}

// IsWaiting reports whether an error is one of Waiting.
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

// Later returns an error for an attempt that has done nothing as it is too early. Nothing is said about it: the status says
// already what the object waits for. The annotation of a reconcile that was asked for is taken off.
func Later(retryAfter time.Duration) error { return &later{retryAfter: retryAfter} }

type later struct {
	retryAfter time.Duration
}

// Error implements error.
func (l *later) Error() string {
	return fmt.Sprintf("nothing to do before %s have passed", l.retryAfter)
}
