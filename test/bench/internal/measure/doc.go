// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package measure takes what a process costs: its CPU time and memory from /proc, and its requests from the audit log of
// the API server, which has every one of them.
package measure
