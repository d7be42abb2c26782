// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package program has what the programs operator-extension and gardenlet-extension have in common beyond an instance: the
// components that controllers share, the controllers of kinds that exist for all classes, and the command. What only one of them
// has is in its own package app.
package program

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupbucket"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupentry"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/dnsrecord"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/extension"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/service"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// shootInfoTimeout is for the one question whether the cluster is a shoot.
const shootInfoTimeout = 30 * time.Second

// stopTimeout is how long a stop waits for the reconciles under way. The chart's terminationGracePeriodSeconds is larger.
const stopTimeout = 25 * time.Second

// Program is an instance with the components that its controllers share.
type Program struct {
	manager.Manager

	Options instance.Options
	Config  *configv1alpha1.ExtensionConfiguration
	Classes class.Set
	Metrics *metrics.Set
	Charts  *oci.Sources
	// Renderer renders charts for the cluster, and Resources writes ManagedResources to it.
	Renderer  *chart.Renderer
	Resources *resources.Writer
	// VPA reports whether the cluster knows VerticalPodAutoscalers, which Gardener brings where they are switched on.
	VPA bool
	// InShoot reports whether the cluster is a Gardener shoot, such as a ManagedSeed.
	InShoot bool

	store         *backup.Store
	shootClusters *reconciler.Clusters
	// working is held by reconciles.
	working sync.RWMutex
	// place tells what this program writes for CoreDNS from what the other one does.
	place string
}

// Run runs a program until ctx ends. It may serve the given classes; place is its name in what it writes for CoreDNS. add gives it
// its controllers.
func Run(ctx context.Context, opts instance.Options, place string, allowed []extensionsv1alpha1.ExtensionClass, add func(*Program) error) (err error) {
	classes, err := class.New(opts.Config.ExtensionClasses, allowed...)
	if err != nil {
		return err
	}
	mgr, err := instance.New(opts)
	if err != nil {
		return err
	}
	store, err := backup.Open(opts.Config.Backup.Directory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	charts, err := oci.NewSources(opts.Config.Charts, components.FS, oci.Options{
		Reader:     mgr.GetAPIReader(),
		Namespace:  opts.Namespace,
		Registerer: ctrlmetrics.Registry,
		Log:        mgr.GetLogger().WithName("charts"),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, charts.Close()) }()

	// They are served together with those of controller-runtime.
	m, err := metrics.New(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	renderer, err := newRenderer(mgr)
	if err != nil {
		return err
	}
	_, noVPA := mgr.GetRESTMapper().RESTMapping(schema.GroupKind{Group: "autoscaling.k8s.io", Kind: "VerticalPodAutoscaler"})
	if noVPA != nil && !meta.IsNoMatchError(noVPA) {
		return fmt.Errorf("looking for VerticalPodAutoscalers: %w", noVPA)
	}
	inShoot, err := isShoot(mgr.GetAPIReader())
	if err != nil {
		return err
	}
	writer := resources.New(mgr.GetClient())
	renderer.Metrics, writer.Metrics = m.Charts, m.Resources
	p := &Program{
		Manager: mgr, Options: opts, Config: opts.Config, Classes: classes.WithObserver(m.Classes), Metrics: m, Charts: charts,
		Renderer: renderer, Resources: writer, VPA: noVPA == nil, InShoot: inShoot,
		store: store, shootClusters: reconciler.NewClusters(mgr.GetClient()), place: place,
	}
	if err := add(p); err != nil {
		return err
	}
	return p.run(ctx, stopTimeout)
}

// run runs the manager until ctx ends, and then lets reconciles end that have begun, for at most timeout: cut off, one would leave an
// error on its object that nobody can act on. Only then the manager ends what they need, takes their context away and gives the
// Lease back.
func (p *Program) run(ctx context.Context, timeout time.Duration) error {
	managed, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		idle := make(chan struct{})
		go func() {
			p.working.Lock()
			close(idle)
		}()
		select {
		case <-idle:
		case <-time.After(timeout):
			p.GetLogger().Info("Cutting off reconciles that did not end in time", "timeout", timeout.String())
		}
		stop()
	})()
	return instance.Start(managed, p.Manager)
}

// newRenderer returns a renderer of charts for the cluster, which is asked for its version.
func newRenderer(mgr manager.Manager) (*chart.Renderer, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking the API server for its version: %w", err)
	}
	return chart.NewRenderer(version.GitVersion)
}

