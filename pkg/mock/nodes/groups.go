// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

const (
	// LabelWorker is on all Nodes and Leases of a Fleet in a shoot, with the name of the Worker.
	LabelWorker = "mock.provider.extensions.gardener.cloud/worker"
	// LabelGroup is the pool and the zone of a Node.
	LabelGroup = "mock.provider.extensions.gardener.cloud/group"
	// LabelHash changes when a Node must be replaced.
	LabelHash = "mock.provider.extensions.gardener.cloud/hash"

	// annotationNotManaged makes machine-controller-manager ignore a Node. gardenlet expects no Machine for it, no
	// gardener-node-agent and no lease of that.
	annotationNotManaged = "node.machine.sapcloud.io/not-managed-by-mcm"

	defaultMaxPods   = 110
	defaultDiskSpace = "100Gi"
)

// group describes the wanted Nodes of one pool in one zone.
type group struct {
	// name begins the names of its Nodes.
	name, hash string
	// want is the number of Nodes. While they are replaced there are at most surge more and unavailable fewer.
	want, surge, unavailable int

	labels, annotations map[string]string
	taints              []corev1.Taint
	// oscSecret is the Secret in the shoot with the operating system config that the Nodes claim to have applied.
	oscSecret string

	capacity, allocatable                      corev1.ResourceList
	version, osImage, providerID, architecture string
}

// nodeName returns the name of the Node with a number.
func (g *group) nodeName(number int) string { return fmt.Sprintf("%s-%s-%d", g.name, g.hash, number) }

// nodeInfo returns what a Node of the group reports about its system.
func (g *group) nodeInfo(node string) corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		MachineID: node, SystemUUID: node, BootID: node, KernelVersion: "mock", OSImage: g.osImage, ContainerRuntimeVersion: "mock://1.0.0",
		KubeletVersion: g.version, OperatingSystem: "linux", Architecture: g.architecture,
	}
}

// groupsOf returns the groups of a Worker. An error that a user has to correct has a code of Gardener.
func groupsOf(w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster, gpu corev1.ResourceName) (groups []*group, err error) {
	profile := cluster.CloudProfile()
	if profile == nil || cluster.Shoot() == nil {
		return nil, fmt.Errorf("the Cluster %s has no shoot or no CloudProfile, which gardenlet writes", w.Namespace)
	}
	total := int64(0)
	for _, pool := range w.Spec.Pools {
		machineType := v1beta1helper.FindMachineTypeByName(profile.Spec.MachineTypes, pool.MachineType)
		if machineType == nil {
			return nil, problem(pool, "the CloudProfile %s has no machine type %q: add it to spec.machineTypes, or choose another one for the pool", profile.Name, pool.MachineType)
		}
		if pool.Minimum < 0 {
			return nil, problem(pool, "a minimum of %d Nodes: it is at least zero", pool.Minimum)
		}
		if size := sizeOf(pool); size > metadataMax {
			return nil, problem(pool, "its labels, annotations and taints have %d bytes: with more than %d, Nodes are not served", size, metadataMax)
		}
		if total += int64(pool.Minimum); total > nodesMax {
			return nil, problem(pool, "with it, the shoot has %d Nodes: more than %d are not served", total, nodesMax)
		}
		// As with real machines, the hash changes with the minor version of Kubernetes, the machine type, the machine image, and
		// everything else for which Gardener replaces machines. Nodes of a pool that is updated in place stay.
		hash := "00000"
		if !v1beta1helper.IsUpdateStrategyInPlace(pool.UpdateStrategy) {
			size := fmt.Sprintf("%d %d %d", machineType.CPU.MilliValue(), machineType.Memory.Value(), machineType.GPU.Value())
			if hash, err = worker.WorkerPoolHash(pool, &extensionscontroller.Cluster{Shoot: cluster.Shoot()}, []string{size}, nil); err != nil {
				return nil, fmt.Errorf("worker pool %s: %w", pool.Name, err)
			}
		}
		version := ptr.Deref(pool.KubernetesVersion, cluster.Shoot().Spec.Kubernetes.Version)
		capacity, allocatable := capacityOf(pool, machineType, gpu)

		zones := pool.Zones
		if len(zones) == 0 {
			zones = []string{""}
		}
		for index, zone := range zones {
			g := newGroup(w, pool, hash, zone, int32(index), int32(len(zones)))
			g.version, g.capacity, g.allocatable = "v"+strings.TrimPrefix(version, "v"), capacity, allocatable
			groups = append(groups, g)
		}
	}
	return groups, nil
}

