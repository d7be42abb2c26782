// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package operatingsystemconfig reconciles OperatingSystemConfigs of type local, the operating system of machines that are
// pods of the machine image (skaffold/images/machine). gardenlet has two for each worker pool:
//   - purpose provision: what a machine needs in order to fetch gardener-node-agent becomes a script, the machine's user
//     data, which the image's run-userdata.service executes;
//   - purpose reconcile: what gardener-node-agent brings about later. Nothing is translated; the status adds what these
//     machines need beyond that, and how an in-place update sets their version.
//
// Names and paths of an object never become a part of the script's code: they are checked, and quoted as well.
package operatingsystemconfig
