// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package webhook is what the webhooks of an instance stand on: the server, its certificates, the registration in the
// seed and in all shoots. The mutators are in packages of their own below it; gardenlet-extension hands their webhooks to
// AddToManager.
//
// All replicas serve, the leader alone writes. It keeps a certificate authority in Secrets of the instance's namespace,
// by Gardener's secrets manager, and registers its certificates as the caBundle of every webhook. Replicas follow these
// Secrets by a watch and hold the serving certificate in memory, so that a new one serves at once, without a file or a
// restart. Package certificate tells how a rotation goes without a failing handshake.
//
// A webhook may be down, or not yet up, at any time. So unless a mutator asks for something else, its failure policy is
// Ignore: a seed must never wait for this extension.
package webhook
