// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// SetCloudControllerDefaults fills in what the user left out.
func SetCloudControllerDefaults(config *CloudControllerConfiguration) {
	setDefault(&config.LogLevel, "info")
	setDefault(&config.LogFormat, "json")
	if config.Server.Port == 0 {
		config.Server.Port = 10258
	}
	setPointerDefault(&config.ConcurrentSyncs, 5)
}
