// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package service holds the controller for Services of type LoadBalancer. It writes the addresses into their status and fixes the
// node ports of the well-known ones, as package loadbalancer decides; kube-proxy does the rest. It is not meant for a cluster that
// has load balancers of its own.
//
// The seed instance serves all Services of its cluster. The garden instance serves the few that a garden needs, until a seed
// instance takes them over, and again when that one is gone. An annotation of the Service says whose it is, and every write holds
// only for the version in which the writer has read that.
//
// An unchanged Service costs no request, and nothing is polled: a Service that waits for an address is woken when one is
// freed. The Services come from a cache that has only part of each, so what is written are patches of single fields that
// hold for the version that was read.
package service
