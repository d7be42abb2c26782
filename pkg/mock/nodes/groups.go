// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

const (
	// LabelWorker is on all Nodes and Leases of a Fleet in a shoot, with the name of the Worker.
	LabelWorker = "mock.provider.extensions.gardener.cloud/worker"
	// LabelGroup tells the pool and the zone of a Node, and LabelHash what it was made from.
	LabelGroup = "mock.provider.extensions.gardener.cloud/group"
	// LabelHash changes when a Node is to be replaced by another one.
	LabelHash = "mock.provider.extensions.gardener.cloud/hash"

	// annotationNotManaged tells machine-controller-manager, and gardenlet, which then expects no Machine, no
	// gardener-node-agent and no lease of that for the Node.
	annotationNotManaged = "node.machine.sapcloud.io/not-managed-by-mcm"

	// maxPrefix leaves room for the hash and the number in a name that is also a label's value.
	maxPrefix = validation.DNS1123LabelMaxLength - len("-00000-000000")

	defaultMaxPods   = 110
	defaultDiskSpace = "100Gi"
)

// group is what is wanted of one pool in one zone.
type group struct {
	// name begins the names of its Nodes.
	name, hash string
	// want is how many Nodes there are to be. While they are replaced there are at most surge more and unavailable fewer.
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

// nodeInfo is what a Node of the group says of its system.
func (g *group) nodeInfo(node string) corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		MachineID: node, SystemUUID: node, BootID: node, KernelVersion: "mock", OSImage: g.osImage, ContainerRuntimeVersion: "mock://1.0.0",
		KubeletVersion: g.version, OperatingSystem: "linux", Architecture: g.architecture,
	}
}

// groupsOf returns the groups of a Worker. What a user has to put right has a code of Gardener.
func groupsOf(w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster, gpu corev1.ResourceName) ([]*group, error) {
	profile := cluster.CloudProfile()
	if profile == nil || cluster.Shoot() == nil {
		return nil, fmt.Errorf("the Cluster %s has no shoot or no CloudProfile, which gardenlet writes", w.Namespace)
	}

	var groups []*group
	for _, pool := range w.Spec.Pools {
		machineType := v1beta1helper.FindMachineTypeByName(profile.Spec.MachineTypes, pool.MachineType)
		if machineType == nil {
			return nil, problem(pool, "the CloudProfile %s has no machine type %q: add it to spec.machineTypes, or choose another one for the pool", profile.Name, pool.MachineType)
		}
		if pool.Minimum < 0 {
			return nil, problem(pool, "a minimum of %d Nodes: it is at least zero", pool.Minimum)
		}
		version := cluster.Shoot().Spec.Kubernetes.Version
		if pool.KubernetesVersion != nil {
			version = *pool.KubernetesVersion
		}
		hash, err := hashOf(pool, machineType, cluster.Shoot())
		if err != nil {
			return nil, fmt.Errorf("worker pool %s: %w", pool.Name, err)
		}

		zones := pool.Zones
		if len(zones) == 0 {
			zones = []string{""}
		}
		for index, zone := range zones {
			g := newGroup(w, pool, zone, int32(index), int32(len(zones)))
			g.hash, g.version = hash, "v"+strings.TrimPrefix(version, "v")
			g.labels[LabelHash] = hash
			g.capacity, g.allocatable = capacityOf(pool, machineType, gpu)
			if cluster.IsHibernated() {
				g.want = 0
			}
			groups = append(groups, g)
		}
	}
	return groups, nil
}

func problem(pool extensionsv1alpha1.WorkerPool, format string, args ...any) error {
	err := fmt.Errorf("worker pool %s: %w", pool.Name, fmt.Errorf(format, args...))
	return v1beta1helper.NewErrorWithCodes(err, gardencorev1beta1.ErrorConfigurationProblem)
}

// hashOf returns the hash of a pool. As with real machines it changes with the minor version of Kubernetes, the machine
// type, the machine image, and what else Gardener replaces machines for. Nodes of a pool that is updated in place stay.
func hashOf(pool extensionsv1alpha1.WorkerPool, machineType *gardencorev1beta1.MachineType, shoot *gardencorev1beta1.Shoot) (string, error) {
	if v1beta1helper.IsUpdateStrategyInPlace(pool.UpdateStrategy) {
		return "00000", nil
	}
	size := fmt.Sprintf("%d %d %d", machineType.CPU.MilliValue(), machineType.Memory.Value(), machineType.GPU.Value())
	return worker.WorkerPoolHash(pool, &extensionscontroller.Cluster{Shoot: shoot}, []string{size}, nil)
}

