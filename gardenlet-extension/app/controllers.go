// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/bastion"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/controlplane"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/healthcheck"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/infrastructure"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/ingress"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/operatingsystemconfig"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/selfhostedshootexposure"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/worker"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes/kubelet"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// addControllers is the list of the controllers that this instance runs.
func (s *seed) addControllers(shootWebhooks controlplane.ShootWebhooks) error {
	mockNodes, errNodes := s.addMockNodes()
	withoutWorkers, errWorkers := s.withoutWorkers()
	if err := errors.Join(errNodes, errWorkers); err != nil {
		return err
	}
	controllers, machines := s.Config.Controllers, s.Config.Machines
	nodePorts := controllers.Service.Disabled || s.InShoot
	workers := controllers.Worker
	workers.Disabled = workers.Disabled || withoutWorkers
	return errors.Join(
		s.AddCommonControllers(mockNodes),
		s.AddController("Bastion", controllers.Bastion, func(shared reconciler.Shared) error {
			return bastion.AddToManager(s, bastion.Options{Shared: shared, Clusters: s.clusters, NodePorts: nodePorts})
		}),
		s.AddController("ControlPlane", controllers.ControlPlane, func(shared reconciler.Shared) error {
			config := s.Config.ControlPlane
			return controlplane.AddToManager(s, controlplane.Options{
				Shared:                shared,
				Resources:             s.Resources,
				Renderer:              s.Renderer,
				LocalPathProvisioner:  controlplane.Component{Chart: s.Charts.For(components.LocalPathProvisioner), Image: config.LocalPathProvisioner.Image},
				CloudController:       controlplane.Component{Chart: s.Charts.For(components.CloudController), Image: config.CloudController.Image},
				DeployCloudController: *config.CloudController.Deploy,
				NodePorts:             nodePorts,
				Clusters:              s.clusters,
				AllowedCIDRs:          machines.Remote.AllowedCIDRs,
				VPA:                   s.VPA,
				ShootWebhooks:         shootWebhooks,
			})
		}),
		s.AddController("health check", controllers.HealthCheck.ControllerConfiguration, func(shared reconciler.Shared) error {
			return healthcheck.AddToManager(s, healthcheck.Options{
				Shared: shared, SyncPeriod: controllers.HealthCheck.SyncPeriod.Duration,
				WithoutShootWebhooks: shootWebhooks == nil, WithoutWorkers: withoutWorkers,
			})
		}),
		s.AddController("Infrastructure", controllers.Infrastructure, func(shared reconciler.Shared) error {
			return infrastructure.AddToManager(s, infrastructure.Options{
				Shared:           shared,
				Clusters:         s.clusters,
				EgressCIDRs:      machines.EgressCIDRs,
				NodeCIDRs:        machines.NodeCIDRs,
				AllowedCIDRs:     machines.Remote.AllowedCIDRs,
				LoadBalancers:    s.Config.LoadBalancers,
				CoreDNSNamespace: s.Config.DNS.CoreDNS.Namespace,
			})
		}),
		s.AddController("Ingress", controllers.Ingress, func(shared reconciler.Shared) error {
			var gateways []client.ObjectKey
			for _, gateway := range s.Config.Ingress.Gateways {
				gateways = append(gateways, client.ObjectKey(gateway))
			}
			return ingress.AddToManager(s, ingress.Options{Controller: shared.Controller, Gateways: gateways})
		}),
		s.AddController("OperatingSystemConfig", controllers.OperatingSystemConfig, func(shared reconciler.Shared) error {
			return operatingsystemconfig.AddToManager(s, shared)
		}),
		s.AddController("SelfHostedShootExposure", controllers.SelfHostedShootExposure, func(shared reconciler.Shared) error {
			return selfhostedshootexposure.AddToManager(s, selfhostedshootexposure.Options{Shared: shared, Clusters: s.clusters})
		}),
		s.AddController("Worker", workers, func(shared reconciler.Shared) error {
			return worker.AddToManager(s, worker.Options{
				Shared:          shared,
				Sizing:          machines.Sizing,
				AllowedSizings:  machines.AllowedSizings,
				GPUResourceName: machines.GPUResourceName,
				BackupHostPath:  s.Config.Backup.HostPath,
				Clusters:        s.clusters,
			})
		}),
	)
}

// withoutWorkers reports whether nobody manages the machines of the cluster, as in some Shoots that host themselves: the kinds of
// machine.sapcloud.io are not there to be watched.
func (s *seed) withoutWorkers() (bool, error) {
	if !s.Config.SelfHostedShootCluster {
		return false, nil
	}
	_, err := s.GetRESTMapper().RESTMapping(machinev1alpha1.SchemeGroupVersion.WithKind("Machine").GroupKind())
	if meta.IsNoMatchError(err) {
		return true, nil
	}
	return false, err
}

// hasMockNodes reports whether Workers of type mock get fake Nodes.
func (s *seed) hasMockNodes() bool { return s.Config.Mock.Enabled && !s.Config.Mock.Nodes.Disabled }

// addMockNodes adds the fake Nodes if there are any, and what answers for their kubelets: kube-apiservers of shoots call it by the
// Service of this instance.
func (s *seed) addMockNodes() (mock.Nodes, error) {
	if !s.hasMockNodes() {
		return nil, nil
	}
	port := *s.Config.Mock.Nodes.KubeletPort
	fleet := nodes.New(nodes.Options{
		Connect:         extensioncluster.ShootAccess(s.GetClient()),
		Kubelet:         nodes.KubeletEndpoint{Host: Name + "." + s.Options.Namespace + ".svc", Port: int32(port)}, // #nosec G115 -- validated
		GPUResourceName: s.Config.Machines.GPUResourceName,
		Log:             s.GetLogger().WithName("mock-nodes"),
	})
	server, err := kubelet.New(fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, err
	}
	return fleet, errors.Join(s.Add(server), s.Add(fleet))
}
