// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
)

// maxShoots is of how many shoots the capacities of the worker pools are remembered. That is a few hundred bytes each; a
// seed has some hundred shoots.
const maxShoots = 1000

// machineTypes knows how much a machine of a worker pool has.
type machineTypes struct {
	reader   client.Reader
	fallback corev1.ResourceList
	// gpu is the resource for the GPUs of a machine type.
	gpu corev1.ResourceName
	// pools has a *shootPools for a namespace.
	pools *lru.Cache
}

// shootPools are the worker pools of one version of a Cluster.
type shootPools struct {
	resourceVersion string
	capacity        map[string]corev1.ResourceList
}

func newMachineTypes(reader client.Reader, fallback corev1.ResourceList, gpu corev1.ResourceName) *machineTypes {
	return &machineTypes{reader: reader, fallback: fallback, gpu: gpu, pools: lru.New(maxShoots)}
}

// capacity is a capacityFunc. Nodes of the seed, and those of which no machine type is known, have the fallback.
func (m *machineTypes) capacity(ctx context.Context, labels map[string]string) corev1.ResourceList {
	namespace, pool := webhook.ShootNamespace(ctx), labels[v1beta1constants.LabelWorkerPool]
	if namespace == "" || pool == "" {
		return m.fallback
	}
	if capacity, ok := m.shoot(ctx, namespace)[pool]; ok {
		return capacity
	}
	return m.fallback
}

// shoot returns the capacities of a shoot's worker pools. If the Cluster cannot be read they are those known last.
func (m *machineTypes) shoot(ctx context.Context, namespace string) map[string]corev1.ResourceList {
	known := &shootPools{}
	if value, ok := m.pools.Get(namespace); ok {
		known = value.(*shootPools)
	}

	// Only the version is looked at, for which the cache needs not make a copy of all that is in a Cluster.
	cluster := &extensionsv1alpha1.Cluster{}
	err := m.reader.Get(ctx, client.ObjectKey{Name: namespace}, cluster, &client.GetOptions{UnsafeDisableDeepCopy: new(true)})
	if apierrors.IsNotFound(err) {
		m.pools.Remove(namespace)
		return nil
	}
	if err != nil {
		logf.FromContext(ctx).Error(err, "The machine types of a shoot cannot be looked up", "shootNamespace", namespace)
		return known.capacity
	}
	if known.resourceVersion == cluster.ResourceVersion && cluster.ResourceVersion != "" {
		return known.capacity
	}

	decoded, err := extensioncluster.Get(ctx, m.reader, namespace)
	if err != nil {
		logf.FromContext(ctx).Error(err, "The machine types of a shoot cannot be looked up", "shootNamespace", namespace)
		if ctx.Err() != nil {
			return known.capacity
		}
		// It stays like this until there is another version.
		m.pools.Add(namespace, &shootPools{resourceVersion: cluster.ResourceVersion, capacity: known.capacity})
		return known.capacity
	}
	capacity := m.ofPools(decoded)
	m.pools.Add(namespace, &shootPools{resourceVersion: cluster.ResourceVersion, capacity: capacity})
	return capacity
}

func (m *machineTypes) ofPools(cluster *extensioncluster.Cluster) map[string]corev1.ResourceList {
	shoot, profile := cluster.Shoot(), cluster.CloudProfile()
	if shoot == nil || profile == nil {
		return nil
	}
	byType := make(map[string]*gardencorev1beta1.MachineType, len(profile.Spec.MachineTypes))
	for i := range profile.Spec.MachineTypes {
		byType[profile.Spec.MachineTypes[i].Name] = &profile.Spec.MachineTypes[i]
	}

	result := make(map[string]corev1.ResourceList, len(shoot.Spec.Provider.Workers))
	for _, worker := range shoot.Spec.Provider.Workers {
		machineType, ok := byType[worker.Machine.Type]
		if !ok {
			continue
		}
		volumeSize := ""
		if worker.Volume != nil {
			volumeSize = worker.Volume.VolumeSize
		}
		capacity := maps.Clone(m.fallback)
		maps.Copy(capacity, machine.Capacity(machineType, volumeSize, m.gpu))
		result[worker.Name] = capacity
	}
	return result
}
