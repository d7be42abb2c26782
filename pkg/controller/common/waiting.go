// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common

import (
	"time"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Waiting returns an error for an operation that goes on by itself, see reconciler.Waiting.
func Waiting(cause error, retryAfter time.Duration) error {
	return reconciler.Waiting(cause, retryAfter)
}

// IsWaiting reports whether an error is one of Waiting.
func IsWaiting(err error) bool { return reconciler.IsWaiting(err) }
