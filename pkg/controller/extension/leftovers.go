// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/extensions/pkg/controller/extension"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

// AnnotationForceDeleteTest set to "true" on a Shoot has the Extension of type local-ext-shoot leave two NetworkPolicies
// with a finalizer in the shoot's namespace in the seed, as an extension does that lost its infrastructure. A deletion
// leaves them there, and the namespace with them; only a forced deletion takes them away. Gardener's own end-to-end test
// for the forced deletion of shoots sets it. It means nothing without Options.ForceDeleteTest.
const AnnotationForceDeleteTest = "test-force-delete"

// leftovers are objects in the seed which nobody but a forced deletion takes away.
type leftovers struct {
	client client.Client
	// name is the type of the Extension.
	name string
	// allowed is set if Shoots may ask for them. Those that exist are removed in any case.
	allowed bool
}

// isAskedFor reports whether the shoot, which may be nil, asks for leftovers.
func (l leftovers) isAskedFor(shoot *gardencorev1beta1.Shoot) bool {
	return shoot != nil && shoot.Annotations[AnnotationForceDeleteTest] == "true"
}

// apply creates them unless they are there. Their names are fixed, so that a second reconcile makes no more of them and
// the way out needs no list, for which all NetworkPolicies of the seed would be watched.
func (l leftovers) apply(ctx context.Context, namespace string) error {
	for _, policy := range l.objects(namespace) {
		if err := l.client.Create(ctx, policy); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("creating NetworkPolicy %s/%s for the test of forced deletions: %w", namespace, policy.Name, err)
		}
	}
	return nil
}

// remove takes their finalizers off and deletes them. That there are none is no error.
func (l leftovers) remove(ctx context.Context, namespace string) error {
	for _, policy := range l.objects(namespace) {
		withoutFinalizers := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := l.client.Patch(ctx, policy, withoutFinalizers); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("taking the finalizers off NetworkPolicy %s/%s: %w", namespace, policy.Name, err)
		}
		if err := l.client.Delete(ctx, policy); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting NetworkPolicy %s/%s: %w", namespace, policy.Name, err)
		}
	}
	return nil
}

// objects select no pod, so nothing is cut off.
func (l leftovers) objects(namespace string) []*networkingv1.NetworkPolicy {
	var out []*networkingv1.NetworkPolicy
	for i := range 2 {
		out = append(out, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{
				Name:       fmt.Sprintf("%s-leftover-%d", l.name, i),
				Namespace:  namespace,
				Labels:     nameLabel(l.name),
				Finalizers: []string{extension.FinalizerPrefix + "/" + l.name},
			},
			Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/component": "no-pod-has-this"}}},
		})
	}
	return out
}
