// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package limits bounds what a request to a webhook may cost: its length, the time it takes, how many requests are served
// at a time, and the quantities in its objects. Callers of webhooks are not authenticated, and users write much of what is
// in the objects. The webhooks of a seed and those of the virtual garden share this package.
package limits
