// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

// machineCluster are the values of the chart of cloud-controller that say where the machines are.
func (a *actuator) machineCluster(ctx context.Context, cp *extensionsv1alpha1.ControlPlane) (map[string]any, error) {
	if a.Clusters == nil {
		return a.seedOfMachines(ctx)
	}
	cluster, err := common.MachineCluster(ctx, a.Clusters, cp.Spec.SecretRef, cp.Namespace)
	if err != nil {
		return nil, err
	}
	if !cluster.Remote {
		return a.seedOfMachines(ctx)
	}
	if ref := cp.Spec.SecretRef; ref.Namespace != cp.Namespace {
		return nil, common.ConfigurationProblem(
			fmt.Errorf("the Secret %s/%s with the kubeconfig for the machines is not in the namespace of the shoot, %s, so cloud-controller can't use it", ref.Namespace, ref.Name, cp.Namespace),
			common.RetryMistake,
		)
	}
	return map[string]any{"remote": true, "secretName": cp.Spec.SecretRef.Name, "namespace": cluster.Namespace}, nil
}

// seedOfMachines looks at how many nodes the seed has. Where that is not to be known, it has several.
func (a *actuator) seedOfMachines(ctx context.Context) (map[string]any, error) {
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := a.reader.List(ctx, nodes, client.Limit(2)); err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("counting the nodes of the seed: %w", err)
	}
	return map[string]any{"oneNode": len(nodes.Items) == 1}, nil
}
