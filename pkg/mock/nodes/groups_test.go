// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

func testCluster() *extensionscontroller.Cluster {
	return &extensionscontroller.Cluster{
		Shoot: &gardencorev1beta1.Shoot{Spec: gardencorev1beta1.ShootSpec{Kubernetes: gardencorev1beta1.Kubernetes{Version: "1.36.3"}}},
		CloudProfile: &gardencorev1beta1.CloudProfile{ObjectMeta: metav1.ObjectMeta{Name: "mock"}, Spec: gardencorev1beta1.CloudProfileSpec{MachineTypes: []gardencorev1beta1.MachineType{
			{Name: "small", CPU: resource.MustParse("2"), Memory: resource.MustParse("4Gi"), GPU: resource.MustParse("1")},
		}}},
	}
}

func testWorker(minimum int32, change ...func(*extensionsv1alpha1.WorkerPool)) *extensionsv1alpha1.Worker {
	pool := extensionsv1alpha1.WorkerPool{
		Name: "pool", MachineType: "small", Minimum: minimum, Maximum: minimum, MaxSurge: intstr.FromInt32(1),
		NodeAgentSecretName: new("gardener-node-agent-pool-1"),
		Labels:              map[string]string{"own": "label"},
		MachineImage:        extensionsv1alpha1.MachineImage{Name: "mock", Version: "1.0.0"},
	}
	for _, c := range change {
		c(&pool)
	}
	return &extensionsv1alpha1.Worker{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--foo--bar", Name: "bar"},
		Spec:       extensionsv1alpha1.WorkerSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "mock"}, Region: "region", Pools: []extensionsv1alpha1.WorkerPool{pool}},
	}
}

func groupsFor(w *extensionsv1alpha1.Worker, cluster *extensionscontroller.Cluster) ([]*group, error) {
	return groupsOf(w, extensioncluster.From(cluster), "nvidia.com/gpu")
}

func TestGroups(t *testing.T) {
	t.Run("a pool becomes a group in each zone, with its share of all that is counted", func(t *testing.T) {
		g := NewWithT(t)
		w := testWorker(5, func(p *extensionsv1alpha1.WorkerPool) {
			p.Zones = []string{"a", "b"}
			p.MaxSurge, p.MaxUnavailable = intstr.FromString("50%"), intstr.FromInt32(3)
		})
		groups, err := groupsFor(w, testCluster())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(groups).To(HaveLen(2))
		g.Expect(groups[0].want + groups[1].want).To(Equal(5))
		g.Expect(groups[0].unavailable + groups[1].unavailable).To(Equal(3))
		g.Expect(groups[1].surge).To(BeNumerically(">", 0))
		g.Expect(groups[0].nodeName(7)).To(HavePrefix("pool-z1-"))
		g.Expect(groups[0].nodeName(7)).To(HaveSuffix("-7"))
		g.Expect(groups[1].labels).To(And(
			HaveKeyWithValue("own", "label"), HaveKeyWithValue(LabelWorker, "bar"), HaveKeyWithValue(LabelGroup, "pool-z2"),
			HaveKeyWithValue("worker.gardener.cloud/pool", "pool"), HaveKeyWithValue("topology.kubernetes.io/zone", "b"),
			HaveKeyWithValue("topology.kubernetes.io/region", "region"), HaveKeyWithValue("node.kubernetes.io/instance-type", "small"),
			HaveKeyWithValue("kubernetes.io/os", "linux"), HaveKeyWithValue("kubernetes.io/arch", "amd64"),
			HaveKeyWithValue("worker.gardener.cloud/gardener-node-agent-secret-name", "gardener-node-agent-pool-1"),
		))
		g.Expect(groups[0].version).To(Equal("v1.36.3"))
		g.Expect(w.Spec.Pools[0].Labels).To(HaveLen(1), "the Worker is not changed")
	})

	t.Run("a pool without zones is one group, and may have its own version and architecture", func(t *testing.T) {
		g := NewWithT(t)
		groups, err := groupsFor(testWorker(1, func(p *extensionsv1alpha1.WorkerPool) {
			p.KubernetesVersion, p.Architecture = new("1.35.0"), new("arm64")
		}), testCluster())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(groups).To(HaveLen(1))
		g.Expect(groups[0].version).To(Equal("v1.35.0"))
		g.Expect(groups[0].labels).To(HaveKeyWithValue("kubernetes.io/arch", "arm64"))
		g.Expect(groups[0].labels).NotTo(HaveKey("topology.kubernetes.io/zone"))
	})

	t.Run("a Node has what its machine type, volume and kubelet say", func(t *testing.T) {
		g := NewWithT(t)
		groups, err := groupsFor(testWorker(1, func(p *extensionsv1alpha1.WorkerPool) {
			p.Volume = &extensionsv1alpha1.Volume{Size: "20Gi"}
			p.NodeTemplate = &extensionsv1alpha1.NodeTemplate{
				Capacity:        corev1.ResourceList{"gpu": resource.MustParse("1")},
				VirtualCapacity: corev1.ResourceList{"example.org/thing": resource.MustParse("3")},
			}
			p.KubeletConfig = &gardencorev1beta1.KubeletConfig{MaxPods: new(int32(30)), KubeReserved: &gardencorev1beta1.KubeletConfigReserved{CPU: new(resource.MustParse("80m")), Memory: new(resource.MustParse("100Gi"))}}
		}), testCluster())
		g.Expect(err).NotTo(HaveOccurred())
		text := map[string]string{}
		for name, quantity := range groups[0].capacity {
			text[string(name)] = quantity.String()
		}
		g.Expect(text).To(Equal(map[string]string{"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1", "ephemeral-storage": "20Gi", "pods": "30", "example.org/thing": "3"}))
		g.Expect(groups[0].allocatable.Cpu().String()).To(Equal("1920m"))
		g.Expect(groups[0].allocatable.Memory().String()).To(Equal("4Gi"), "more than there is cannot be reserved")
	})
}

