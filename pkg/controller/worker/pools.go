// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
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
	// capacity is what a Node of the pool has.
	capacity corev1.ResourceList
	// providerSpec is for the machine driver.
	providerSpec localv1alpha1.MachineProviderSpec
	// hash changes if the machines of the pool have to be replaced, or updated in place.
	hash string
}

// poolsOf returns the pools of a Worker. An error is a configuration problem that names the pool, the reason and the
// remedy, unless it is something that no user can put right.
func (o *Options) poolsOf(w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster) ([]pool, error) {
	profile := cluster.CloudProfile()
	if profile == nil || cluster.Shoot() == nil {
		return nil, fmt.Errorf("the Cluster %s has no shoot or no CloudProfile, which gardenlet writes", w.Namespace)
	}
	config, err := localv1alpha1.DecodeCloudProfileConfig(profile.Spec.ProviderConfig)
	if err != nil {
		return nil, reconciler.ConfigurationProblem(fmt.Errorf("CloudProfile %s: %w", profile.Name, err), reconciler.RetryMissing)
	}
	infrastructure, err := infrastructureStatus(w.Spec.InfrastructureProviderStatus)
	if err != nil {
		return nil, err
	}

	var (
		pools  []pool
		images = &images{config: config, definitions: profile.Spec.MachineCapabilities, used: localv1alpha1.DecodeWorkerStatus(w.Status.ProviderStatus).MachineImages}
	)
	for _, spec := range w.Spec.Pools {
		p := pool{WorkerPool: spec}
		if spec.KubeletDataVolumeName != nil {
			// gardener-node-agent would take the next best disk of the host for it, and format that.
			return nil, p.problem("machines have no data volumes: take kubeletDataVolumeName from the pool")
		}
		machineType := v1beta1helper.FindMachineTypeByName(profile.Spec.MachineTypes, spec.MachineType)
		if machineType == nil {
			return nil, p.problem("the CloudProfile %s has no machine type %q: add it to spec.machineTypes, or choose another one for the pool", profile.Name, spec.MachineType)
		}
		if p.image, err = images.find(spec.MachineImage.Name, spec.MachineImage.Version, machineType); err != nil {
			return nil, p.problem("%w", err)
		}
		workerConfig, err := localv1alpha1.DecodeWorkerConfig(spec.ProviderConfig)
		if err != nil {
			return nil, p.problem("%w", err)
		}

		volumeSize := ""
		if spec.Volume != nil {
			volumeSize = spec.Volume.Size
		}
		sizing := o.Sizing
		if workerConfig.Sizing != "" {
			sizing = workerConfig.Sizing
			if !slices.Contains(o.AllowedSizings, sizing) {
				return nil, p.problem("the operator does not allow sizing %s: choose one of %v in the pool's providerConfig", sizing, o.AllowedSizings)
			}
		}
		p.capacity = machine.Capacity(machineType, volumeSize, o.GPUResourceName)
		p.providerSpec = p.newProviderSpec(w, infrastructure, sizing)
		if workerConfig.SharedBackupBuckets {
			if err := p.shareBackupBuckets(cluster.Shoot().Namespace, o.BackupHostPath); err != nil {
				return nil, err
			}
		}
		if p.hash, err = p.newHash(cluster); err != nil {
			return nil, fmt.Errorf("worker pool %s: %w", p.Name, err)
		}
		pools = append(pools, p)
	}
	return pools, nil
}

// problem returns a configuration problem with the pool. Correcting a Shoot makes an event; a CloudProfile may not.
func (p *pool) problem(format string, args ...any) error {
	return reconciler.ConfigurationProblem(fmt.Errorf("worker pool %s: %w", p.Name, fmt.Errorf(format, args...)), reconciler.RetryMissing)
}

func (p *pool) newProviderSpec(w *extensionsv1alpha1.Worker, infrastructure *localv1alpha1.InfrastructureStatus, sizing localv1alpha1.MachineSizing) localv1alpha1.MachineProviderSpec {
	spec := localv1alpha1.MachineProviderSpec{
		Image:        p.image.Image,
		ImageVersion: p.image.Version,
		Resources:    machine.Resources(p.capacity, sizing),
	}
	spec.SetGroupVersionKind(localv1alpha1.SchemeGroupVersion.WithKind(localv1alpha1.MachineProviderSpecKind))
	if infrastructure.MachineNamespace != w.Namespace {
		spec.Namespace = infrastructure.MachineNamespace
	}
	for _, ipPool := range infrastructure.IPPools {
		switch ipPool.IPFamily {
		case "IPv4":
			spec.IPPoolNameV4 = ipPool.Name
		case "IPv6":
			spec.IPPoolNameV6 = ipPool.Name
		}
	}
	return spec
}

// shareBackupBuckets has the machines mount the folder of the seed's backup buckets. The admission refuses it elsewhere, but
// need not be there.
func (p *pool) shareBackupBuckets(shootNamespace, hostPath string) error {
	if shootNamespace != v1beta1constants.GardenNamespace {
		return p.problem("the machines could read the backups of all shoots of the seed, which only a Shoot in the namespace garden may ask for: take sharedBackupBuckets out of the pool's providerConfig")
	}
	if p.providerSpec.Namespace != "" {
		return p.problem("the machines are not in the cluster with the seed's backup buckets: take sharedBackupBuckets out of the pool's providerConfig")
	}
	p.providerSpec.BackupHostPath = hostPath
	return nil
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

// keepClassesInPlace has pools that are updated in place keep the classes that are deployed. Their hashes depend on the Cluster,
// which says that credentials are rotated before all is ready for that: Gardener asks for the update then.
func keepClassesInPlace(pools []pool, deployed []machinev1alpha1.MachineDeployment) {
	for i := range pools {
		if !v1beta1helper.IsUpdateStrategyInPlace(pools[i].UpdateStrategy) {
			continue
		}
		for j := range deployed {
			if hash := classHash(&deployed[j]); hash != "" && deployed[j].Labels[v1beta1constants.LabelWorkerPool] == pools[i].Name {
				pools[i].hash = hash
			}
		}
	}
}

// classHash returns the hash of the pool that a MachineDeployment was deployed for; empty if its class has another name.
func classHash(d *machinev1alpha1.MachineDeployment) string {
	hash, _ := strings.CutPrefix(d.Spec.Template.Spec.Class.Name, d.Name+"-")
	if hash == d.Spec.Template.Spec.Class.Name {
		return ""
	}
	return hash
}

// newHash returns the hash of the pool; the comment on the package tells what goes into it.
func (p *pool) newHash(cluster *extensioncluster.Cluster) (string, error) {
	resources := p.providerSpec.Resources
	rolling := []string{canonical(resources.Requests), canonical(resources.Limits)}
	if namespace := p.providerSpec.Namespace; namespace != "" {
		rolling = append(rolling, namespace)
	}
	if path := p.providerSpec.BackupHostPath; path != "" {
		rolling = append(rolling, path)
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

// infrastructureStatus decodes what the Infrastructure controller has found out. None means the Worker's own namespace.
func infrastructureStatus(raw *runtime.RawExtension) (*localv1alpha1.InfrastructureStatus, error) {
	status := &localv1alpha1.InfrastructureStatus{}
	if raw == nil || len(raw.Raw) == 0 {
		return status, nil
	}
	if err := json.Unmarshal(raw.Raw, status); err != nil {
		return nil, fmt.Errorf("decoding spec.infrastructureProviderStatus: %w", err)
	}
	return status, nil
}
