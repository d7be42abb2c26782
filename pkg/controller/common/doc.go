// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package common holds what several controllers put around the reconcilers of Gardener's extension library.
package common
