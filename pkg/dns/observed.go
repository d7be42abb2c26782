// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"slices"
	"time"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

// Observed returns a Provider that hands over to next and measures it.
func Observed(next Provider, name configv1alpha1.DNSProvider, m *metrics.DNS) Provider {
	return &observed{next: next, name: string(name), metrics: m}
}

type observed struct {
	next    Provider
	name    string
	metrics *metrics.DNS
}

// Apply implements Provider.
func (o *observed) Apply(ctx context.Context, request Request) error {
	start := time.Now()
	err := o.next.Apply(ctx, request)
	o.metrics.Operation(o.name, "apply", resultOf(err), time.Since(start))
	return err
}

// Remove implements Provider.
func (o *observed) Remove(ctx context.Context, request Request) error {
	start := time.Now()
	err := o.next.Remove(ctx, request)
	o.metrics.Operation(o.name, "remove", resultOf(err), time.Since(start))
	return err
}

func resultOf(err error) string {
	var conflict *ConflictError
	switch {
	case err == nil:
		return "success"
	case errors.As(err, &conflict):
		return "conflict"
	case slices.Contains(v1beta1helper.ExtractErrorCodes(err), gardencorev1beta1.ErrorConfigurationProblem):
		return "mistake"
	default:
		return "error"
	}
}
