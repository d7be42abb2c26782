// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	"github.com/gardener/gardener/extensions/pkg/controller/worker/genericactuator"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// userDataKey is the key of the user data in the Secret of a MachineClass.
const userDataKey = "userData"

// zoned is a pool in one of its zones.
type zoned struct {
	pool *pool
	zone string
	// deployment says what the MachineDeployment is to be; its ClassName is the name of class, and of its Secret, too.
	deployment worker.MachineDeployment
	class      *machinev1alpha1.MachineClass
}

// machinesOf returns what is to be deployed for the pools of a Worker. A pool without zones counts as one with a zone that
// has no name.
func machinesOf(w *extensionsv1alpha1.Worker, pools []pool) ([]zoned, error) {
	var out []zoned
	for i := range pools {
		p := &pools[i]
		providerSpec, err := json.Marshal(p.providerSpec)
		if err != nil {
			return nil, fmt.Errorf("worker pool %s: %w", p.Name, err)
		}
		zones := p.Zones
		if len(zones) == 0 {
			zones = []string{""}
		}
		for index, zone := range zones {
			deployment := p.deployment(w, zone, int32(index), int32(len(zones))) // #nosec G115 -- a handful of zones
			out = append(out, zoned{pool: p, zone: zone, deployment: deployment, class: p.class(w, deployment.ClassName, zone, providerSpec)})
		}
	}
	return out, nil
}

func (p *pool) deployment(w *extensionsv1alpha1.Worker, zone string, index, zones int32) worker.MachineDeployment {
	name := fmt.Sprintf("%s-%s-z%d", w.Namespace, p.Name, index+1)
	preserve := int32(0)
	if settings := p.MachineControllerManagerSettings; settings != nil && settings.AutoPreserveFailedMachineMax != nil {
		preserve = worker.DistributeOverZones(index, *settings.AutoPreserveFailedMachineMax, zones)
	}
	return worker.MachineDeployment{
		Name:                         name,
		PoolName:                     p.Name,
		ClassName:                    name + "-" + p.hash,
		SecretName:                   name + "-" + p.hash,
		Minimum:                      worker.DistributeOverZones(index, p.Minimum, zones),
		Maximum:                      worker.DistributeOverZones(index, p.Maximum, zones),
		Priority:                     p.Priority,
		Strategy:                     p.strategy(index, zones),
		Labels:                       p.labels(w.Spec.Region, zone),
		Annotations:                  p.Annotations,
		Taints:                       p.Taints,
		MachineConfiguration:         genericactuator.ReadMachineConfiguration(p.WorkerPool),
		ClusterAutoscalerAnnotations: extensionsv1alpha1helper.GetMachineDeploymentClusterAutoscalerAnnotations(p.ClusterAutoscaler),
		AutoPreserveFailedMachineMax: preserve,
	}
}

// labels are those of the pool, and where and of which type its machines are, since there is no cloud that would tell. By
// the type, the webhook for Nodes knows how much a machine has which is yet to be replaced by one of another type.
func (p *pool) labels(region, zone string) map[string]string {
	labels := maps.Clone(p.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if region != "" {
		labels[corev1.LabelTopologyRegion] = region
	}
	if zone != "" {
		labels[corev1.LabelTopologyZone] = zone
	}
	if len(validation.IsValidLabelValue(p.MachineType)) == 0 {
		labels[corev1.LabelInstanceTypeStable] = p.MachineType
	}
	return labels
}

// strategy shares what may be too few or too many during an update among the zones: too few of the minimum, and too many
// on top of the maximum.
func (p *pool) strategy(index, zones int32) machinev1alpha1.MachineDeploymentStrategy {
	bounds := machinev1alpha1.UpdateConfiguration{
		MaxUnavailable: new(worker.DistributePositiveIntOrPercent(index, p.MaxUnavailable, zones, p.Minimum)),
		MaxSurge:       new(worker.DistributePositiveIntOrPercent(index, p.MaxSurge, zones, p.Maximum)),
	}
	if !v1beta1helper.IsUpdateStrategyInPlace(p.UpdateStrategy) {
		return machinev1alpha1.MachineDeploymentStrategy{
			Type:          machinev1alpha1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: &machinev1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: bounds},
		}
	}
	orchestration := machinev1alpha1.OrchestrationTypeAuto
	if v1beta1helper.IsUpdateStrategyManualInPlace(p.UpdateStrategy) {
		orchestration = machinev1alpha1.OrchestrationTypeManual
	}
	return machinev1alpha1.MachineDeploymentStrategy{
		Type:          machinev1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
		InPlaceUpdate: &machinev1alpha1.InPlaceUpdateMachineDeployment{UpdateConfiguration: bounds, OrchestrationType: orchestration},
	}
}

func (p *pool) class(w *extensionsv1alpha1.Worker, name, zone string, providerSpec []byte) *machinev1alpha1.MachineClass {
	return &machinev1alpha1.MachineClass{
		ObjectMeta:           metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: map[string]string{v1beta1constants.LabelWorkerPool: p.Name}},
		Provider:             machine.Provider,
		ProviderSpec:         runtime.RawExtension{Raw: providerSpec},
		SecretRef:            &corev1.SecretReference{Namespace: w.Namespace, Name: name},
		CredentialsSecretRef: &corev1.SecretReference{Namespace: w.Spec.SecretRef.Namespace, Name: w.Spec.SecretRef.Name},
		NodeTemplate:         p.nodeTemplate(w.Spec.Region, zone),
	}
}

// nodeTemplate is what cluster-autoscaler takes for the next Node of the pool. The machine type says more than gardenlet's
// template, which has GPUs under the name "gpu" that cluster-autoscaler looks for. machine-controller-manager makes no machine
// of a class without a zone there: where a pool has none, the region stands for it.
func (p *pool) nodeTemplate(region, zone string) *machinev1alpha1.NodeTemplate {
	template := &machinev1alpha1.NodeTemplate{
		Capacity: corev1.ResourceList{}, InstanceType: p.MachineType, Region: region, Zone: cmp.Or(zone, region), Architecture: p.Architecture,
	}
	if p.NodeTemplate != nil {
		maps.Copy(template.Capacity, p.NodeTemplate.Capacity)
		template.VirtualCapacity = p.NodeTemplate.VirtualCapacity
	}
	maps.Copy(template.Capacity, p.capacity)
	return template
}

// classSecret is the Secret of a class: machine-controller-manager puts the bootstrap token into the user data.
func classSecret(class *machinev1alpha1.MachineClass, userData []byte) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: class.SecretRef.Namespace, Name: class.SecretRef.Name, Labels: labelsOfClassSecrets()},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{userDataKey: userData},
	}
	secret.Labels[v1beta1constants.LabelWorkerPool] = class.Labels[v1beta1constants.LabelWorkerPool]
	return secret
}

// wanted returns the deployments alone, as the library has them.
func wanted(machines []zoned) worker.MachineDeployments {
	out := make(worker.MachineDeployments, 0, len(machines))
	for _, m := range machines {
		out = append(out, m.deployment)
	}
	return out
}
