// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	"github.com/gardener/gardener/extensions/pkg/controller/worker/genericactuator"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// pool is a worker pool and what has been found out about it.
type pool struct {
	extensionsv1alpha1.WorkerPool
	image *localv1alpha1.MachineImage
	// capacity is what a Node of the pool has, gpu how many GPUs its machine type has.
	capacity corev1.ResourceList
	gpu      resource.Quantity
	// providerSpec is for the machine driver.
	providerSpec localv1alpha1.MachineProviderSpec
	// hash changes if the machines of the pool have to be replaced, or updated in place.
	hash string
	// userData is fetched when it is needed.
	userData []byte
}

// zoned is a pool in one of its zones.
type zoned struct {
	pool *pool
	// deployment says what the MachineDeployment is to be; its ClassName is the name of class, and of its Secret, too.
	deployment worker.MachineDeployment
	class      *machinev1alpha1.MachineClass
}

// machinesOf returns what is to be deployed for the pools of a Worker. Pools that are updated in place have the classes that
// the MachineDeployments to keep have. An error is a configuration problem that names the pool, the reason and the remedy,
// unless it is something that no user can put right.
func (o *Options) machinesOf(w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster, keep []machinev1alpha1.MachineDeployment) ([]zoned, error) {
	profile := cluster.CloudProfile()
	if profile == nil || cluster.Shoot() == nil {
		return nil, reconciler.NoCluster(w.Namespace, "a shoot and a CloudProfile")
	}
	config, problem := localv1alpha1.CloudProfileConfigAt(profile.Spec.ProviderConfig, field.NewPath("spec", "providerConfig"))
	if problem != nil {
		return nil, reconciler.ConfigurationProblem(fmt.Errorf("CloudProfile %s: %w", profile.Name, problem), reconciler.RetryMissing)
	}
	infrastructure := &localv1alpha1.InfrastructureStatus{}
	if raw := w.Spec.InfrastructureProviderStatus; raw != nil && len(raw.Raw) > 0 {
		if err := json.Unmarshal(raw.Raw, infrastructure); err != nil {
			return nil, fmt.Errorf("decoding spec.infrastructureProviderStatus: %w", err)
		}
	}
	used := localv1alpha1.DecodeWorkerStatus(w.Status.ProviderStatus).MachineImages

	var out []zoned
	for _, spec := range w.Spec.Pools {
		p := &pool{WorkerPool: spec}
		if spec.KubeletDataVolumeName != nil {
			// gardener-node-agent would take the next best disk of the host for it, and format that.
			return nil, p.problem("machines have no data volumes: take kubeletDataVolumeName from the pool")
		}
		machineType := v1beta1helper.FindMachineTypeByName(profile.Spec.MachineTypes, spec.MachineType)
		if machineType == nil {
			return nil, p.problem("the CloudProfile %s has no machine type %q: add it to spec.machineTypes, or choose another one for the pool", profile.Name, spec.MachineType)
		}
		var err error
		if p.image, err = findImage(spec.MachineImage, machineType, config, profile.Spec.MachineCapabilities, used); err != nil {
			return nil, p.problem("%w", err)
		}
		p.capacity, p.gpu = machine.Capacity(machineType, ptr.Deref(spec.Volume, extensionsv1alpha1.Volume{}).Size, o.GPUResourceName), machineType.GPU
		if err := o.setProviderSpec(p, w, infrastructure, cluster.Shoot().Namespace); err != nil {
			return nil, err
		}
		if p.hash, err = p.newHash(cluster); err != nil {
			return nil, fmt.Errorf("worker pool %s: %w", p.Name, err)
		}
		p.keepClass(keep)
		zones, err := p.inZones(w)
		if err != nil {
			return nil, fmt.Errorf("worker pool %s: %w", p.Name, err)
		}
		out = append(out, zones...)
	}
	return out, nil
}

// problem returns a configuration problem with the pool. Correcting a Shoot makes an event; a CloudProfile may not.
func (p *pool) problem(format string, args ...any) error {
	return reconciler.ConfigurationProblem(fmt.Errorf("worker pool %s: %w", p.Name, fmt.Errorf(format, args...)), reconciler.RetryMissing)
}

