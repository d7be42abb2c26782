// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package mock is the mock provider: it makes extension objects of type mock ready without infrastructure, so that Gardener
// itself can be tested fast (docs/usage/mock.md). Both programs run it, each for its classes, if their configuration enables it.
//
// One reconciler (pkg/reconciler) serves all kinds; controller.go has the table of what differs. As it is for tens of thousands of
// objects, an object costs two writes for its creation and one for its deletion. Behaviours make operations slow or let them fail.
package mock
