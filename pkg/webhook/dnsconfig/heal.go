// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/touch"
)

// Touch sends the Deployments through the webhooks, for those that were written while these could not be reached or had no
// address. gardener-resource-manager would do it too, but only every twelve hours. It is an error if one of them still asks
// another server than CoreDNS, which is in the given namespace; while that has no address, there is nothing to do. The
// reader asks the API server.
func Touch(ctx context.Context, reader client.Reader, c client.Client, coreDNSNamespace string) error {
	service := &corev1.Service{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: coreDNSNamespace, Name: coredns.ServiceName}, service); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the Service of CoreDNS: %w", err)
	}
	servers := addresses(service)
	if len(servers) == 0 {
		return nil
	}

	var errs []error
	for _, name := range gardenDeployments() {
		errs = append(errs, touchDeployment(ctx, c, v1beta1constants.GardenNamespace, name, servers))
	}
	namespaces, err := touch.ShootNamespaces(ctx, reader)
	errs = append(errs, err)
	for _, namespace := range namespaces {
		errs = append(errs, touchDeployment(ctx, c, namespace, deploymentExporter, servers))
	}
	return errors.Join(errs...)
}

func touchDeployment(ctx context.Context, c client.Client, namespace, name string, servers []string) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return touch.Object(ctx, c, deployment, func() bool {
		pod := deployment.Spec.Template.Spec
		return pod.DNSPolicy == corev1.DNSNone && pod.DNSConfig != nil && slices.Equal(pod.DNSConfig.Nameservers, servers)
	})
}

// addController adds the controller that calls Touch when the address of CoreDNS becomes known or changes.
func addController(mgr manager.Manager, services cache.Cache, opts Options) error {
	reader, c := mgr.GetAPIReader(), mgr.GetClient()
	return builder.ControllerManagedBy(mgr).
		Named(Name).
		WithOptions(opts.Controller).
		WatchesRawSource(source.Kind[client.Object](services, &corev1.Service{}, &handler.EnqueueRequestForObject{}, addressChanges())).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, Touch(ctx, reader, c, opts.Namespace)
		}))
}

// addressChanges are the events by which CoreDNS gets an address that it did not have.
func addressChanges() predicate.Predicate {
	of := func(obj client.Object) []string {
		service, ok := obj.(*corev1.Service)
		if !ok {
			return nil
		}
		return addresses(service)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return len(of(e.Object)) > 0 },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return len(of(e.ObjectNew)) > 0 && !slices.Equal(of(e.ObjectOld), of(e.ObjectNew))
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
