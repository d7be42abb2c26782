// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupbucket"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/bastion"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/healthcheck"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/ingress"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/machinecontrollermanager"
)

const (
	// Name is the name of the instance, of its ServiceAccount and of its Service, as charts/provider-local has it.
	Name = "gardener-extension-provider-local-seed"
	// place tells what this instance writes for CoreDNS from what another one does.
	place = "seed"
)

// Options are what the instance is run with.
type Options struct {
	// Log is the root of all logs.
	Log logr.Logger
	// Config is the defaulted and validated configuration.
	Config *configv1alpha1.ExtensionConfiguration
	// RESTConfig is the seed. If nil, it is found by the configuration.
	RESTConfig *rest.Config
	// Namespace is the namespace in which the instance runs.
	Namespace string
	// WebhookURL is the HOST:PORT by which API servers call the webhooks of an instance that no Service leads to.
	WebhookURL string
	// AllowRestart lets an instance run again in the same process, as integration tests have it.
	AllowRestart bool
	// WatchTimeout is the shortest time that a watch lasts. Default: instance.DefaultWatchTimeout.
	WatchTimeout time.Duration
}

// seed is what the controllers and webhooks of an instance share.
type seed struct {
	*instance.Instance

	opts    Options
	config  *configv1alpha1.ExtensionConfiguration
	classes class.Set
	store   *backup.Store
	charts  *oci.Sources
	metrics *metrics.Set
	writer  *resources.Writer
	// clusters are where machines are, and shootClusters what gardenlet says of shoots.
	clusters      cluster.Clusters
	shootClusters *reconciler.Clusters
}

// Run runs the instance until ctx ends.
func Run(ctx context.Context, opts Options) error {
	classes, err := class.New(opts.Config.ExtensionClasses, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot)
	if err != nil {
		return err
	}
	scheme, err := instance.NewScheme(kubernetesscheme.AddToScheme, extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme,
		machinev1alpha1.AddToScheme, vpaautoscalingv1.AddToScheme)
	if err != nil {
		return err
	}

	byObject := coredns.CacheOptions(opts.Config.DNS.CoreDNS.Namespace)
	maps.Copy(byObject, healthcheck.CacheOptions())
	maps.Copy(byObject, ingress.CacheOptions())
	maps.Copy(byObject, bastion.CacheOptions())
	maps.Copy(byObject, backupbucket.CacheOptions())
	maps.Copy(byObject, machinecontrollermanager.CacheOptions())

	return instance.Serve(ctx, instance.Options{
		Name:       Name,
		Namespace:  opts.Namespace,
		Config:     opts.Config,
		RESTConfig: opts.RESTConfig,
		Scheme:     scheme,
		ByObject:   byObject,
		Uncached:   []client.Object{&appsv1.Deployment{}, &corev1.Pod{}},
		Log:        opts.Log,

		AllowRestart: opts.AllowRestart,
		WatchTimeout: opts.WatchTimeout,
	}, func(inst *instance.Instance, store *backup.Store, charts *oci.Sources) error {
		m, err := inst.NewMetrics()
		if err != nil {
			return err
		}

		servers, err := configv1alpha1.ParseCIDRs(opts.Config.Machines.Remote.AllowedCIDRs)
		if err != nil {
			return fmt.Errorf("machines.remote.allowedCIDRs: %w", err)
		}

		s := &seed{
			Instance: inst, opts: opts, config: opts.Config, classes: classes.WithObserver(m.Classes), store: store, charts: charts, metrics: m,
			writer:        resources.New(inst.GetClient()).WithMetrics(m.Resources),
			clusters:      cluster.New(inst.GetClient(), inst.GetConfig(), servers...),
			shootClusters: reconciler.NewClusters(inst.GetClient()),
		}
		shootWebhooks, err := s.addWebhooks()
		if err != nil {
			return err
		}
		return s.addControllers(shootWebhooks)
	})
}
