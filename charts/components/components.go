// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package components holds the charts of what the instances deploy themselves, as they are in its folders. Packages load
// them with chart.Embedded(components.FS, <folder>).
package components

import "embed"

// CoreDNS is the folder of the chart of the CoreDNS that serves the DNSRecords.
const CoreDNS = "coredns"

// LocalPathProvisioner is the folder of the chart of the volumes of shoots.
const LocalPathProvisioner = "local-path-provisioner"

// CloudController is the folder of the chart of the controller for the LoadBalancer Services of shoots.
const CloudController = "cloud-controller"

// FS holds one chart in each folder.
//
//go:embed all:coredns all:local-path-provisioner all:cloud-controller
var FS embed.FS
