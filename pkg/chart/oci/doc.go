// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package oci gets the charts of components from OCI registries. An instance has one Sources, which also hands out the
// charts in the program; what it returns is a chart.Source like any other.
//
// A chart that was pulled is kept in memory and on the disk. By digest the registry is never asked about it again, by tag
// once a minute. While a registry is down, the chart that is there keeps working, also after a restart.
//
// Nothing that a registry sends is trusted: content has to match its digest, and all sizes are bounded, before and after
// decompression.
package oci
