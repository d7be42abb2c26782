// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	predicateutils "github.com/gardener/gardener/pkg/controllerutils/predicate"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

const (
	// DefaultSyncPeriod is how often health is looked at without an event.
	DefaultSyncPeriod = 5 * time.Minute
	// reconciliationTimeout is far more than two requests to a shoot's API server take.
	reconciliationTimeout = time.Minute
)

// Options are what the controllers need.
type Options struct {
	// Controller are the options of each controller, such as its concurrency.
	Controller controller.Options
	// Classes are the classes that the instance serves. Only objects of class shoot have health conditions.
	Classes class.Set
	// SyncPeriod is how often health is looked at without an event. Default: DefaultSyncPeriod.
	SyncPeriod time.Duration
	// WithoutShootWebhooks is to be set if the instance deploys no webhooks into shoots. Their ManagedResource is not
	// missed then, and ControlPlanes have no condition for it.
	WithoutShootWebhooks bool
	// Clock is the time. Default: the real one.
	Clock clock.Clock
	// ShootClient makes clients for the API servers of shoots. Default: from the Secret gardener-internal or gardener in
	// the namespace of the shoot, by the manager's client, which must not cache Secrets.
	ShootClient ShootClient
}

// AddToManager adds the controllers for the conditions of ControlPlanes, Networks and Workers of type local and class
// shoot; none if the instance does not serve class shoot. It is an error if it serves no class at all. The manager's
// scheme has to know what CacheOptions has, extensions.gardener.cloud and machine.sapcloud.io; its cache is to be made
// with CacheOptions. The CustomResourceDefinitions of machine.sapcloud.io may come later.
//
// Needed permissions: get, list, watch on ControlPlanes, Networks, Workers and Clusters, patch on the status of the first
// three; get, list, watch on ManagedResources, Machines, MachineDeployments, and on the Deployments named
// machine-controller-manager; get on the Secrets named gardener and gardener-internal.
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Classes.String() == "" {
		return errors.New("adding the health check controllers: no extension class given, name at least one")
	}
	classes, ok := opts.Classes.Only(extensionsv1alpha1.ExtensionClassShoot)
	if !ok {
		return nil
	}
	if err := setDefaults(&opts, mgr); err != nil {
		return fmt.Errorf("adding the health check controllers: %w", err)
	}

	for _, kind := range kinds(mgr.GetCache(), newShoots(opts.ShootClient, opts.Clock), opts.WithoutShootWebhooks) {
		if err := add(mgr, opts, kind, classes); err != nil {
			return fmt.Errorf("adding the health check controller %s: %w", kind.name, err)
		}
	}
	return nil
}

func setDefaults(opts *Options, mgr manager.Manager) error {
	if opts.SyncPeriod == 0 {
		opts.SyncPeriod = DefaultSyncPeriod
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Controller.ReconciliationTimeout == 0 {
		opts.Controller.ReconciliationTimeout = reconciliationTimeout
	}
	if opts.ShootClient != nil {
		return nil
	}
	var err error
	opts.ShootClient, err = newShootClient(mgr.GetClient())
	return err
}

func add(mgr manager.Manager, opts Options, kind kind, classes class.Set) error {
	wake := &waker{reader: mgr.GetCache(), newList: kind.newList, classes: classes}
	late := &lateWatches{mapper: mgr.GetRESTMapper(), scheme: mgr.GetScheme()}

	options := opts.Controller
	options.Reconciler = &reconciler{
		kind: kind, classes: classes, clock: opts.Clock, syncPeriod: opts.SyncPeriod,
		reader: mgr.GetCache(), writer: mgr.GetClient(), watch: late.start,
	}
	c, err := controller.New("healthcheck-"+kind.name, mgr, options)
	if err != nil {
		return err
	}

	own := predicateutils.AddTypeAndClassPredicates(nil, classes.List(), localv1alpha1.Type)
	sources := []source.Source{
		source.Kind(mgr.GetCache(), asObject(kind.newObject()), &handler.EnqueueRequestForObject{}, append(own, objectChanged())...),
		source.Kind(mgr.GetCache(), asObject(&extensionsv1alpha1.Cluster{}), wake.handler(), clusterChanged()),
	}
	for _, check := range kind.checks {
		for _, watched := range check.watches {
			src := wake.source(mgr.GetCache(), watched)
			if watched.late {
				late.add(watched.object, func() error { return c.Watch(src) })
				continue
			}
			sources = append(sources, src)
		}
	}

	for _, src := range sources {
		if err := c.Watch(src); err != nil {
			return err
		}
	}
	return nil
}

// source makes the events of something that is watched.
func (w *waker) source(c cache.Cache, watched watched) source.Source {
	return source.Kind(c, watched.object, w.handler(), watched.changed())
}