// setProviderSpec sets what the machine driver is told. The admission refuses that the machines mount the folder of the seed's
// backup buckets where they must not, but need not be there.
func (o *Options) setProviderSpec(p *pool, w *extensionsv1alpha1.Worker, infrastructure *localv1alpha1.InfrastructureStatus, shootNamespace string) error {
	config, problem := localv1alpha1.WorkerConfigAt(p.ProviderConfig, field.NewPath("providerConfig"))
	if problem != nil {
		return p.problem("%w", problem)
	}
	if config.Sizing != "" && !slices.Contains(o.AllowedSizings, config.Sizing) {
		return p.problem("the operator does not allow sizing %s: choose one of %v in the pool's providerConfig", config.Sizing, o.AllowedSizings)
	}

	spec := &p.providerSpec
	spec.SetGroupVersionKind(localv1alpha1.SchemeGroupVersion.WithKind(localv1alpha1.MachineProviderSpecKind))
	spec.Image, spec.ImageVersion = p.image.Image, p.image.Version
	spec.Resources = machine.Resources(p.capacity, cmp.Or(config.Sizing, o.Sizing))
	if infrastructure.MachineNamespace != w.Namespace {
		spec.Namespace = infrastructure.MachineNamespace
	}
	for _, ipPool := range infrastructure.IPPools {
		switch ipPool.IPFamily {
		case gardencorev1beta1.IPFamilyIPv4:
			spec.IPPoolNameV4 = ipPool.Name
		case gardencorev1beta1.IPFamilyIPv6:
			spec.IPPoolNameV6 = ipPool.Name
		}
	}
	switch {
	case !config.SharedBackupBuckets:
	case shootNamespace != v1beta1constants.GardenNamespace:
		return p.problem("the machines could read the backups of all shoots of the seed, which only a Shoot in the namespace garden may ask for: take sharedBackupBuckets out of the pool's providerConfig")
	case spec.Namespace != "":
		return p.problem("the machines are not in the cluster with the seed's backup buckets: take sharedBackupBuckets out of the pool's providerConfig")
	default:
		spec.BackupHostPath = o.BackupHostPath
	}
	return nil
}

// newHash returns the hash of the pool; the comment on the package tells what goes into it.
func (p *pool) newHash(cluster *extensioncluster.Cluster) (string, error) {
	spec := p.providerSpec
	rolling := []string{canonical(spec.Resources.Requests), canonical(spec.Resources.Limits)}
	for _, optional := range []string{spec.Namespace, spec.BackupHostPath} {
		if optional != "" {
			rolling = append(rolling, optional)
		}
	}
	return worker.WorkerPoolHash(p.WorkerPool, &extensionscontroller.Cluster{Shoot: cluster.Shoot()}, rolling, nil)
}

// canonical returns the same text for the same quantities, however they are written.
func canonical(list corev1.ResourceList) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		fmt.Fprintf(&out, "%s=%s;", name, resource.NewMilliQuantity(quantity.MilliValue(), resource.DecimalSI))
	}
	return out.String()
}

// keepClass has a pool that is updated in place keep the class that is deployed. Its hash depends on the Cluster, which says
// that credentials are rotated before all is ready for that: Gardener asks for the update then.
func (p *pool) keepClass(deployed []machinev1alpha1.MachineDeployment) {
	for i := range deployed {
		isOurs := v1beta1helper.IsUpdateStrategyInPlace(p.UpdateStrategy) && deployed[i].Labels[v1beta1constants.LabelWorkerPool] == p.Name
		if hash := classHash(&deployed[i]); hash != "" && isOurs {
			p.hash = hash
		}
	}
}

// classHash returns the hash of the pool that a MachineDeployment was deployed for; empty if its class has another name.
func classHash(d *machinev1alpha1.MachineDeployment) string {
	if hash, ok := strings.CutPrefix(d.Spec.Template.Spec.Class.Name, d.Name+"-"); ok {
		return hash
	}
	return ""
}

