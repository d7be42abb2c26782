// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import "context"

// Status prints what runs.
func (l Landscape) Status(ctx context.Context) error { return nil }