// AddController adds the controller for objects of a kind unless it is disabled. What controllers for extension objects have in
// common is for add.
func (p *Program) AddController(kind string, config configv1alpha1.ControllerConfiguration, add func(reconciler.Shared) error) error {
	if config.Disabled {
		return nil
	}
	if err := add(reconciler.Shared{
		Controller: instance.ControllerOptions(config), Classes: p.Classes, ShootClusters: p.shootClusters,
		IgnoreOperationAnnotation: p.Config.Controllers.IgnoreOperationAnnotation, Working: &p.working,
	}); err != nil {
		return fmt.Errorf("adding the controller for %ss: %w", kind, err)
	}
	return nil
}

// AddCommonControllers adds the controllers that both programs have. nodes are the fake Nodes for Workers of type mock, nil for none.
func (p *Program) AddCommonControllers(nodes mock.Nodes) error {
	controllers, hostPath := p.Config.Controllers, p.Config.Backup.HostPath
	mockObjects := configv1alpha1.ControllerConfiguration{Disabled: !p.Config.Mock.Enabled, ConcurrentSyncs: p.Config.Mock.ConcurrentSyncs}
	return errors.Join(
		p.AddController("BackupBucket", controllers.BackupBucket, func(shared reconciler.Shared) error {
			return backupbucket.AddToManager(p, backupbucket.Options{Shared: shared, Store: p.store, HostPath: hostPath})
		}),
		p.AddController("BackupEntry", controllers.BackupEntry, func(shared reconciler.Shared) error {
			return backupentry.AddToManager(p, backupentry.Options{Shared: shared, Store: p.store, HostPath: hostPath})
		}),
		p.AddController("DNSRecord", controllers.DNSRecord, p.addDNSRecords),
		p.AddController("Extension", controllers.Extension, func(shared reconciler.Shared) error {
			return extension.AddToManager(p, extension.Options{Shared: shared, Resources: p.Resources, ForceDeleteTest: controllers.ForceDeleteTest})
		}),
		p.AddController("Service", controllers.Service, p.addServices),
		p.AddController("mock object", mockObjects, func(shared reconciler.Shared) error {
			return mock.AddToManager(p, mock.Options{Shared: shared, Config: p.Config.Mock, HostPath: hostPath, Nodes: nodes})
		}),
	)
}

// addServices adds the controller of load balancers, unless the cluster is a shoot (as with a ManagedSeed): then they are the
// matter of that shoot's cloud-controller, and two that write to one status never come to an end.
func (p *Program) addServices(shared reconciler.Shared) error {
	if p.InShoot {
		p.GetLogger().Info("The cluster is a shoot, whose cloud-controller serves its load balancers: not adding the Service controller")
		return nil
	}
	_, isGarden := p.Classes.Only(extensionsv1alpha1.ExtensionClassGarden)
	return service.AddToManager(p, service.Options{
		Controller:       shared.Controller,
		LoadBalancers:    p.Config.LoadBalancers,
		Namespace:        p.Options.Namespace,
		CoreDNSNamespace: p.Config.DNS.CoreDNS.Namespace,
		Garden:           isGarden,
	})
}

// isShoot reports whether a cluster is a Gardener shoot: only those have the ConfigMap kube-system/shoot-info.
func isShoot(reader client.Reader) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), shootInfoTimeout)
	defer cancel()
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: v1beta1constants.ConfigMapNameShootInfo}
	err := reader.Get(ctx, key, &corev1.ConfigMap{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading ConfigMap %s, to see whether the cluster is a shoot: %w", key, err)
	}
	return err == nil, nil
}

func (p *Program) addDNSRecords(shared reconciler.Shared) error {
	dns := p.Config.DNS
	providers, err := dnsrecord.NewProviders(p, coredns.SetupOptions{
		DNS:            dns,
		Place:          p.place,
		ServiceAccount: types.NamespacedName{Namespace: p.Options.Namespace, Name: p.Options.Name},
		Classes:        p.Classes,
		Renderer:       p.Renderer,
		Writer:         p.Resources,
		Chart:          p.Charts.For(components.CoreDNS),
		VPA:            p.VPA,
		Metrics:        p.Metrics.DNS,
	})
	if err != nil {
		return err
	}
	return dnsrecord.AddToManager(p, dnsrecord.Options{
		Shared:          shared,
		Providers:       providers,
		DefaultProvider: dns.Provider,
		DefaultTTL:      *dns.DefaultTTL,
		Zones:           dns.Zones,
		ReservedDomains: dns.ReservedDomains,
	})
}
