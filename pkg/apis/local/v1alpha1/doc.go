// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the first version of what is inside of extension objects of type local: the providerConfig that
// a user writes and the providerStatus that the controllers write.
//
// +k8s:deepcopy-gen=package
// +groupName=local.provider.extensions.gardener.cloud
package v1alpha1
