// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
)

// ControllerName is the name of the controller, and of who reports its Events.
const ControllerName = "ingress"

// Options are what the controller needs.
type Options struct {
	// Controller are the options of the controller itself, such as its concurrency.
	Controller controller.Options
	// Gateways are the Services by which an Ingress is reached whose status has no address: the first that has one. They
	// are of type LoadBalancer. Without any, only Ingresses with an address of their own get records.
	Gateways []client.ObjectKey
}

// AddToManager adds the controller to a manager. The manager's scheme has to know networking.k8s.io/v1 and
// extensions.gardener.cloud; its cache is to be made with CacheOptions. The cache may hold no other Services than those
// of type LoadBalancer, without anything but their names and addresses, and of other namespaces than those of shoots
// nothing; of a namespace it has to keep the label gardener.cloud/role and the deletion timestamp.
//
// Needed permissions: get, list, watch, create, patch, delete on DNSRecords; get, list, watch on Ingresses, Services and
// Namespaces; update on ingresses/finalizers, as an owner reference that blocks the owner's deletion needs it where
// OwnerReferencesPermissionEnforcement is on; create, patch on Events of events.k8s.io.
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Controller.ReconciliationTimeout == 0 {
		opts.Controller.ReconciliationTimeout = controllerutils.DefaultReconciliationTimeout
	}

	r := &reconciler{
		reader:   mgr.GetCache(),
		writer:   mgr.GetClient(),
		scheme:   mgr.GetScheme(),
		gateways: slices.Clone(opts.Gateways),
		reporter: &reporter{recorder: mgr.GetEventRecorder(ControllerName)},
	}
	return builder.ControllerManagedBy(mgr).Named(ControllerName).WithOptions(opts.Controller).
		For(&networkingv1.Ingress{}, builder.WithPredicates(ingressChanged())).
		Watches(&extensionsv1alpha1.DNSRecord{}, r.recordHandler(), builder.WithPredicates(recordChanged())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.byNamespace), builder.WithPredicates(namespaceChanged())).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.byGateway), builder.WithPredicates(r.gatewayChanged())).
		Complete(r)
}
