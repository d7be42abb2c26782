// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package config holds how an instance of this extension is configured: one versioned file of kind
// ExtensionConfiguration, given to both programs by --config. The types are in the version's own package (v1alpha1);
// there is no internal version as there is nothing to convert yet.
package config
