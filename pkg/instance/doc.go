// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package instance makes a running instance of this extension out of its configuration: the manager with its caches,
// health, metrics, leader election and heartbeat, and a stop that lets a reconcile end. Both programs use it and add
// nothing but their lists of controllers, so that the two can't drift apart in how they run.
package instance
