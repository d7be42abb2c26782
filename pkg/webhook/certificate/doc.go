// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package certificate makes and rotates the certificates of a webhook server and hands the current one to every replica.
// Package webhook uses it. Secrets and when to renew them are the business of Gardener's secrets manager; this package
// adds the order of the steps, so that no client of the server ever meets a certificate that it does not trust.
//
// Clients (the API servers of the seed and of all shoots) learn whom to trust from the caBundle in their webhook
// configuration. It takes milliseconds in the seed, minutes in a shoot, and longer if a shoot's control plane is down. So
// a rotation has three phases, each at least settle long:
//
//  1. There is a new CA. Old and new CA are published, the server's certificate is still that of the old CA.
//  2. All have had time to learn of the new CA. The server gets a certificate of the new CA, the old CA stays published
//     for replicas that have not seen it yet.
//  3. The old CA is no longer published, and what belongs to it is deleted.
//
// Where a rotation stands is in the Secrets alone, so any replica can go on with it. Phase 2 begins when the new CA has
// been published for settle (the annotation AnnotationPublishedAt of its Secret), phase 3 when the server's certificate
// is that of the new CA and has been served for settle. Whatever is lost in between, be it a Secret that somebody deletes
// or the leader for a month, ends in the same place: what the Secrets still tell stays published, and a server
// certificate is kept as long as what is published vouches for it.
package certificate
