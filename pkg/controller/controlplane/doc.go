// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package controlplane holds the controller for ControlPlanes of type local, which gardenlet-extension adds for class
// shoot. For a shoot with workers (gardenlet makes no ControlPlane for any other) it deploys, each as a ManagedResource in
// the shoot's namespace:
//   - extension-controlplane-shoot-webhooks, the webhooks in the shoot. Nothing else is deployed before the shoot has them;
//   - extension-controlplane-seed, the cloud-controller, if it is switched on;
//   - extension-controlplane-shoot, local-path-provisioner with its StorageClass and what cloud-controller may do in the
//     shoot.
//
// The names are those of Gardener's generic actuator, so that health checks and people find what they expect. Besides,
// there are a certificate authority and what hangs on it, kept by Gardener's secrets manager (see secrets.go).
//
// The generic actuator itself is not used. It writes ManagedResources that are not compressed, renders anew in every
// reconcile, and polls the ManagedResources it waits for, which holds a worker for minutes. A client wrapped around could
// compress on the way, but nothing of the rest: it would have to recognise these Secrets, give them the hash of other
// bytes as a name, keep the references in step, and there would still be the values provider with its five methods, the
// renderer factory and the charts in Gardener's format to write. The library's Actuator interface takes five methods in
// all, and those here are a few lines each since packages chart and resources do the work.
//
// No worker is held: what has to wait is left alone, and a watch on the ManagedResources wakes it.
package controlplane
