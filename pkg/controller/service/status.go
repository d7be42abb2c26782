// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

const (
	// ConditionReady is the type of the condition of a Service which reports whether it has the addresses and the fixed node
	// ports that it should have. With status False, its reason is one of those of package loadbalancer or of this one.
	ConditionReady = "LoadBalancerReady"
	// reasonAssigned is the reason of the status True.
	reasonAssigned = "Assigned"
	// actionAssign is the action that events name.
	actionAssign = "Assign"
)

// writeStatus writes addresses and condition if they differ from those of the Service, and an Event for a problem that is
// new.
func (r *reconciler) writeStatus(ctx context.Context, service *corev1.Service, ingress []corev1.LoadBalancerIngress, problem *loadbalancer.Problem) error {
	condition := metav1.Condition{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: reasonAssigned, Message: "It has all addresses and fixed node ports"}
	if problem != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, problem.Reason, problem.Message
	}

	changed := service.DeepCopy()
	isNew := meta.SetStatusCondition(&changed.Status.Conditions, condition)
	changed.Status.LoadBalancer.Ingress = ingress
	if !isNew && apiequality.Semantic.DeepEqual(service.Status.LoadBalancer.Ingress, ingress) {
		return nil
	}

	if err := r.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(service, client.MergeFromWithOptimisticLock{})); err != nil {
		return outdated(fmt.Errorf("writing the status: %w", err))
	}
	r.remember(changed)
	if isNew && problem != nil {
		r.events.Eventf(service, nil, corev1.EventTypeWarning, problem.Reason, actionAssign, "%s", problem.Message)
	}
	return nil
}

func addressesOf(ingress []corev1.LoadBalancerIngress) []netip.Addr {
	var out []netip.Addr
	for _, i := range ingress {
		if address, err := netip.ParseAddr(i.IP); err == nil {
			out = append(out, address)
		}
	}
	return out
}

// join makes one problem of two.
func join(a, b *loadbalancer.Problem) *loadbalancer.Problem {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return &loadbalancer.Problem{Reason: a.Reason, Message: a.Message + "; " + b.Message}
	}
}