func newGroup(w *extensionsv1alpha1.Worker, pool extensionsv1alpha1.WorkerPool, zone string, index, zones int32) *group {
	want := worker.DistributeOverZones(index, pool.Minimum, zones)
	g := &group{
		name:         groupName(pool.Name, index),
		want:         int(want),
		surge:        scaled(worker.DistributePositiveIntOrPercent(index, pool.MaxSurge, zones, pool.Maximum), want, true),
		unavailable:  scaled(worker.DistributePositiveIntOrPercent(index, pool.MaxUnavailable, zones, pool.Minimum), want, false),
		labels:       maps.Clone(pool.Labels),
		annotations:  maps.Clone(pool.Annotations),
		taints:       pool.Taints,
		osImage:      strings.TrimSpace("mock " + pool.MachineImage.Name + " " + pool.MachineImage.Version),
		providerID:   "mock://" + w.Namespace + "/",
		architecture: v1beta1constants.ArchitectureAMD64,
	}
	if pool.Architecture != nil {
		g.architecture = *pool.Architecture
	}
	if g.labels == nil {
		g.labels = map[string]string{}
	}
	g.labels[LabelWorker] = w.Name
	g.labels[LabelGroup] = g.name
	g.labels[v1beta1constants.LabelWorkerPool] = pool.Name
	g.labels[corev1.LabelOSStable] = "linux"
	g.labels[corev1.LabelArchStable] = g.architecture
	for name, value := range map[string]string{
		corev1.LabelInstanceTypeStable: pool.MachineType,
		corev1.LabelTopologyRegion:     w.Spec.Region,
		corev1.LabelTopologyZone:       zone,
	} {
		if value != "" && len(validation.IsValidLabelValue(value)) == 0 {
			g.labels[name] = value
		}
	}
	if pool.NodeAgentSecretName != nil {
		g.oscSecret = *pool.NodeAgentSecretName
		g.labels[v1beta1constants.LabelWorkerPoolGardenerNodeAgentSecretName] = g.oscSecret
	}
	if g.annotations == nil {
		g.annotations = map[string]string{}
	}
	g.annotations[annotationNotManaged] = "1"
	return g
}

// groupName is a DNS label: the end of a name that is too long gives way to a hash.
func groupName(pool string, index int32) string {
	name := fmt.Sprintf("%s-z%d", pool, index+1)
	if len(name) <= maxPrefix {
		return name
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:8]
	return strings.TrimRight(name[:maxPrefix-1-len(hash)], "-.") + "-" + hash
}

// scaled returns a number, or the share of Nodes that a percentage means; none for what is neither.
func scaled(value intstr.IntOrString, of int32, roundUp bool) int {
	number, err := intstr.GetScaledValueFromIntOrPercent(&value, int(of), roundUp)
	if err != nil {
		return 0
	}
	return max(number, 0)
}

// capacityOf returns what a Node of the pool has, and what of it is for pods.
func capacityOf(pool extensionsv1alpha1.WorkerPool, machineType *gardencorev1beta1.MachineType, gpu corev1.ResourceName) (capacity, allocatable corev1.ResourceList) {
	volumeSize := ""
	if pool.Volume != nil {
		volumeSize = pool.Volume.Size
	}
	capacity = machine.Capacity(machineType, volumeSize, gpu)
	if template := pool.NodeTemplate; template != nil {
		// gardenlet's template calls GPUs "gpu", which is no resource of a Node.
		for name, quantity := range template.VirtualCapacity {
			capacity[name] = quantity
		}
	}
	if _, ok := capacity[corev1.ResourceEphemeralStorage]; !ok {
		capacity[corev1.ResourceEphemeralStorage] = resource.MustParse(defaultDiskSpace)
	}
	maxPods := int32(defaultMaxPods)
	if config := pool.KubeletConfig; config != nil && config.MaxPods != nil {
		maxPods = *config.MaxPods
	}
	capacity[corev1.ResourcePods] = *resource.NewQuantity(int64(maxPods), resource.DecimalSI)

	allocatable = capacity.DeepCopy()
	if config := pool.KubeletConfig; config != nil {
		subtract(allocatable, config.KubeReserved)
	}
	return capacity, allocatable
}

// subtract takes what is reserved, but leaves a Node at least something.
func subtract(from corev1.ResourceList, reserved *gardencorev1beta1.KubeletConfigReserved) {
	if reserved == nil {
		return
	}
	for name, quantity := range map[corev1.ResourceName]*resource.Quantity{
		corev1.ResourceCPU: reserved.CPU, corev1.ResourceMemory: reserved.Memory, corev1.ResourceEphemeralStorage: reserved.EphemeralStorage,
	} {
		left, ok := from[name]
		if !ok || quantity == nil || left.Cmp(*quantity) <= 0 {
			continue
		}
		left.Sub(*quantity)
		from[name] = left
	}
}

// sameCapacity compares by value, however quantities are written.
func sameCapacity(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// hasCapacity reports whether all that is wanted is there. As with a real kubelet, resources that others add to a Node stay.
func hasCapacity(has, wanted corev1.ResourceList) bool {
	for name, quantity := range wanted {
		if found, ok := has[name]; !ok || found.Cmp(quantity) != 0 {
			return false
		}
	}
	return true
}

// hostname is the label that a kubelet gives to its Node.
func hostname(name string) string {
	if len(validation.IsValidLabelValue(name)) == 0 {
		return name
	}
	return cmp.Or(strings.TrimRight(name[:min(len(name), validation.LabelValueMaxLength)], "-_."), "node")
}