// metadataMax leaves room for the rest of a Node within cachedMax.
const metadataMax = cachedMax / 2

// sizeOf is how many bytes labels, annotations and taints of a pool's Nodes have.
func sizeOf(pool extensionsv1alpha1.WorkerPool) (size int) {
	for _, texts := range []map[string]string{pool.Labels, pool.Annotations} {
		for key, value := range texts {
			size += len(key) + len(value)
		}
	}
	for _, taint := range pool.Taints {
		size += taint.Size()
	}
	return size
}

func problem(pool extensionsv1alpha1.WorkerPool, format string, args ...any) error {
	err := fmt.Errorf("worker pool %s: %w", pool.Name, fmt.Errorf(format, args...))
	return v1beta1helper.NewErrorWithCodes(err, gardencorev1beta1.ErrorConfigurationProblem)
}

func newGroup(w *extensionsv1alpha1.Worker, pool extensionsv1alpha1.WorkerPool, hash, zone string, index, zones int32) *group {
	want := worker.DistributeOverZones(index, pool.Minimum, zones)
	g := &group{
		name:         fmt.Sprintf("%s-z%d", pool.Name, index+1), // Gardener allows 15 characters for the name of a pool.
		hash:         hash,
		want:         int(want),
		surge:        scaled(worker.DistributePositiveIntOrPercent(index, pool.MaxSurge, zones, pool.Maximum), want, true),
		unavailable:  scaled(worker.DistributePositiveIntOrPercent(index, pool.MaxUnavailable, zones, pool.Minimum), want, false),
		annotations:  utils.MergeStringMaps(pool.Annotations, map[string]string{annotationNotManaged: "1"}),
		taints:       pool.Taints,
		oscSecret:    ptr.Deref(pool.NodeAgentSecretName, ""),
		osImage:      strings.TrimSpace("mock " + pool.MachineImage.Name + " " + pool.MachineImage.Version),
		providerID:   "mock://" + w.Namespace + "/",
		architecture: ptr.Deref(pool.Architecture, v1beta1constants.ArchitectureAMD64),
	}
	g.labels = map[string]string{
		LabelWorker:                      w.Name,
		LabelGroup:                       g.name,
		LabelHash:                        hash,
		v1beta1constants.LabelWorkerPool: pool.Name,
		corev1.LabelOSStable:             "linux",
		corev1.LabelArchStable:           g.architecture,
	}
	for name, value := range map[string]string{
		corev1.LabelInstanceTypeStable:                              pool.MachineType,
		corev1.LabelTopologyRegion:                                  w.Spec.Region,
		corev1.LabelTopologyZone:                                    zone,
		v1beta1constants.LabelWorkerPoolGardenerNodeAgentSecretName: g.oscSecret,
	} {
		if value != "" && len(validation.IsValidLabelValue(value)) == 0 {
			g.labels[name] = value
		}
	}
	g.labels = utils.MergeStringMaps(pool.Labels, g.labels)
	return g
}

// scaled returns a number as it is, a percentage of the Nodes, or 0 for any other text.
func scaled(value intstr.IntOrString, of int32, roundUp bool) int {
	number, _ := intstr.GetScaledValueFromIntOrPercent(&value, int(of), roundUp)
	return max(number, 0)
}