func TestGroupsRoll(t *testing.T) {
	hash := func(w *extensionsv1alpha1.Worker, cluster *extensionscontroller.Cluster) string {
		groups, err := groupsFor(w, cluster)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return groups[0].hash
	}
	larger := testCluster()
	larger.CloudProfile.Spec.MachineTypes[0].CPU = resource.MustParse("4")
	spelled := testCluster()
	spelled.CloudProfile.Spec.MachineTypes[0].CPU = resource.MustParse("2000m")
	base := hash(testWorker(1), testCluster())

	for name, test := range map[string]struct {
		worker  *extensionsv1alpha1.Worker
		cluster *extensionscontroller.Cluster
		rolls   bool
	}{
		"what Gardener hashes":           {testWorker(1, func(p *extensionsv1alpha1.WorkerPool) { p.NodeAgentSecretName = new("gardener-node-agent-pool-2") }), testCluster(), true},
		"a machine type of another size": {testWorker(1), larger, true},
		"the same size in other words":   {testWorker(1), spelled, false},
		"another number of Nodes":        {testWorker(9), testCluster(), false},
		"another label":                  {testWorker(1, func(p *extensionsv1alpha1.WorkerPool) { p.Labels = nil }), testCluster(), false},
		"a patch version":                {testWorker(1, func(p *extensionsv1alpha1.WorkerPool) { p.KubernetesVersion = new("1.36.4") }), testCluster(), false},
	} {
		t.Run(name, func(t *testing.T) {
			rolled := hash(test.worker, test.cluster) != base
			NewWithT(t).Expect(rolled).To(Equal(test.rolls))
		})
	}

	t.Run("nothing where updates are in place", func(t *testing.T) {
		inPlace := func(secret string) string {
			return hash(testWorker(1, func(p *extensionsv1alpha1.WorkerPool) {
				p.UpdateStrategy, p.NodeAgentSecretName = new(gardencorev1beta1.AutoInPlaceUpdate), &secret
			}), testCluster())
		}
		NewWithT(t).Expect(inPlace("a")).To(Equal(inPlace("b")))
	})
}

func TestGroupsOfMistakes(t *testing.T) {
	noProfile := testCluster()
	noProfile.CloudProfile = nil
	huge := testWorker(1)
	huge.Spec.Pools = append(huge.Spec.Pools, testWorker(2_000_000_000).Spec.Pools...)
	for name, test := range map[string]struct {
		worker  *extensionsv1alpha1.Worker
		cluster *extensionscontroller.Cluster
		message string
		codes   []gardencorev1beta1.ErrorCode
	}{
		"a machine type that is not there": {testWorker(1, func(p *extensionsv1alpha1.WorkerPool) { p.MachineType = "huge" }), testCluster(), `CloudProfile mock has no machine type "huge"`, []gardencorev1beta1.ErrorCode{gardencorev1beta1.ErrorConfigurationProblem}},
		"fewer than no Nodes":              {testWorker(-1), testCluster(), "minimum of -1", []gardencorev1beta1.ErrorCode{gardencorev1beta1.ErrorConfigurationProblem}},
		"more Nodes than are served":       {huge, testCluster(), "2000000001 Nodes", []gardencorev1beta1.ErrorCode{gardencorev1beta1.ErrorConfigurationProblem}},
		"annotations that no Node can have": {testWorker(1, func(p *extensionsv1alpha1.WorkerPool) {
			p.Annotations = map[string]string{"a": strings.Repeat("x", 40<<10)}
		}), testCluster(), "more than 32768", []gardencorev1beta1.ErrorCode{gardencorev1beta1.ErrorConfigurationProblem}},
		"no Secret of the node agent": {testWorker(1, func(p *extensionsv1alpha1.WorkerPool) { p.NodeAgentSecretName = nil }), testCluster(), "node-agent secret name", nil},
		"no CloudProfile":             {testWorker(1), noProfile, "no CloudProfile", nil},
		"no Cluster":                  {testWorker(1), nil, "no shoot", nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := groupsFor(test.worker, test.cluster)
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
			g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(test.codes))
		})
	}
}
