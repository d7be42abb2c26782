// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// machineCluster are the values of the chart of cloud-controller that say where the machines are.
func (a *actuator) machineCluster(ctx context.Context, cp *extensionsv1alpha1.ControlPlane) (map[string]any, error) {
	if a.Clusters == nil {
		return a.seedOfMachines(ctx)
	}
	cluster, err := a.Clusters.Get(ctx, cp.Spec.SecretRef, cp.Namespace)
	if err != nil {
		return nil, reconciler.RetrySlowly(err)
	}
	if !cluster.Remote {
		return a.seedOfMachines(ctx)
	}
	if ref := cp.Spec.SecretRef; ref.Namespace != cp.Namespace {
		return nil, reconciler.ConfigurationProblem(
			fmt.Errorf("the Secret %s/%s with the kubeconfig for the machines is not in the namespace of the shoot, %s, so cloud-controller can't use it", ref.Namespace, ref.Name, cp.Namespace),
			reconciler.RetryMistake,
		)
	}
	values := map[string]any{"remote": true, "secretName": cp.Spec.SecretRef.Name, "namespace": cluster.Namespace}
	if len(a.AllowedCIDRs) > 0 {
		values["allowedCIDRs"] = a.AllowedCIDRs
	}
	return values, nil
}

// nodesFor is how long it is remembered whether the seed has several nodes.
const nodesFor = 10 * time.Minute

// seedOfMachines looks at how many nodes the seed has, once for all ControlPlanes that come within a while. Where that is not
// to be known, it has several.
func (a *actuator) seedOfMachines(ctx context.Context) (map[string]any, error) {
	const oneNode = "oneNode"
	if known, ok := a.nodes.Get(oneNode); ok {
		return map[string]any{oneNode: known}, nil
	}
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := a.reader.List(ctx, nodes, client.Limit(2)); err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("counting the nodes of the seed: %w", err)
	}
	a.nodes.Set(oneNode, len(nodes.Items) == 1, nodesFor)
	return map[string]any{oneNode: len(nodes.Items) == 1}, nil
}
