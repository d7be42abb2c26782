// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// driverCommand starts the machine driver in the image of gardenlet-extension. Gardener's container has arguments only,
// which follow it.
func driverCommand(allowedCIDRs []string) []string {
	command := []string{"/gardenlet-extension", "machine-controller"}
	if len(allowedCIDRs) > 0 {
		command = append(command, "--"+machine.AllowedCIDRsFlag+"="+strings.Join(allowedCIDRs, ","))
	}
	return command
}

// ensureDriver puts the container with the machine driver beside machine-controller-manager, as Gardener wants it for all
// providers. Its arguments differ for a shoot that hosts itself; without a Cluster, or a Shoot in it, it is an ordinary one.
func (m *mutator) ensureDriver(ctx context.Context, deployment *appsv1.Deployment) error {
	cluster, err := extensioncluster.Get(ctx, m.client, deployment.Namespace)
	if err != nil {
		return err
	}
	shoot := cluster.Shoot()
	if shoot == nil {
		shoot = &gardencorev1beta1.Shoot{}
	}

	container := machinecontrollermanager.ProviderSidecarContainer(shoot, deployment.Namespace, localv1alpha1.Type, m.image)
	container.Command = driverCommand(m.allowedCIDRs)
	pod := &deployment.Spec.Template.Spec
	pod.Containers = extensionswebhook.EnsureContainerWithName(pod.Containers, container)
	return nil
}

// ensureDriverPolicy lets the VerticalPodAutoscaler of machine-controller-manager look after the driver's container too.
func ensureDriverPolicy(vpa *vpaautoscalingv1.VerticalPodAutoscaler) {
	if vpa.Spec.ResourcePolicy == nil {
		vpa.Spec.ResourcePolicy = &vpaautoscalingv1.PodResourcePolicy{}
	}
	policy := vpa.Spec.ResourcePolicy
	policy.ContainerPolicies = extensionswebhook.EnsureVPAContainerResourcePolicyWithName(
		policy.ContainerPolicies, machinecontrollermanager.ProviderSidecarVPAContainerPolicy(localv1alpha1.Type))
}
