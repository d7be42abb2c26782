// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package statuscontroller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

// seedInstance is the name of the Deployment of the extension in a seed (charts/provider-local). Where it is, the Services of
// type LoadBalancer are its matter.
const seedInstance = "gardener-extension-provider-local-seed"

// loadBalancers gives Services of type LoadBalancer an address as long as the extension doesn't: in a garden runtime cluster
// that is not a seed. It never changes an address that is there.
type loadBalancers struct {
	client client.Client
	// network is where their addresses are from.
	network layout.Network
}

func addLoadBalancers(mgr manager.Manager, opts Options) error {
	l := &loadBalancers{client: mgr.GetClient(), network: opts.Network}
	err := builder.ControllerManagedBy(mgr).Named("load-balancers").For(&corev1.Service{}).
		// When the seed's instance goes, those are left that it gave no address any more.
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(l.all)).
		Complete(reconcile.AsReconciler(l.client, objectFunc[*corev1.Service](l.reconcile)))
	if err != nil {
		return fmt.Errorf("adding the controller of load balancers: %w", err)
	}
	return nil
}

func (l *loadBalancers) reconcile(ctx context.Context, service *corev1.Service) (ctrl.Result, error) {
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.DeletionTimestamp != nil || len(service.Status.LoadBalancer.Ingress) > 0 {
		return ctrl.Result{}, nil
	}
	instances := &appsv1.DeploymentList{}
	if err := l.client.List(ctx, instances); err != nil {
		return ctrl.Result{}, fmt.Errorf("looking for the seed's instance: %w", err)
	}
	// The cache holds no others, as Run tells it.
	if len(instances.Items) > 0 {
		return ctrl.Result{}, nil
	}

	patch := client.MergeFrom(service.DeepCopy())
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{ingressOf(client.ObjectKeyFromObject(service), l.network)}
	if err := l.client.Status().Patch(ctx, service, patch); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("giving Service %s its address: %w", client.ObjectKeyFromObject(service), err)
	}
	return ctrl.Result{}, nil
}

func (l *loadBalancers) all(ctx context.Context, _ client.Object) []reconcile.Request {
	services := &corev1.ServiceList{}
	if err := l.client.List(ctx, services); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Looking for load balancers")
		return nil
	}
	var requests []reconcile.Request
	for _, service := range services.Items {
		if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&service)})
		}
	}
	return requests
}

// ingressOf tells the address of a load balancer. Those that have one of their own get what the extension would give them in
// a seed, so that nothing changes when it comes.
func ingressOf(key types.NamespacedName, network layout.Network) corev1.LoadBalancerIngress {
	own := map[types.NamespacedName]string{
		{Namespace: "virtual-garden-istio-ingress", Name: "istio-ingressgateway"}:      network.VirtualGardenIP(),
		{Namespace: "gardener-extension-provider-local-coredns", Name: "coredns-host"}: network.ExtensionHostDNSIP(),
	}
	if ip, found := own[key]; found {
		return corev1.LoadBalancerIngress{IP: ip, IPMode: new(corev1.LoadBalancerIPModeVIP)}
	}
	// With mode VIP, kube-proxy would grab the traffic of an address that several Services and the machine's own programs share.
	return corev1.LoadBalancerIngress{IP: network.HostServicesIP(), IPMode: new(corev1.LoadBalancerIPModeProxy)}
}