// checkStays returns an error if the machines of the pool would have to move to another cluster, but are not replaced by
// others: with a class that leads there nobody would find them any more.
func (p *pool) checkStays(existing []machinev1alpha1.MachineClass) error {
	if !v1beta1helper.IsUpdateStrategyInPlace(p.UpdateStrategy) {
		return nil
	}
	for i := range existing {
		class, spec := &existing[i], localv1alpha1.MachineProviderSpec{}
		if class.Labels[v1beta1constants.LabelWorkerPool] != p.Name || json.Unmarshal(class.ProviderSpec.Raw, &spec) != nil {
			continue
		}
		if spec.Namespace != p.providerSpec.Namespace {
			return p.problem("its machines are updated in place and cannot move to the cluster that the credentials lead to now: take the pool away and add it under another name, or have the credentials lead where they did")
		}
	}
	return nil
}

// inZones returns what is to be deployed for the pool in each of its zones. A pool without zones counts as one with a zone that
// has no name.
func (p *pool) inZones(w *extensionsv1alpha1.Worker) ([]zoned, error) {
	providerSpec, err := json.Marshal(p.providerSpec)
	if err != nil {
		return nil, err
	}
	zones := p.Zones
	if len(zones) == 0 {
		zones = []string{""}
	}
	var out []zoned
	for index, zone := range zones {
		deployment := p.deployment(w, zone, int32(index), int32(len(zones))) // #nosec G115 -- a handful of zones
		out = append(out, zoned{pool: p, deployment: deployment, class: p.class(w, deployment.ClassName, zone, providerSpec)})
	}
	return out, nil
}

func (p *pool) deployment(w *extensionsv1alpha1.Worker, zone string, index, zones int32) worker.MachineDeployment {
	name := fmt.Sprintf("%s-%s-z%d", w.Namespace, p.Name, index+1)
	settings := ptr.Deref(p.MachineControllerManagerSettings, gardencorev1beta1.MachineControllerManagerSettings{})
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
		AutoPreserveFailedMachineMax: worker.DistributeOverZones(index, ptr.Deref(settings.AutoPreserveFailedMachineMax, 0), zones),
	}
}

// labels are those of the pool, and where and of which type its machines are, since there is no cloud that would tell. By
// the type, the webhook for Nodes knows how much a machine has which is yet to be replaced by one of another type.
func (p *pool) labels(region, zone string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, p.Labels)
	if region != "" {
		labels[corev1.LabelTopologyRegion] = region
	}
	if zone != "" {
		labels[corev1.LabelTopologyZone] = zone
	}
	if len(validation.IsValidLabelValue(p.MachineType)) == 0 {
		labels[corev1.LabelInstanceTypeStable] = p.MachineType
	}
	if _, ok := labels[corev1.LabelArchStable]; ok && p.providerSpec.Namespace == "" {
		// Gardener's default is amd64. Machines in the seed have its architecture, which is ours, and so says the kubelet.
		labels[corev1.LabelArchStable] = goruntime.GOARCH
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

// class is the MachineClass in a zone. Its node template is what cluster-autoscaler takes for the next Node of the pool. The
// machine type says more than gardenlet's template, which has GPUs under the name "gpu" that cluster-autoscaler looks for.
// machine-controller-manager makes no machine of a class without a zone there: where a pool has none, the region stands for it.
func (p *pool) class(w *extensionsv1alpha1.Worker, name, zone string, providerSpec []byte) *machinev1alpha1.MachineClass {
	template := &machinev1alpha1.NodeTemplate{
		Capacity: corev1.ResourceList{}, InstanceType: p.MachineType, Region: w.Spec.Region, Zone: cmp.Or(zone, w.Spec.Region), Architecture: p.Architecture,
	}
	if p.NodeTemplate != nil {
		maps.Copy(template.Capacity, p.NodeTemplate.Capacity)
		template.VirtualCapacity = p.NodeTemplate.VirtualCapacity
	}
	maps.Copy(template.Capacity, p.capacity)
	if _, ok := template.Capacity["gpu"]; ok {
		// gardenlet's is from when the pool was made.
		template.Capacity["gpu"] = p.gpu
	}
	return &machinev1alpha1.MachineClass{
		ObjectMeta:           metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: map[string]string{v1beta1constants.LabelWorkerPool: p.Name}},
		Provider:             machine.Provider,
		ProviderSpec:         runtime.RawExtension{Raw: providerSpec},
		SecretRef:            &corev1.SecretReference{Namespace: w.Namespace, Name: name},
		CredentialsSecretRef: &corev1.SecretReference{Namespace: w.Spec.SecretRef.Namespace, Name: w.Spec.SecretRef.Name},
		NodeTemplate:         template,
	}
}

