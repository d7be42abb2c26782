// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package admission serves the admission webhooks of the virtual garden: operator-extension admission adds it to a manager.
// The validators and mutators are in packages of their own below it.
//
// Two clusters are at work. Objects and registrations are in the virtual garden, to which the manager belongs; the program,
// its Lease and its certificates are in the garden runtime cluster, whose Service the virtual garden's API server calls.
//
// The webhooks fail closed: without them, what nobody can make a machine of would get in. They are narrow instead. Each is
// called for one kind only, and only for objects that Gardener has labelled as those of type local.
//
// Package pkg/webhook serves and registers them. The certificates have a namespace of their own, so that the program may not
// read the Secrets of the namespace in which it runs: that is the one of the Garden.
package admission
