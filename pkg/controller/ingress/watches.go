// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// updated lets all events pass but updates that change nothing that counts.
func updated[T client.Object](counts func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return counts(e.ObjectOld.(T), e.ObjectNew.(T)) },
	}
}

func ingressChanged() predicate.Predicate {
	return updated(func(before, after *networkingv1.Ingress) bool {
		return before.UID != after.UID || isDeleted(before) != isDeleted(after) ||
			!slices.Equal(hostsOf(before), hostsOf(after)) || !equalAnswers(answersOfIngress(before), answersOfIngress(after))
	})
}

// recordChanged keeps away what the DNSRecord controller writes: the status, its finalizer and the operation annotation.
func recordChanged() predicate.Predicate {
	return updated(func(before, after *extensionsv1alpha1.DNSRecord) bool {
		return before.Generation != after.Generation || isDeleted(before) != isDeleted(after) || isMigrating(before) != isMigrating(after) ||
			before.Labels[dns.LabelIngress] != after.Labels[dns.LabelIngress] || isConfirmed(before) != isConfirmed(after) ||
			!apiequality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences)
	})
}

func namespaceChanged() predicate.Predicate {
	return updated(func(before, after *corev1.Namespace) bool {
		return isShootNamespace(before) != isShootNamespace(after) || isDeleted(before) != isDeleted(after)
	})
}

// gatewayChanged lets pass that a gateway has another address, or none.
func (r *reconciler) gatewayChanged() predicate.Predicate {
	return predicate.And(
		predicate.NewPredicateFuncs(func(obj client.Object) bool { return slices.Contains(r.gateways, client.ObjectKeyFromObject(obj)) }),
		updated(func(before, after *corev1.Service) bool {
			return !equalAnswers(answersOfService(before), answersOfService(after))
		}),
	)
}

// settle is how long a new DNSRecord is left alone. Those that were made along with it are in the cache by then, so that
// nothing is made twice. There is no hurry: who made it here made it right.
const settle = time.Second

// recordHandler wakes by DNSRecords.
func (r *reconciler) recordHandler() handler.EventHandler {
	at := handler.EnqueueRequestsFromMapFunc(r.byRecord)
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			for _, request := range r.byRecord(ctx, e.Object) {
				queue.AddAfter(request, settle)
			}
		},
		UpdateFunc: at.Update,
		DeleteFunc: at.Delete,
	}
}

// byRecord maps a DNSRecord to the Ingress that it belongs to. Any other one may name the Secret that the records of all
// Ingresses of its namespace are to name, or may have a name that one of theirs should have.
func (r *reconciler) byRecord(ctx context.Context, obj client.Object) []reconcile.Request {
	if owner := ingressOf(obj); owner != "" {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: owner}}}
	}
	return r.ingresses(ctx, nil, client.InNamespace(obj.GetNamespace()))
}

// byNamespace maps a Namespace to its Ingresses.
func (r *reconciler) byNamespace(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.ingresses(ctx, nil, client.InNamespace(obj.GetName()))
}

// byGateway maps a gateway to the Ingresses that have no address of their own.
func (r *reconciler) byGateway(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.ingresses(ctx, func(ingress *networkingv1.Ingress) bool { return len(answersOfIngress(ingress)) == 0 })
}

func (r *reconciler) ingresses(ctx context.Context, filter func(*networkingv1.Ingress) bool, opts ...client.ListOption) []reconcile.Request {
	list := &networkingv1.IngressList{}
	// They are only looked at.
	if err := r.reader.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		logf.FromContext(ctx).Error(err, "Listing Ingresses")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if filter == nil || filter(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// ingressOf returns the name of the Ingress that controls an object, or an empty text.
func ingressOf(obj client.Object) string {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil || owner.Kind != "Ingress" || owner.APIVersion != networkingv1.SchemeGroupVersion.String() {
		return ""
	}
	return owner.Name
}

func isShootNamespace(namespace client.Object) bool {
	return namespace.GetLabels()[v1beta1constants.GardenRole] == v1beta1constants.GardenRoleShoot
}

func isConfirmed(record *extensionsv1alpha1.DNSRecord) bool {
	return gardenerutils.CheckIfDeletionIsConfirmed(record) == nil
}

func isDeleted(obj client.Object) bool { return obj.GetDeletionTimestamp() != nil }
