// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupbucket"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupentry"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/bastion"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/controlplane"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/dnsrecord"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/extension"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/healthcheck"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/infrastructure"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/ingress"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/operatingsystemconfig"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/worker"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/machinecontrollermanager"
)

// addControllers is the list of the controllers that this instance runs.
func (s *seed) addControllers(shootWebhooks controlplane.ShootWebhooks) error {
	renderer, err := instance.NewRenderer(s.GetConfig())
	if err != nil {
		return err
	}
	renderer = renderer.WithMetrics(s.metrics.Charts)

	controllers := s.config.Controllers
	return errors.Join(
		instance.AddController("BackupBucket", controllers.BackupBucket, s.addBackupBuckets),
		instance.AddController("BackupEntry", controllers.BackupEntry, s.addBackupEntries),
		instance.AddController("Bastion", controllers.Bastion, s.addBastions),
		instance.AddController("ControlPlane", controllers.ControlPlane, func() error { return s.addControlPlanes(renderer, shootWebhooks) }),
		instance.AddController("DNSRecord", controllers.DNSRecord, func() error { return s.addDNSRecords(renderer) }),
		instance.AddController("Extension", controllers.Extension, s.addExtensions),
		instance.AddController("health check", controllers.HealthCheck.ControllerConfiguration, func() error {
			return s.addHealthChecks(shootWebhooks != nil)
		}),
		instance.AddController("Infrastructure", controllers.Infrastructure, s.addInfrastructures),
		instance.AddController("Ingress", controllers.Ingress, s.addIngresses),
		instance.AddController("OperatingSystemConfig", controllers.OperatingSystemConfig, s.addOperatingSystemConfigs),
		instance.AddController("Role", configv1alpha1.ControllerConfiguration{Disabled: s.config.Webhooks.MachineControllerManager.Disabled}, func() error {
			return machinecontrollermanager.AddToManager(s, s.ControllerOptions(configv1alpha1.ControllerConfiguration{ConcurrentSyncs: new(5)}))
		}),
		instance.AddController("Service", controllers.Service, s.addServices),
		instance.AddController("Worker", controllers.Worker, s.addWorkers),
		s.addMock(),
	)
}

// shared returns the options that the controllers for extension objects have in common.
func (s *seed) shared(config configv1alpha1.ControllerConfiguration) reconciler.Shared {
	return reconciler.Shared{
		Controller: s.ControllerOptions(config), Classes: s.classes, ShootClusters: s.shootClusters,
		IgnoreOperationAnnotation: s.config.Controllers.IgnoreOperationAnnotation,
	}
}

func (s *seed) addBackupBuckets() error {
	return backupbucket.AddToManager(s, backupbucket.Options{
		Shared:   s.shared(s.config.Controllers.BackupBucket),
		Store:    s.store,
		HostPath: s.config.Backup.HostPath,
	})
}

func (s *seed) addBackupEntries() error {
	return backupentry.AddToManager(s, backupentry.Options{
		Shared:   s.shared(s.config.Controllers.BackupEntry),
		Store:    s.store,
		HostPath: s.config.Backup.HostPath,
	})
}

func (s *seed) addControlPlanes(renderer *chart.Renderer, shootWebhooks controlplane.ShootWebhooks) error {
	config := s.config.ControlPlane
	return controlplane.AddToManager(s, controlplane.Options{
		Shared:    s.shared(s.config.Controllers.ControlPlane),
		Resources: s.writer,
		Renderer:  renderer,
		Charts: controlplane.Charts{
			LocalPathProvisioner: s.charts.For(components.LocalPathProvisioner),
			CloudController:      s.charts.For(components.CloudController),
		},
		Images:                controlplane.Images{LocalPathProvisioner: config.LocalPathProvisioner.Image, CloudController: config.CloudController.Image},
		DeployCloudController: *config.CloudController.Deploy,
		Clusters:              s.clusters,
		AllowedCIDRs:          s.config.Machines.Remote.AllowedCIDRs,
		VPA:                   instance.HasVPA(s.GetRESTMapper()),
		ShootWebhooks:         shootWebhooks,
	})
}

func (s *seed) addDNSRecords(renderer *chart.Renderer) error {
	providers, err := dnsrecord.NewProviders(s, coredns.SetupOptions{
		DNS:            s.config.DNS,
		Place:          place,
		ServiceAccount: types.NamespacedName{Namespace: s.opts.Namespace, Name: Name},
		Classes:        s.classes,
		Renderer:       renderer,
		Writer:         s.writer,
		Chart:          s.charts.For(components.CoreDNS),
		VPA:            instance.HasVPA(s.GetRESTMapper()),
		Metrics:        s.metrics.DNS,
	})
	if err != nil {
		return err
	}
	return dnsrecord.AddToManager(s, dnsrecord.Options{
		Shared:          s.shared(s.config.Controllers.DNSRecord),
		Providers:       providers,
		DefaultProvider: s.config.DNS.Provider,
		DefaultTTL:      *s.config.DNS.DefaultTTL,
		ReservedDomains: s.config.DNS.ReservedDomains,
	})
}

func (s *seed) addExtensions() error {
	return extension.AddToManager(s, extension.Options{
		Shared:          s.shared(s.config.Controllers.Extension),
		ForceDeleteTest: s.config.Controllers.ForceDeleteTest,
		Resources:       s.writer,
	})
}

func (s *seed) addHealthChecks(shootWebhooks bool) error {
	config := s.config.Controllers.HealthCheck
	return healthcheck.AddToManager(s, healthcheck.Options{
		Shared:               s.shared(config.ControllerConfiguration),
		SyncPeriod:           config.SyncPeriod.Duration,
		WithoutShootWebhooks: !shootWebhooks,
	})
}

func (s *seed) addIngresses() error {
	var gateways []client.ObjectKey
	for _, gateway := range s.config.Ingress.Gateways {
		gateways = append(gateways, client.ObjectKey(gateway))
	}
	return ingress.AddToManager(s, ingress.Options{
		Controller: s.ControllerOptions(s.config.Controllers.Ingress),
		Gateways:   gateways,
	})
}

func (s *seed) addBastions() error {
	return bastion.AddToManager(s, bastion.Options{
		Shared:           s.shared(s.config.Controllers.Bastion),
		Clusters:         s.clusters,
		WithoutNodePorts: !s.config.Controllers.Service.Disabled,
	})
}

func (s *seed) addInfrastructures() error {
	return infrastructure.AddToManager(s, infrastructure.Options{
		Shared:           s.shared(s.config.Controllers.Infrastructure),
		Clusters:         s.clusters,
		EgressCIDRs:      s.config.Machines.EgressCIDRs,
		NodeCIDRs:        s.config.Machines.NodeCIDRs,
		AllowedCIDRs:     s.config.Machines.Remote.AllowedCIDRs,
		LoadBalancers:    s.config.LoadBalancers,
		CoreDNSNamespace: s.config.DNS.CoreDNS.Namespace,
	})
}

func (s *seed) addOperatingSystemConfigs() error {
	return operatingsystemconfig.AddToManager(s, s.shared(s.config.Controllers.OperatingSystemConfig))
}

func (s *seed) addWorkers() error {
	return worker.AddToManager(s, worker.Options{
		Shared:          s.shared(s.config.Controllers.Worker),
		Sizing:          s.config.Machines.Sizing,
		AllowedSizings:  s.config.Machines.AllowedSizings,
		GPUResourceName: s.config.Machines.GPUResourceName,
		BackupHostPath:  s.config.Backup.HostPath,
		Clusters:        s.clusters,
	})
}
