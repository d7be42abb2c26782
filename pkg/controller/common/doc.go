// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package common holds what several controllers need besides the reconciler that they share (package reconciler): errors that
// tell a user what to put right, Secrets that are held, objects that are written only if they differ, and what wakes the
// objects that wait for a ManagedResource.
package common
