// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/extensions/pkg/controller/extension"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// AnnotationForceDeleteTest set to "true" on a Shoot has the Extension of type local-ext-shoot leave two NetworkPolicies
// with a finalizer in the shoot's namespace in the seed, as an extension does that lost its infrastructure. A deletion
// leaves them there, and the namespace with them; only a forced deletion takes them away. Gardener's own end-to-end test
// for the forced deletion of shoots sets it. It means nothing without Options.ForceDeleteTest.
const AnnotationForceDeleteTest = "test-force-delete"

// asksForLeftovers reports whether the shoot of an Extension asks for leftovers.
func (a *actuator) asksForLeftovers(op *attempt) bool {
	shoot := op.Cluster.Shoot()
	return a.kind.hasLeftovers && shoot != nil && shoot.Annotations[AnnotationForceDeleteTest] == "true"
}

// applyLeftovers applies them. Their names are fixed, so that a second reconcile makes no more of them and the way out needs no
// list, for which all NetworkPolicies of the seed would be watched.
func (a *actuator) applyLeftovers(ctx context.Context, op *attempt) error {
	for _, policy := range a.kind.leftovers(op.Object.Namespace) {
		if err := op.Apply(ctx, reconciler.Target{Client: a.client}.WithoutState(), policy); err != nil {
			return err
		}
	}
	return nil
}

// removeLeftovers removes them. That there are none is no error.
func (a *actuator) removeLeftovers(ctx context.Context, op *attempt) error {
	for _, policy := range a.kind.leftovers(op.Object.Namespace) {
		target := reconciler.Target{Client: a.client}.WithoutState()
		if err := op.Release(ctx, target, policy); err != nil {
			return err
		}
		if _, err := op.Delete(ctx, target, []client.Object{policy}); err != nil {
			return err
		}
	}
	return nil
}

// leftovers are objects in the seed which nobody but a forced deletion takes away. They select no pod, so nothing is cut off.
func (k kind) leftovers(namespace string) []*networkingv1.NetworkPolicy {
	var out []*networkingv1.NetworkPolicy
	for i := range 2 {
		out = append(out, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{
				Name:       fmt.Sprintf("%s-leftover-%d", k.extensionType, i),
				Namespace:  namespace,
				Labels:     nameLabel(k.extensionType),
				Finalizers: []string{extension.FinalizerPrefix + "/" + k.extensionType},
			},
			Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/component": "no-pod-has-this"}}},
		})
	}
	return out
}
