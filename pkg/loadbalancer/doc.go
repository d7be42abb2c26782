// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package loadbalancer decides which addresses and node ports the Services of type LoadBalancer in a seed have: an Allocator
// knows the well-known ones and has a Pool for all others. The controller for Services writes what it decides.
//
// Nothing is stored but in the status of the Services themselves, so that there is nothing that could differ from it. In
// memory is only which address is in use; after a start, that is read from the Services before anything is given out.
package loadbalancer
