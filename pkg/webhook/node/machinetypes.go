// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
)

const (
	// maxShoots is of how many shoots the capacities of the worker pools are remembered. That is a few hundred bytes each; a
	// seed has some hundred shoots.
	maxShoots = 1000
	// maxProfiles is of how many CloudProfiles the machine types are shared by their shoots.
	maxProfiles = 20
)

// machineTypes knows how much a machine of a worker pool has.
type machineTypes struct {
	reader   client.Reader
	fallback corev1.ResourceList
	// gpu is the resource for the GPUs of a machine type.
	gpu corev1.ResourceName
	// shoots has a *shootTypes for a namespace.
	shoots *lru.Cache
	// profiles has the types of the last shootTypes for the name of a CloudProfile.
	profiles *lru.Cache
}

// shootTypes are the machine types and worker pools of one version of a Cluster.
type shootTypes struct {
	resourceVersion string
	// types have the capacity of each machine type.
	types map[string]corev1.ResourceList
	pools map[string]poolCapacity
}

type poolCapacity struct {
	machineType string
	// volume is what all machines of the pool have, of whatever type.
	volume corev1.ResourceList
	// capacity is that of machineType and volume.
	capacity corev1.ResourceList
}

// of returns the capacity of a Node. Its own machine type counts, which it gets as a label, where it is known: a machine
// keeps its size until it is replaced, though the pool has another type by then or is gone.
func (s *shootTypes) of(pool, machineType string) (corev1.ResourceList, bool) {
	p, known := s.pools[pool]
	own, ok := s.types[machineType]
	if !ok || known && machineType == p.machineType {
		return p.capacity, known
	}
	return with(own, p.volume), true
}

func with(list, more corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(list)
	maps.Copy(out, more)
	return out
}

func newMachineTypes(reader client.Reader, fallback corev1.ResourceList, gpu corev1.ResourceName) *machineTypes {
	return &machineTypes{reader: reader, fallback: fallback, gpu: gpu, shoots: lru.New(maxShoots), profiles: lru.New(maxProfiles)}
}

// capacity is a capacityFunc. Nodes of the seed, and those of which no machine type is known, have the fallback.
func (m *machineTypes) capacity(ctx context.Context, labels map[string]string) corev1.ResourceList {
	namespace, pool := webhook.ShootNamespace(ctx), labels[v1beta1constants.LabelWorkerPool]
	if namespace == "" || pool == "" {
		return m.fallback
	}
	if capacity, ok := m.shoot(ctx, namespace).of(pool, labels[corev1.LabelInstanceTypeStable]); ok {
		return capacity
	}
	return m.fallback
}

// shoot returns the machine types of a shoot. If the Cluster cannot be read they are those known last.
func (m *machineTypes) shoot(ctx context.Context, namespace string) *shootTypes {
	known := &shootTypes{}
	if value, ok := m.shoots.Get(namespace); ok {
		known = value.(*shootTypes)
	}

	// Only the version is looked at, for which the cache needs not make a copy of all that is in a Cluster.
	cluster := &extensionsv1alpha1.Cluster{}
	err := m.reader.Get(ctx, client.ObjectKey{Name: namespace}, cluster, &client.GetOptions{UnsafeDisableDeepCopy: new(true)})
	if apierrors.IsNotFound(err) {
		m.shoots.Remove(namespace)
		return &shootTypes{}
	}
	if err != nil {
		logf.FromContext(ctx).Error(err, "The machine types of a shoot cannot be looked up", "shootNamespace", namespace)
		return known
	}
	if known.resourceVersion == cluster.ResourceVersion && cluster.ResourceVersion != "" {
		return known
	}

	decoded, err := extensioncluster.Get(ctx, m.reader, namespace)
	if err != nil {
		logf.FromContext(ctx).Error(err, "The machine types of a shoot cannot be looked up", "shootNamespace", namespace)
		if ctx.Err() != nil {
			return known
		}
		// It stays like this until there is another version.
		m.shoots.Add(namespace, &shootTypes{resourceVersion: cluster.ResourceVersion, types: known.types, pools: known.pools})
		return known
	}
	found := m.typesOf(decoded)
	found.resourceVersion = cluster.ResourceVersion
	m.shoots.Add(namespace, found)
	return found
}

func (m *machineTypes) typesOf(cluster *extensioncluster.Cluster) *shootTypes {
	shoot, profile := cluster.Shoot(), cluster.CloudProfile()
	if shoot == nil || profile == nil {
		return &shootTypes{}
	}
	out := &shootTypes{
		types: make(map[string]corev1.ResourceList, len(profile.Spec.MachineTypes)),
		pools: make(map[string]poolCapacity, len(shoot.Spec.Provider.Workers)),
	}
	for i := range profile.Spec.MachineTypes {
		machineType := &profile.Spec.MachineTypes[i]
		out.types[machineType.Name] = with(m.fallback, machine.Capacity(machineType, "", m.gpu))
	}
	out.types = m.shared(profile.Name, out.types)
	for _, worker := range shoot.Spec.Provider.Workers {
		capacity, ok := out.types[worker.Machine.Type]
		if !ok {
			continue
		}
		p := poolCapacity{machineType: worker.Machine.Type}
		if worker.Volume != nil {
			p.volume = machine.Capacity(nil, worker.Volume.VolumeSize, m.gpu)
		}
		p.capacity = with(capacity, p.volume)
		out.pools[worker.Name] = p
	}
	return out
}

// shared returns the same map for all shoots of a CloudProfile as long as it is the same.
func (m *machineTypes) shared(profile string, types map[string]corev1.ResourceList) map[string]corev1.ResourceList {
	if last, ok := m.profiles.Get(profile); ok {
		if last := last.(map[string]corev1.ResourceList); maps.EqualFunc(last, types, equal) {
			return last
		}
	}
	m.profiles.Add(profile, types)
	return types
}

func equal(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
}
