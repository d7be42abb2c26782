// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the first version of the ExtensionConfiguration: its types, defaults, validation and decoding.
// Both programs read it; the chart writes it.
//
// +k8s:deepcopy-gen=package
// +groupName=config.local.provider.extensions.gardener.cloud
package v1alpha1
