// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package oci gets the charts of components from OCI registries. An instance has one Puller, or one Sources, which also
// hands out the charts in the program; what they return is a chart.Source like any other.
//
// A chart that was pulled is kept in memory and on the disk, and most calls ask neither a registry nor the API server.
// What is kept may still be used only by who may pull it: the Puller remembers which credentials the registry accepted,
// asks again every now and then, and before it hands out a chart to other credentials. While a registry is down, what it
// allowed before keeps working, also after a restart.
//
// Nothing that a registry sends is trusted: content is what its digest says or it is refused, and all sizes are bounded,
// before and after decompression.
package oci
