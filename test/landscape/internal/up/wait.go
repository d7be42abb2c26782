// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

func (l Landscape) wait(ctx context.Context, progress step.Progress) (string, error) {
	return "not yet", nil
}
