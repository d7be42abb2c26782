// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package infrastructure holds the controller for Infrastructures of type local: what the machines of a shoot need before
// there are any. That is a namespace if they are in another cluster than the seed, NetworkPolicies that let them reach
// what machines reach and be reached by what reaches machines, and Calico's IPPools, so that their addresses are of the
// shoot's node range: else control plane components would go past the VPN, as Gardener's docs on provider-local tell.
package infrastructure
