// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/bastion"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/infrastructure"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/operatingsystemconfig"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/worker"
)

// The controllers for all that makes machines.

func (s *seed) addBastions() error {
	return bastion.AddToManager(s, bastion.Options{
		Controller:                s.ControllerOptions(s.config.Controllers.Bastion),
		Classes:                   s.classes,
		IgnoreOperationAnnotation: s.config.Controllers.IgnoreOperationAnnotation,
		Clusters:                  s.clusters,
		ShootClusters:             s.shootClusters,
		WithoutNodePorts:          !s.config.Controllers.Service.Disabled,
	})
}

func (s *seed) addInfrastructures() error {
	return infrastructure.AddToManager(s, infrastructure.Options{
		Controller:                s.ControllerOptions(s.config.Controllers.Infrastructure),
		Classes:                   s.classes,
		IgnoreOperationAnnotation: s.config.Controllers.IgnoreOperationAnnotation,
		Clusters:                  s.clusters,
		ShootClusters:             s.shootClusters,
		EgressCIDRs:               s.config.Machines.EgressCIDRs,
		NodeCIDRs:                 s.config.Machines.NodeCIDRs,
		LoadBalancers:             s.config.LoadBalancers,
		CoreDNSNamespace:          s.config.DNS.CoreDNS.Namespace,
	})
}

func (s *seed) addOperatingSystemConfigs() error {
	return operatingsystemconfig.AddToManager(s, operatingsystemconfig.Options{
		Controller:                s.ControllerOptions(s.config.Controllers.OperatingSystemConfig),
		Classes:                   s.classes,
		IgnoreOperationAnnotation: s.config.Controllers.IgnoreOperationAnnotation,
		Clusters:                  s.shootClusters,
	})
}

func (s *seed) addWorkers() error {
	return worker.AddToManager(s, worker.Options{
		Controller:                s.ControllerOptions(s.config.Controllers.Worker),
		Classes:                   s.classes,
		IgnoreOperationAnnotation: s.config.Controllers.IgnoreOperationAnnotation,
		Sizing:                    s.config.Machines.Sizing,
		AllowedSizings:            s.config.Machines.AllowedSizings,
		GPUResourceName:           s.config.Machines.GPUResourceName,
		BackupHostPath:            s.config.Backup.HostPath,
		Clusters:                  s.clusters,
	})
}
