// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock"
)

// addMock adds the controllers for objects of type mock, of all kinds.
func (s *seed) addMock() error {
	if !s.config.Mock.Enabled {
		return nil
	}
	return mock.AddToManager(s, mock.Options{
		Controller:                s.ControllerOptions(configv1alpha1.ControllerConfiguration{ConcurrentSyncs: s.config.Mock.ConcurrentSyncs}),
		Classes:                   s.classes,
		IgnoreOperationAnnotation: s.config.Controllers.IgnoreOperationAnnotation,
		Config:                    s.config.Mock,
		HostPath:                  s.config.Backup.HostPath,
	})
}
