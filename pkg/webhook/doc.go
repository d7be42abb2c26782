// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package webhook serves webhooks, creates their certificates, and registers them: those of the seed instance in the seed and
// in all shoots, those of the admission in the virtual garden. The mutators are in packages below it, the validators in
// package admission.
//
// All replicas serve, the leader alone writes. It keeps a certificate authority in Secrets and registers it as the caBundle
// of every webhook. Replicas follow these Secrets by a watch and hold the serving certificate in memory, so a new one serves
// at once. Package certificate explains the rotation.
//
// A webhook may be down, or not yet up, at any time. So the webhooks of the seed instance have failure policy Ignore, unless
// CheckFailurePolicies accepts Fail: a seed must never wait for this extension.
package webhook
