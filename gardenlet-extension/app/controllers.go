// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupbucket"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupentry"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/controlplane"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/dnsrecord"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/extension"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/healthcheck"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
)

// addControllers is the list of the controllers that this instance runs.
func (s *seed) addControllers(shootWebhooks controlplane.ShootWebhooks) error {
	var (
		config      = s.config
		controllers = config.Controllers
		ignore      = controllers.IgnoreOperationAnnotation
	)
	renderer, err := instance.NewRenderer(s.GetConfig())
	if err != nil {
		return err
	}

	return errors.Join(
		instance.AddController("BackupBucket", controllers.BackupBucket, func() error {
			return backupbucket.AddToManager(s, backupbucket.Options{
				Controller:                s.ControllerOptions(controllers.BackupBucket),
				Classes:                   s.classes,
				IgnoreOperationAnnotation: ignore,
				Store:                     s.store,
				HostPath:                  config.Backup.HostPath,
			})
		}),
		instance.AddController("BackupEntry", controllers.BackupEntry, func() error {
			return backupentry.AddToManager(s, backupentry.Options{
				Controller:                s.ControllerOptions(controllers.BackupEntry),
				Classes:                   s.classes,
				IgnoreOperationAnnotation: ignore,
				Store:                     s.store,
				HostPath:                  config.Backup.HostPath,
			})
		}),
		instance.AddController("ControlPlane", controllers.ControlPlane, func() error {
			return controlplane.AddToManager(s, controlplane.Options{
				Controller:                s.ControllerOptions(controllers.ControlPlane),
				Classes:                   s.classes,
				IgnoreOperationAnnotation: ignore,
				Resources:                 s.writer,
				Renderer:                  renderer,
				Charts: controlplane.Charts{
					LocalPathProvisioner: s.charts.For(components.LocalPathProvisioner),
					CloudController:      s.charts.For(components.CloudController),
				},
				Images: controlplane.Images{
					LocalPathProvisioner: config.ControlPlane.LocalPathProvisioner.Image,
					CloudController:      config.ControlPlane.CloudController.Image,
				},
				DeployCloudController: *config.ControlPlane.CloudController.Deploy,
				VPA:                   instance.HasVPA(s.GetRESTMapper()),
				ShootWebhooks:         shootWebhooks,
			})
		}),
		instance.AddController("DNSRecord", controllers.DNSRecord, func() error {
			provider, err := coredns.AddToManager(s, coredns.SetupOptions{
				DNS:            config.DNS,
				Place:          place,
				ServiceAccount: types.NamespacedName{Namespace: s.opts.Namespace, Name: Name},
				Classes:        s.classes,
				Renderer:       renderer,
				Writer:         s.writer,
				Chart:          s.charts.For(components.CoreDNS),
				VPA:            instance.HasVPA(s.GetRESTMapper()),
			})
			if err != nil {
				return err
			}
			return dnsrecord.AddToManager(s, dnsrecord.Options{
				Controller:                s.ControllerOptions(controllers.DNSRecord),
				Classes:                   s.classes,
				IgnoreOperationAnnotation: ignore,
				Provider:                  provider,
				Zones:                     config.DNS.Zones,
				DefaultTTL:                *config.DNS.DefaultTTL,
			})
		}),
		instance.AddController("Extension", controllers.Extension, func() error {
			return extension.AddToManager(s, extension.Options{
				Controller:                s.ControllerOptions(controllers.Extension),
				Classes:                   s.classes,
				IgnoreOperationAnnotation: ignore,
				Resources:                 s.writer,
			})
		}),
		instance.AddController("health check", controllers.HealthCheck.ControllerConfiguration, func() error {
			return healthcheck.AddToManager(s, healthcheck.Options{
				Controller:           s.ControllerOptions(controllers.HealthCheck.ControllerConfiguration),
				Classes:              s.classes,
				SyncPeriod:           controllers.HealthCheck.SyncPeriod.Duration,
				WithoutShootWebhooks: shootWebhooks == nil,
			})
		}),
	)
}
