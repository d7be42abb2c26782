// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupbucket"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupentry"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/dnsrecord"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/extension"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
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
}

// Run runs the instance until ctx ends.
func Run(ctx context.Context, opts Options) (err error) {
	classes, err := class.New(opts.Config.ExtensionClasses, extensionsv1alpha1.ExtensionClassGarden)
	if err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}

	byObject := coredns.CacheOptions(opts.Config.DNS.CoreDNS.Namespace)
	// What this instance deploys is in the garden's namespace; it may not look at others.
	byObject[&resourcesv1alpha1.ManagedResource{}] = cache.ByObject{Namespaces: map[string]cache.Config{v1beta1constants.GardenNamespace: {}}}

	inst, err := instance.New(instance.Options{
		Name:       Name,
		Namespace:  opts.Namespace,
		Config:     opts.Config,
		RESTConfig: opts.RESTConfig,
		Scheme:     scheme,
		ByObject:   byObject,
		Log:        opts.Log,

		AllowRestart: opts.AllowRestart,
	})
	if err != nil {
		return err
	}

	store, err := backup.Open(opts.Config.Backup.Directory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	if err := addControllers(inst, opts, classes, store); err != nil {
		return err
	}
	return inst.Run(ctx)
}

// addControllers is the list of what this instance runs.
func addControllers(inst *instance.Instance, opts Options, classes class.Set, store *backup.Store) error {
	var (
		config      = opts.Config
		controllers = config.Controllers
		ignore      = controllers.IgnoreOperationAnnotation
		writer      = resources.New(inst.GetClient())
	)

	return errors.Join(
		add("BackupBucket", controllers.BackupBucket, func() error {
			return backupbucket.AddToManager(inst, backupbucket.Options{
				Controller:                inst.ControllerOptions(controllers.BackupBucket),
				Classes:                   classes,
				IgnoreOperationAnnotation: ignore,
				Store:                     store,
				HostPath:                  config.Backup.HostPath,
			})
		}),
		add("BackupEntry", controllers.BackupEntry, func() error {
			return backupentry.AddToManager(inst, backupentry.Options{
				Controller:                inst.ControllerOptions(controllers.BackupEntry),
				Classes:                   classes,
				IgnoreOperationAnnotation: ignore,
				Store:                     store,
				HostPath:                  config.Backup.HostPath,
			})
		}),
		add("DNSRecord", controllers.DNSRecord, func() error {
			provider, err := addCoreDNS(inst, opts, classes, writer)
			if err != nil {
				return err
			}
			return dnsrecord.AddToManager(inst, dnsrecord.Options{
				Controller:                inst.ControllerOptions(controllers.DNSRecord),
				Classes:                   classes,
				IgnoreOperationAnnotation: ignore,
				Provider:                  provider,
				Zones:                     config.DNS.Zones,
				DefaultTTL:                *config.DNS.DefaultTTL,
			})
		}),
		add("Extension", controllers.Extension, func() error {
			return extension.AddToManager(inst, extension.Options{
				Controller:                inst.ControllerOptions(controllers.Extension),
				Classes:                   classes,
				IgnoreOperationAnnotation: ignore,
				Resources:                 writer,
			})
		}),
	)
}

// add adds a controller unless it is disabled.
func add(kind string, config configv1alpha1.ControllerConfiguration, addToManager func() error) error {
	if config.Disabled {
		return nil
	}
	if err := addToManager(); err != nil {
		return fmt.Errorf("adding the controller for %ss: %w", kind, err)
	}
	return nil
}

// addCoreDNS adds the provider that writes records for CoreDNS and, unless told otherwise, the one who deploys CoreDNS.
func addCoreDNS(inst *instance.Instance, opts Options, classes class.Set, writer *resources.Writer) (*coredns.Provider, error) {
	dns := opts.Config.DNS

	provider, err := coredns.New(coredns.Options{
		Client:         inst.GetClient(),
		Reader:         inst.GetAPIReader(),
		Informers:      inst.GetCache(),
		Log:            inst.GetLogger().WithName("dns"),
		Instance:       place,
		Owner:          opts.Namespace,
		Classes:        classes,
		Namespace:      dns.CoreDNS.Namespace,
		Zones:          dns.Zones,
		DefaultTTL:     *dns.DefaultTTL,
		ClusterDomain:  dns.CoreDNS.ClusterDomain,
		Servers:        dns.CoreDNS.Servers,
		BatchWindow:    dns.CoreDNS.BatchWindow.Duration,
		ConfirmTimeout: dns.CoreDNS.ConfirmTimeout.Duration,
	})
	if err != nil {
		return nil, err
	}
	if err := inst.Add(provider); err != nil || !*dns.CoreDNS.Deploy {
		return provider, err
	}

	renderer, err := newRenderer(inst.GetConfig())
	if err != nil {
		return nil, err
	}
	server, err := coredns.NewServer(coredns.ServerOptions{
		Client:         inst.GetClient(),
		Reader:         inst.GetAPIReader(),
		Informers:      inst.GetCache(),
		Log:            inst.GetLogger().WithName("coredns"),
		Renderer:       renderer,
		Writer:         writer,
		Instance:       place,
		ServiceAccount: types.NamespacedName{Namespace: opts.Namespace, Name: Name},
		Namespace:      dns.CoreDNS.Namespace,
		Values: coredns.ServerValues{
			Image:             dns.CoreDNS.Image,
			Replicas:          *dns.CoreDNS.Replicas,
			Zones:             dns.Zones,
			ClusterIP:         dns.CoreDNS.ClusterIP,
			PriorityClassName: dns.CoreDNS.PriorityClassName,
			VPA:               hasVPA(inst.GetRESTMapper()),
		},
	})
	if err != nil {
		return nil, err
	}
	return provider, inst.Add(server)
}

// hasVPA tells whether the cluster knows VerticalPodAutoscalers, which gardener-operator brings where they are switched on.
func hasVPA(mapper meta.RESTMapper) bool {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: "autoscaling.k8s.io", Kind: "VerticalPodAutoscaler"})
	return err == nil
}

// newRenderer renders charts for the cluster in which the instance runs.
func newRenderer(config *rest.Config) (*chart.Renderer, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking the API server for its version: %w", err)
	}
	return chart.NewRenderer(chart.Capabilities{KubeVersion: version.GitVersion})
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, addToScheme := range []func(*runtime.Scheme) error{
		kubernetesscheme.AddToScheme,
		extensionsv1alpha1.AddToScheme,
		resourcesv1alpha1.AddToScheme,
	} {
		if err := addToScheme(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}
