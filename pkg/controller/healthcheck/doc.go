// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package healthcheck holds the controllers that write the health conditions of a shoot's ControlPlane, Network and
// Worker, from which gardenlet makes conditions of the Shoot. It is added by gardenlet-extension only.
//
// What is checked for which condition is a table, in kinds.go; one reconciler serves all of it. Gardener's library for
// health checks looks at everything twice a minute. Here, what a check reads is watched, and a change that alters the
// check's outcome is what makes it run; the resync only covers what nobody tells, such as a shoot's API server that is
// gone. A condition is written when it changes and not before: gardenlet sees by the heartbeat Lease of the instance, not
// by a condition's lastUpdateTime, whether conditions are still looked after.
package healthcheck
