// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

const (
	// RetryMistake is how long a mistake in an object itself is left alone. Correcting it makes an event anyway.
	RetryMistake = 10 * time.Minute
	// RetryMissing is how long something that is missing is left alone. It may come without an event on the object.
	RetryMissing = time.Minute
	// RetryFull is how long a disk that is full is left alone. Nobody tells when there is room.
	RetryFull = 30 * time.Second
	// RetryCluster is how long a missing Cluster is left alone. As gardenlet writes it before all else of a shoot, it is most
	// likely on its way to the cache.
	RetryCluster = 5 * time.Second
)

// Waiting returns an error for an operation that goes on by itself: nothing is wrong, something is just not there yet. A
// watch is to wake the object; retryAfter is for when it does not.
//
// After Options.Quiet the cause is put on lastOperation, whose state is Processing, and an older lastError is taken off: gardenlet takes that for
// a failure, and does not go on with what needs no more than a part of the operation.
func Waiting(cause error, retryAfter time.Duration) error {
	return &reconcilerutils.RequeueAfterError{Cause: waiting{cause}, RequeueAfter: retryAfter}
}

// IsWaiting reports whether an error is one of Waiting.
func IsWaiting(err error) bool {
	var w waiting
	return errors.As(reconcilerutils.ReconcileErrCauseOrErr(err), &w)
}

type waiting struct{ error }

// Unwrap is for package errors.
func (w waiting) Unwrap() error { return w.error }

// Later returns an error for an attempt that has done nothing as it is too early. Nothing is said about it: the status says
// already what the object waits for. The annotation of a reconcile that was asked for is taken off.
func Later(retryAfter time.Duration) error {
	return &reconcilerutils.RequeueAfterError{Cause: errLater, RequeueAfter: retryAfter}
}

var errLater = errors.New("it is too early")

// NoCluster returns an error for an object in the namespace of a shoot whose Cluster does not have what it should have,
// such as "a shoot". It is not the fault of a user, so it has no code.
func NoCluster(namespace, with string) error {
	return &reconcilerutils.RequeueAfterError{
		Cause:        fmt.Errorf("there is no Cluster %s with %s, which gardenlet writes", namespace, with),
		RequeueAfter: RetryCluster,
	}
}

// JoinSome joins texts, of which there may be many.
func JoinSome(texts []string, separator string) string {
	const shown = 5
	if more := len(texts) - shown; more > 0 {
		texts = append(slices.Clip(texts[:shown]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, separator)
}

// IsOfShoot reports whether an object is of class shoot, and so has a Cluster, be it now or soon.
func IsOfShoot(obj extensionsv1alpha1.Object) bool {
	return extensionsv1alpha1helper.GetExtensionClassOrDefault(obj.GetExtensionSpec().GetExtensionClass()) == extensionsv1alpha1.ExtensionClassShoot
}

// CheckCluster returns an error if an object of class shoot has no Cluster although it is in the namespace of a shoot: then
// that is on its way to the cache. In other namespaces there are such objects without one, as older Gardeners set no class.
// reader asks the API server, and only if there is no Cluster: through a cache that would be a watch on all Namespaces.
func CheckCluster(ctx context.Context, reader client.Reader, obj extensionsv1alpha1.Object, cluster *extensioncluster.Cluster) error {
	if cluster != nil || !IsOfShoot(obj) || obj.GetNamespace() == v1beta1constants.GardenNamespace {
		return nil
	}
	isShootNamespace, err := gardenerutils.IsShootNamespace(ctx, reader, obj.GetNamespace())
	if err != nil {
		return fmt.Errorf("reading namespace %s: %w", obj.GetNamespace(), err)
	}
	if isShootNamespace {
		return NoCluster(obj.GetNamespace(), "a shoot")
	}
	return nil
}

// ConfigurationProblem returns an error for something that only a user can put right: it has Gardener's code
// ERR_CONFIGURATION_PROBLEM, and reconcilers try again after retryAfter rather than with a short back-off.
func ConfigurationProblem(err error, retryAfter time.Duration) error {
	return WithCode(err, gardencorev1beta1.ErrorConfigurationProblem, retryAfter)
}

// WithCode returns an error with a code of Gardener, after which reconcilers try again after retryAfter.
func WithCode(err error, code gardencorev1beta1.ErrorCode, retryAfter time.Duration) error {
	return &reconcilerutils.RequeueAfterError{
		Cause:        v1beta1helper.NewErrorWithCodes(err, code),
		RequeueAfter: retryAfter,
	}
}

// ExplainRemote adds Gardener's code to an error of a cluster that a user has named if the credentials do not suffice there.
func ExplainRemote(err error) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return WithCode(err, gardencorev1beta1.ErrorInfraUnauthenticated, RetryMissing)
	case apierrors.IsForbidden(err):
		return WithCode(err, gardencorev1beta1.ErrorInfraUnauthorized, RetryMissing)
	}
	return err
}

// RetrySlowly has an error with a code of Gardener tried again after RetryMissing: what a user has to put right may come without
// an event on the object. Other errors are returned as they are.
func RetrySlowly(err error) error {
	if codes := v1beta1helper.ExtractErrorCodes(err); len(codes) > 0 {
		return WithCode(err, codes[0], RetryMissing)
	}
	return err
}
