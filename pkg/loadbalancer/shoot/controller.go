// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/utils/keymutex"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// name is that of cloud-controller in metrics and logs.
	name = "cloud-controller"
	// defaultWait is far more than the tenth of a second that pkg/controller/service takes, and not long for a worker.
	defaultWait = 5 * time.Second
)

// Options are what a Controller needs.
type Options struct {
	// Log is the root of all logs.
	Log logr.Logger
	// Shoot is the cluster whose Services are served, Seed the one in which its machines are.
	Shoot, Seed kubernetes.Interface
	// Namespace is that of the machines in the seed.
	Namespace string
	// OneNode tells that the seed has one node and no other. Only then can a Service with externalTrafficPolicy Local keep
	// the addresses of its clients: see docs/loadbalancers.md.
	OneNode bool
	// ConcurrentSyncs is how many Services are looked at in parallel. Default 5.
	ConcurrentSyncs int
	// Wait is how long a worker waits for an address. Default 5 seconds.
	Wait time.Duration
}

// Controller serves the Services of type LoadBalancer of a shoot.
type Controller struct {
	workers  int
	caches   *caches
	service  *servicecontroller.Controller
	follower controller.Controller
}

// New returns a Controller. It sends no request before Run.
//
// Needed permissions in the shoot: get, list and watch on Services; patch on their status (by which finalizers are
// written, too); list and watch on Nodes and EndpointSlices; create and patch on Events. In the namespace of the seed: get,
// list, watch, create, patch and delete on Services and EndpointSlices; list and watch on Pods.
func New(opts Options) (*Controller, error) {
	if opts.Namespace == "" {
		return nil, errors.New("the namespace of the machines is not known")
	}
	if opts.ConcurrentSyncs <= 0 {
		opts.ConcurrentSyncs = 5
	}
	if opts.Wait == 0 {
		opts.Wait = defaultWait
	}
	caches, err := newCaches(opts.Shoot, opts.Seed, opts.Namespace)
	if err != nil {
		return nil, err
	}
	balancer := &Balancer{
		shoot: opts.Shoot, seed: opts.Seed, namespace: opts.Namespace, oneNode: opts.OneNode, wait: opts.Wait,
		cache: caches, keys: keymutex.NewHashed(0), changes: newChanges(), progress: newProgress(),
	}

	services := newRepeater(caches.services)
	service, err := servicecontroller.New(balancer, opts.Shoot, services, quietNodes{caches.nodes}, opts.Namespace, nil)
	if err != nil {
		return nil, fmt.Errorf("making the service controller: %w", err)
	}
	if len(services.informer.handlers) == 0 {
		return nil, errors.New("making the service controller: it does not watch Services")
	}
	follower, err := newFollower(&follower{Balancer: balancer, repeat: services.repeat}, opts)
	if err != nil {
		return nil, err
	}
	return &Controller{workers: opts.ConcurrentSyncs, caches: caches, service: service, follower: follower}, nil
}

func newFollower(f *follower, opts Options) (controller.Controller, error) {
	c, err := controller.NewUnmanaged(name, controller.Options{
		Reconciler:              f,
		MaxConcurrentReconciles: opts.ConcurrentSyncs,
		SkipNameValidation:      new(true), // There may be several in the process of a test.
		RecoverPanic:            new(true),
		LogConstructor: func(request *reconcile.Request) logr.Logger {
			if request == nil {
				return opts.Log
			}
			return opts.Log.WithValues("service", request.NamespacedName)
		},
	})
	if err != nil {
		return nil, err
	}

	settled := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		f.progress.onSettled(func(key types.NamespacedName) { queue.Add(reconcile.Request{NamespacedName: key}) })
		return nil
	})
	for _, src := range append(f.sources(), settled) {
		if err := c.Watch(src); err != nil {
			return nil, err
		}
	}
	_, err = f.cache.seedServices.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { f.changes.tell(obj.(client.Object).GetName()) },
		UpdateFunc: func(_, obj any) { f.changes.tell(obj.(client.Object).GetName()) },
		DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				f.changes.tell(key.Name)
			}
		},
	})
	return c, err
}

// Run serves until ctx ends. As long as one of the API servers is out of reach, it waits.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer c.caches.shutdown()
	defer cancel()

	if err := c.caches.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // It was told to stop.
		}
		return err
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		c.service.Run(ctx, c.workers, controllersmetrics.NewControllerManagerMetrics(name))
	}()
	err := c.follower.Start(ctx)
	cancel()
	<-done
	return err
}

// Ready is a check for whether the informers have all there is, as a handler of controller-runtime's healthz takes it.
func (c *Controller) Ready(*http.Request) error {
	if !c.caches.synced() {
		return errors.New("the informers are yet to read what is in the shoot and the seed")
	}
	return nil
}
