// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package ingress holds the controller that makes DNSRecords of type local for the hosts of the Ingresses in the namespaces
// of shoots, so that the names of components in a shoot's control plane resolve. It is added by gardenlet-extension only.
//
// A DNSRecord is an object of its own with its Ingress as owner, and the DNSRecord controller serves it like any other. A
// wildcard record for the seed's Ingress domain, which gardenlet makes, would not do: hosts may be in other domains.
//
// Nothing is polled. What a record depends on is watched: the Ingress, its namespace, the DNSRecords there, and the Services
// that an Ingress without an address of its own is reached by.
package ingress