// classSecret is the Secret of a class: machine-controller-manager puts the bootstrap token into the user data.
func classSecret(class *machinev1alpha1.MachineClass, userData []byte) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: class.SecretRef.Namespace, Name: class.SecretRef.Name, Labels: labelsOfClassSecrets()},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{machine.UserDataKey: userData},
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

// findImage returns the container image of a machine image for machines of a type, given the CloudProfile's providerConfig and
// machineCapabilities, and the images in the status of the Worker for when the CloudProfile has dropped one. An error names the
// remedy.
func findImage(wanted extensionsv1alpha1.MachineImage, machineType *gardencorev1beta1.MachineType, config *localv1alpha1.CloudProfileConfig,
	definitions []gardencorev1beta1.CapabilityDefinition, used []localv1alpha1.MachineImage,
) (*localv1alpha1.MachineImage, error) {
	notFound := fmt.Errorf("%w: add the version with its container image to machineImages in spec.providerConfig of the CloudProfile, or choose another version for the pool",
		worker.ErrorMachineImageNotFound(wanted.Name, wanted.Version))
	for _, image := range config.MachineImages {
		for _, version := range image.Versions {
			if image.Name != wanted.Name || version.Version != wanted.Version {
				continue
			}
			found, err := chooseImage(image.Name, version, machineType, definitions)
			if err == nil {
				return found, nil
			}
			notFound = err
		}
	}
	for _, image := range used {
		fits := len(definitions) == 0 || v1beta1helper.AreCapabilitiesCompatible(image.Capabilities, machineType.Capabilities, definitions)
		if image.Name == wanted.Name && image.Version == wanted.Version && fits {
			return &image, nil
		}
	}
	return nil, notFound
}

// chooseImage returns the image of a version that is capable of what the machine type is. Without machineCapabilities there is
// one image for all; it counts as capable of everything where there are some.
func chooseImage(name string, version localv1alpha1.MachineImageVersion, machineType *gardencorev1beta1.MachineType, definitions []gardencorev1beta1.CapabilityDefinition) (*localv1alpha1.MachineImage, error) {
	if len(definitions) == 0 {
		if version.Image == "" {
			return nil, fmt.Errorf("version %s of machine image %s has no image in spec.providerConfig of the CloudProfile: set it, capabilityFlavors are for CloudProfiles with machineCapabilities", version.Version, name)
		}
		return &localv1alpha1.MachineImage{Name: name, Version: version.Version, Image: version.Image}, nil
	}
	flavors := version.CapabilityFlavors
	if version.Image != "" && len(flavors) == 0 {
		flavors = []localv1alpha1.MachineImageFlavor{{Image: version.Image}}
	}
	best, err := worker.FindBestImageFlavor(flavors, machineType.Capabilities, definitions)
	if err != nil {
		return nil, fmt.Errorf("version %s of machine image %s has no image for machine type %s with the capabilities %s: %w: add one to its capabilityFlavors in spec.providerConfig of the CloudProfile",
			version.Version, name, machineType.Name, machineType.Capabilities, err)
	}
	return &localv1alpha1.MachineImage{Name: name, Version: version.Version, Image: best.Image, Capabilities: best.Capabilities}, nil
}

// recordImages keeps the images of the pools in the status.
func recordImages(w *extensionsv1alpha1.Worker, machines []zoned) {
	status := &localv1alpha1.WorkerStatus{MachineImages: inUse(machines)}
	status.SetGroupVersionKind(localv1alpha1.SchemeGroupVersion.WithKind(localv1alpha1.WorkerStatusKind))
	w.Status.ProviderStatus = &runtime.RawExtension{Object: status}
}

// inUse returns the images of machines, each once, in an order that does not depend on that of the pools.
func inUse(machines []zoned) []localv1alpha1.MachineImage {
	images := map[string]localv1alpha1.MachineImage{}
	for _, m := range machines {
		image := *m.pool.image
		images[image.Name+"\n"+image.Version+"\n"+image.Image+"\n"+image.Capabilities.String()] = image
	}
	var out []localv1alpha1.MachineImage
	for _, key := range slices.Sorted(maps.Keys(images)) {
		out = append(out, images[key])
	}
	return out
}
