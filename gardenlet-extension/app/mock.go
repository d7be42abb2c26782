// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes/kubelet"
)

// hasMockNodes reports whether Workers of type mock get fake Nodes.
func (s *seed) hasMockNodes() bool {
	return s.config.Mock.Enabled && !s.config.Mock.Nodes.Disabled
}

// addMock adds the controllers for objects of type mock, of all kinds, and what keeps the fake Nodes of shoots alive.
func (s *seed) addMock() error {
	if !s.config.Mock.Enabled {
		return nil
	}
	options := mock.Options{
		Shared:   s.shared(configv1alpha1.ControllerConfiguration{ConcurrentSyncs: s.config.Mock.ConcurrentSyncs}),
		Config:   s.config.Mock,
		HostPath: s.config.Backup.HostPath,
	}
	if s.hasMockNodes() {
		fleet, err := s.addMockNodes()
		if err != nil {
			return fmt.Errorf("adding the fake Nodes: %w", err)
		}
		options.Nodes = fleet
	}
	return mock.AddToManager(s, options)
}

// addMockNodes adds the fake Nodes, and what answers for their kubelets: kube-apiservers of shoots call it by the Service of
// this instance.
func (s *seed) addMockNodes() (*nodes.Fleet, error) {
	port := *s.config.Mock.Nodes.KubeletPort
	fleet, err := nodes.New(nodes.Options{
		Connect:         nodes.FromSecrets(s.GetClient()),
		Kubelet:         nodes.KubeletEndpoint{Host: Name + "." + s.opts.Namespace + ".svc", Port: int32(port)}, // #nosec G115 -- validated
		GPUResourceName: s.config.Machines.GPUResourceName,
		Log:             s.GetLogger().WithName("mock-nodes"),
	})
	if err != nil {
		return nil, err
	}
	server, err := kubelet.New(fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, err
	}
	if err := s.Add(server); err != nil {
		return nil, err
	}
	return fleet, s.Add(fleet)
}