// capacityOf returns the resources of a Node of the pool, and those that are for pods.
func capacityOf(pool extensionsv1alpha1.WorkerPool, machineType *gardencorev1beta1.MachineType, gpu corev1.ResourceName) (capacity, allocatable corev1.ResourceList) {
	capacity = machine.Capacity(machineType, ptr.Deref(pool.Volume, extensionsv1alpha1.Volume{}).Size, gpu)
	if template := pool.NodeTemplate; template != nil {
		// Not the capacity of gardenlet's template: it calls GPUs "gpu", which is no resource of a Node.
		maps.Copy(capacity, template.VirtualCapacity)
	}
	if _, ok := capacity[corev1.ResourceEphemeralStorage]; !ok {
		capacity[corev1.ResourceEphemeralStorage] = resource.MustParse(defaultDiskSpace)
	}
	config := ptr.Deref(pool.KubeletConfig, gardencorev1beta1.KubeletConfig{})
	capacity[corev1.ResourcePods] = *resource.NewQuantity(int64(ptr.Deref(config.MaxPods, defaultMaxPods)), resource.DecimalSI)

	allocatable = capacity.DeepCopy()
	reserved := ptr.Deref(config.KubeReserved, gardencorev1beta1.KubeletConfigReserved{})
	for name, quantity := range map[corev1.ResourceName]*resource.Quantity{
		corev1.ResourceCPU: reserved.CPU, corev1.ResourceMemory: reserved.Memory, corev1.ResourceEphemeralStorage: reserved.EphemeralStorage,
	} {
		// A Node is left at least something.
		if left, ok := allocatable[name]; ok && quantity != nil && left.Cmp(*quantity) > 0 {
			left.Sub(*quantity)
			allocatable[name] = left
		}
	}
	return capacity, allocatable
}

// hasCapacity reports whether a Node has all wanted resources. As with a real kubelet, resources that others add to a Node stay.
func hasCapacity(has, wanted corev1.ResourceList) bool {
	for name, quantity := range wanted {
		if found, ok := has[name]; !ok || found.Cmp(quantity) != 0 {
			return false
		}
	}
	return true
}

// existing is a Node as a plan sees it.
type existing struct {
	name, hash string
	// ready means that pods may run on it; going means that it is deleted but still there.
	ready, going bool
}

func existingOf(node *corev1.Node) existing {
	return existing{name: node.Name, hash: node.Labels[LabelHash], ready: readyOf(&node.Status).Status == corev1.ConditionTrue, going: node.DeletionTimestamp != nil}
}

// number returns the number at the end of the name; 0 without one.
func (e existing) number() int {
	number, _ := strconv.Atoi(e.name[strings.LastIndexByte(e.name, '-')+1:])
	return number
}

// plan returns which Nodes of a group to create and delete next. It is called again whenever one of them has changed. As
// machine-controller-manager does for a MachineDeployment, it replaces as many Nodes with another hash at a time as surge and
// unavailable allow. If both are zero, surge is one.
func plan(g *group, nodes []existing) (create, remove []string) {
	surge := g.surge
	if surge == 0 && g.unavailable == 0 {
		surge = 1
	}

	var (
		current, old []existing
		ready        int
		taken        = map[int]bool{}
	)
	for _, node := range nodes {
		if node.hash == g.hash {
			// The name of a deleted Node is not free yet.
			taken[node.number()] = true
		}
		switch {
		case node.going:
			continue
		case node.hash == g.hash:
			current = append(current, node)
		default:
			old = append(old, node)
		}
		if node.ready {
			ready++
		}
	}

	allowed := max(0, g.want+surge-len(old))
	for number := 0; len(current)+len(create) < min(g.want, allowed); number++ {
		if !taken[number] {
			create = append(create, g.nodeName(number))
		}
	}

	// Surplus Nodes are those with the highest numbers.
	slices.SortFunc(current, func(a, b existing) int { return cmp.Compare(a.number(), b.number()) })
	for _, node := range current[min(g.want, len(current)):] {
		remove = append(remove, node.name)
		if node.ready {
			ready--
		}
	}

	// Nodes that are not ready can go at once.
	spare := max(0, ready-max(0, g.want-g.unavailable))
	slices.SortFunc(old, func(a, b existing) int { return cmp.Compare(a.name, b.name) })
	for _, node := range old {
		switch {
		case !node.ready:
		case spare > 0:
			spare--
		default:
			continue
		}
		remove = append(remove, node.name)
	}
	return create, remove
}
