// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

const (
	// ControllerName is the name of the controller.
	ControllerName = "service"
	// reconciliationTimeout is far more than the few requests of a Service take.
	reconciliationTimeout = time.Minute
)

// Options are what the controller needs.
type Options struct {
	// Controller are the options of the controller itself, such as its concurrency.
	Controller controller.Options
	// LoadBalancers are the addresses and node ports, with their defaults. The controller keeps none of it.
	LoadBalancers configv1alpha1.LoadBalancersConfiguration
}

// AddToManager adds the controller for Services of type LoadBalancer. The manager's cache has to have those; it need not
// have others, and of each only what coredns.CacheOptions leaves.
//
// Needed permissions: get, list, watch, patch on Services, patch on their status; create and patch on events of
// events.k8s.io.
func AddToManager(mgr manager.Manager, opts Options) error {
	allocator, err := loadbalancer.NewAllocator(opts.LoadBalancers)
	if err != nil {
		return fmt.Errorf("adding the Service controller: %w", err)
	}
	if opts.Controller.ReconciliationTimeout == 0 {
		opts.Controller.ReconciliationTimeout = reconciliationTimeout
	}

	r := &reconciler{
		cache:     mgr.GetCache(),
		live:      mgr.GetAPIReader(),
		client:    mgr.GetClient(),
		events:    mgr.GetEventRecorder(ControllerName + "-controller"),
		allocator: allocator,
		written:   lru.New(writtenMax),
	}
	return builder.ControllerManagedBy(mgr).Named(ControllerName).WithOptions(opts.Controller).
		For(&corev1.Service{}).
		// The controller calls it before the first reconcile.
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.wake = func(services []types.NamespacedName) {
				for _, service := range services {
					queue.Add(reconcile.Request{NamespacedName: service})
				}
			}
			return nil
		})).
		Complete(r)
}
