// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupbucket"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupentry"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/dnsrecord"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/extension"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const (
	// Name is the name of the instance, and of its ServiceAccount, as charts/provider-local has it.
	Name = "gardener-extension-provider-local-garden"
	// place tells what this instance writes for CoreDNS from what another one does.
	place = "garden"
)

// Options are what the instance is run with.
type Options struct {
	// Log is the root of all logs.
	Log logr.Logger
	// Config is the defaulted and validated configuration.
	Config *configv1alpha1.ExtensionConfiguration
	// RESTConfig is the garden runtime cluster. If nil, it is found by the configuration.
	RESTConfig *rest.Config
	// Namespace is the namespace in which the instance runs.
	Namespace string
	// AllowRestart lets an instance run again in the same process, as integration tests have it.
	AllowRestart bool
	// WatchTimeout is the shortest time that a watch lasts. Default: instance.DefaultWatchTimeout.
	WatchTimeout time.Duration
}

// Run runs the instance until ctx ends.
func Run(ctx context.Context, opts Options) error {
	classes, err := class.New(opts.Config.ExtensionClasses, extensionsv1alpha1.ExtensionClassGarden)
	if err != nil {
		return err
	}
	scheme, err := instance.NewScheme(kubernetesscheme.AddToScheme, extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme)
	if err != nil {
		return err
	}

	byObject := coredns.CacheOptions(opts.Config.DNS.CoreDNS.Namespace)
	maps.Copy(byObject, backupbucket.CacheOptions())
	// What this instance deploys is in the garden's namespace; it may not look at others.
	byObject[&resourcesv1alpha1.ManagedResource{}] = cache.ByObject{Namespaces: map[string]cache.Config{v1beta1constants.GardenNamespace: {}}}

	return instance.Serve(ctx, instance.Options{
		Name:       Name,
		Namespace:  opts.Namespace,
		Config:     opts.Config,
		RESTConfig: opts.RESTConfig,
		Scheme:     scheme,
		ByObject:   byObject,
		Log:        opts.Log,

		AllowRestart: opts.AllowRestart,
		WatchTimeout: opts.WatchTimeout,
	}, func(inst *instance.Instance, store *backup.Store, charts *oci.Sources) error {
		return addControllers(inst, opts, classes, store, charts)
	})
}

// addControllers is the list of what this instance runs.
func addControllers(inst *instance.Instance, opts Options, classes class.Set, store *backup.Store, charts *oci.Sources) error {
	var (
		config      = opts.Config
		controllers = config.Controllers
	)
	m, err := inst.NewMetrics()
	if err != nil {
		return err
	}
	renderer, err := instance.NewRenderer(inst.GetConfig())
	if err != nil {
		return err
	}
	classes, renderer = classes.WithObserver(m.Classes), renderer.WithMetrics(m.Charts)
	writer := resources.New(inst.GetClient()).WithMetrics(m.Resources)

	shared := func(config configv1alpha1.ControllerConfiguration) reconciler.Shared {
		return reconciler.Shared{Controller: inst.ControllerOptions(config), Classes: classes, IgnoreOperationAnnotation: controllers.IgnoreOperationAnnotation}
	}
	return errors.Join(
		instance.AddController("BackupBucket", controllers.BackupBucket, func() error {
			return backupbucket.AddToManager(inst, backupbucket.Options{
				Shared:   shared(controllers.BackupBucket),
				Store:    store,
				HostPath: config.Backup.HostPath,
			})
		}),
		instance.AddController("BackupEntry", controllers.BackupEntry, func() error {
			return backupentry.AddToManager(inst, backupentry.Options{
				Shared:   shared(controllers.BackupEntry),
				Store:    store,
				HostPath: config.Backup.HostPath,
			})
		}),
		instance.AddController("DNSRecord", controllers.DNSRecord, func() error {
			providers, err := dnsrecord.NewProviders(inst, coredns.SetupOptions{
				DNS:            config.DNS,
				Place:          place,
				ServiceAccount: types.NamespacedName{Namespace: opts.Namespace, Name: Name},
				Classes:        classes,
				Renderer:       renderer,
				Writer:         writer,
				Chart:          charts.For(components.CoreDNS),
				VPA:            instance.HasVPA(inst.GetRESTMapper()),
				Metrics:        m.DNS,
			})
			if err != nil {
				return err
			}
			return dnsrecord.AddToManager(inst, dnsrecord.Options{
				Shared:          shared(controllers.DNSRecord),
				Providers:       providers,
				DefaultProvider: config.DNS.Provider,
				DefaultTTL:      *config.DNS.DefaultTTL,
				ReservedDomains: config.DNS.ReservedDomains,
			})
		}),
		instance.AddController("Extension", controllers.Extension, func() error {
			return extension.AddToManager(inst, extension.Options{
				Shared:    shared(controllers.Extension),
				Resources: writer,
			})
		}),
		instance.AddController("mock object", configv1alpha1.ControllerConfiguration{Disabled: !config.Mock.Enabled}, func() error {
			return mock.AddToManager(inst, mock.Options{
				Shared:   shared(configv1alpha1.ControllerConfiguration{ConcurrentSyncs: config.Mock.ConcurrentSyncs}),
				Config:   config.Mock,
				HostPath: config.Backup.HostPath,
			})
		}),
	)
}
