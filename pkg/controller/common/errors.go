// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"
)

const (
	// RetryMistake is how long a mistake in an object itself is left alone. Correcting it makes an event anyway.
	RetryMistake = 10 * time.Minute
	// RetryMissing is how long something that is missing is left alone. It may come without an event on the object.
	RetryMissing = time.Minute
	// RetryCluster is how long a missing Cluster is left alone. As gardenlet writes it before all else of a shoot, it is most
	// likely on its way to the cache.
	RetryCluster = 5 * time.Second
)

// NoCluster returns an error for an object in the namespace of a shoot whose Cluster does not have what it should have,
// such as "a shoot". It is not the fault of a user, so it has no code.
func NoCluster(namespace, with string) error {
	return &reconcilerutils.RequeueAfterError{
		Cause:        fmt.Errorf("there is no Cluster %s with %s, which gardenlet writes", namespace, with),
		RequeueAfter: RetryCluster,
	}
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

// CheckSecret returns a configuration problem if the Secret that an extension object's spec.secretRef names is missing.
func CheckSecret(ctx context.Context, reader client.Reader, ref corev1.SecretReference) error {
	if ref.Name == "" || ref.Namespace == "" {
		return ConfigurationProblem(errors.New("spec.secretRef is incomplete: set name and namespace of a Secret"), RetryMistake)
	}

	_, err := kubernetesutils.GetSecretMetadataByReference(ctx, reader, &ref)
	if apierrors.IsNotFound(err) {
		return ConfigurationProblem(fmt.Errorf("the Secret %s/%s which spec.secretRef names does not exist: create it", ref.Namespace, ref.Name), RetryMissing)
	}
	if err != nil {
		return fmt.Errorf("reading the Secret %s/%s which spec.secretRef names: %w", ref.Namespace, ref.Name, err)
	}
	return nil
}
