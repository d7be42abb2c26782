// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

// NewMetrics returns the metrics of the components of an instance. They are served together with those of
// controller-runtime.
func (i *Instance) NewMetrics() (*metrics.Set, error) {
	return metrics.New(ctrlmetrics.Registry)
}
