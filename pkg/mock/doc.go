// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package mock is the mock provider: it makes the extension objects of type mock ready without any infrastructure, so that
// Gardener itself can be tried and tested, fast and at no cost (docs/usage/mock.md). Both programs run
// it, each for its classes, if their configuration says so.
//
// There is one reconciler for all kinds (pkg/reconciler); what differs is the table in kinds.go. What it spends on an object is
// two writes for a creation and one for a deletion, as tens of thousands of objects are what it is for. Behaviours let
// operations take time or fail.
package mock
