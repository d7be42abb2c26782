// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
)

// brackets are what machine-controller-manager finds code and message by: there must be no others in a message.
var brackets = strings.NewReplacer("[", "(", "]", ")")

// messageMax is the size in bytes of the longest message: it becomes part of the Machine's status, and pods in the cluster of a
// user may say anything.
const messageMax = 2 << 10

// newStatus returns an error with a code.
func newStatus(code codes.Code, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	return status.New(code, brackets.Replace(strings.ToValidUTF8(message[:min(len(message), messageMax)], "")))
}

// asStatus gives a code to an error that happened while doing something, unless it has one. An error that comes from no
// API server's answer is one of the way to it. Nil stays nil.
func asStatus(ctx context.Context, err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	// The context knows better why a request has ended than the request.
	cause := context.Cause(ctx)
	if known := (*status.Status)(nil); errors.As(err, &known) || errors.As(cause, &known) {
		return known
	}
	if cause != nil {
		err = cause
	}
	return newStatus(codeOf(err), "%s: %v", fmt.Sprintf(doing, args...), err)
}

func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case len(v1beta1helper.ExtractErrorCodes(err)) > 0:
		// The package cluster says so of credentials that are missing or cannot be used.
		return codes.InvalidArgument
	}
	if answer := apierrors.APIStatus(nil); !errors.As(err, &answer) {
		return codes.Unavailable
	}
	switch {
	case apierrors.IsNotFound(err):
		return codes.NotFound
	case apierrors.IsAlreadyExists(err):
		return codes.AlreadyExists
	case apierrors.IsConflict(err):
		return codes.Aborted
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return codes.InvalidArgument
	case apierrors.IsUnauthorized(err):
		return codes.Unauthenticated
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return codes.FailedPrecondition
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		// The API server has no reason of its own for a ResourceQuota that left no room, only the text.
		return codes.ResourceExhausted
	case apierrors.IsForbidden(err):
		return codes.PermissionDenied
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err),
		apierrors.IsInternalError(err), apierrors.IsUnexpectedServerError(err):
		return codes.Unavailable
	default:
		return codes.Unknown
	}
}
