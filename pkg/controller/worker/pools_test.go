// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"flag"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

var update = flag.Bool("update", false, "write the golden files")

// input is what pools are rendered from.
type input struct {
	worker  *extensionsv1alpha1.Worker
	shoot   *gardencorev1beta1.Shoot
	profile *gardencorev1beta1.CloudProfile
	opts    Options
}

func newInput(t testing.TB) *input {
	t.Helper()
	in := &input{worker: newWorker(), shoot: newShoot(), profile: newCloudProfile(), opts: newOptions(t)}
	in.opts.BackupHostPath = "/buckets"
	return in
}

func (in *input) render(t testing.TB) ([]zoned, error) {
	t.Helper()
	c := newCluster(t, in.shoot, in.profile)
	cluster, err := extensioncluster.Get(t.Context(), newSeed(t, nil, c), namespace)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return in.opts.machinesOf(in.worker, cluster, nil)
}

func (in *input) mustRender(t testing.TB) []zoned {
	t.Helper()
	machines, err := in.render(t)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return machines
}

// full uses all that a pool can have.
func full(in *input) {
	p := &in.worker.Spec.Pools[0]
	p.Annotations = map[string]string{"example.org/a": "b"}
	p.Taints = []corev1.Taint{{Key: "dedicated", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
	p.Priority = new(int32(10))
	p.Volume = &extensionsv1alpha1.Volume{Size: "20Gi"}
	p.MachineControllerManagerSettings = &gardencorev1beta1.MachineControllerManagerSettings{
		MachineDrainTimeout: &metav1.Duration{Duration: time.Minute}, NodeConditions: []string{"KernelDeadlock", "ReadonlyFilesystem"}, AutoPreserveFailedMachineMax: new(int32(3)),
	}
	p.ClusterAutoscaler = &extensionsv1alpha1.ClusterAutoscalerOptions{ScaleDownUtilizationThreshold: new("0.4")}
	p.NodeTemplate = &extensionsv1alpha1.NodeTemplate{
		Capacity:        corev1.ResourceList{"cpu": resource.MustParse("1"), "gpu": resource.MustParse("0"), "memory": resource.MustParse("1Gi")},
		VirtualCapacity: corev1.ResourceList{"subdomain.domain.com/virtual-resource-name": resource.MustParse("1234567")},
	}
	in.worker.Spec.Pools[1].ProviderConfig = workerConfig("Overcommit")
	in.worker.Spec.Pools[1].Architecture = new("arm64")
	in.worker.Spec.Pools[1].UpdateStrategy = new(gardencorev1beta1.AutoInPlaceUpdate)
	in.worker.Spec.InfrastructureProviderStatus = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"InfrastructureStatus",
"machineNamespace":"infra-shoot--local--foo","ipPools":[{"ipFamily":"IPv4","name":"four","cidr":"10.0.0.0/16"},{"ipFamily":"IPv6","name":"six","cidr":"fd00::/64"}]}`)}
}

func workerConfig(sizing string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"WorkerConfig","sizing":"` + sizing + `"}`)}
}

func sharedBackups() *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"WorkerConfig","sharedBackupBuckets":true}`)}
}

func TestTheGPUsOfANodeThatIsToComeAreThoseOfTheMachineType(t *testing.T) {
	g := NewWithT(t)
	in := newInput(t)
	full(in)
	in.profile.Spec.MachineTypes[0].GPU = resource.MustParse("2")
	g.Expect(in.mustRender(t)[0].class.NodeTemplate.Capacity).To(And(
		HaveKeyWithValue(corev1.ResourceName("gpu"), resource.MustParse("2")), HaveKeyWithValue(corev1.ResourceName("nvidia.com/gpu"), resource.MustParse("2"))))
}

func TestASharedFolderOfBackupsIsTheInstances(t *testing.T) {
	g := NewWithT(t)
	in := newInput(t)
	in.opts.BackupHostPath = "/somewhere/buckets"
	in.shoot.Namespace = "garden"
	in.worker.Spec.Pools[1].ProviderConfig = sharedBackups()
	var paths []string
	for _, m := range in.mustRender(t) {
		spec, err := localv1alpha1.DecodeMachineProviderSpec(&m.class.ProviderSpec)
		g.Expect(err).NotTo(HaveOccurred())
		paths = append(paths, spec.BackupHostPath)
	}
	g.Expect(paths).To(HaveExactElements("", "", "/somewhere/buckets"))
}

func TestMachinesWithoutLimitsAreTheOperatorsToAllow(t *testing.T) {
	g := NewWithT(t)
	in := newInput(t)
	in.worker.Spec.Pools[1].ProviderConfig = workerConfig("Unlimited")
	_, err := in.render(t)
	g.Expect(err).To(MatchError(ContainSubstring("the operator does not allow sizing Unlimited: choose one of [Exact Overcommit] in the pool's providerConfig")))
	g.Expect(v1beta1helper.ExtractErrorCodes(reconcilerutils.ReconcileErrCauseOrErr(err))).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))

	in.opts.AllowedSizings = append(in.opts.AllowedSizings, localv1alpha1.MachineSizingUnlimited)
	spec, err := localv1alpha1.DecodeMachineProviderSpec(&in.mustRender(t)[2].class.ProviderSpec)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(spec.Resources.Limits).To(BeEmpty())
}

func TestMachinesHaveALimitOfDiskThoughTheirTypeHasNone(t *testing.T) {
	g := NewWithT(t)
	for _, m := range newInput(t).mustRender(t) {
		spec, err := localv1alpha1.DecodeMachineProviderSpec(&m.class.ProviderSpec)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(spec.Resources.Limits.StorageEphemeral().IsZero()).To(BeFalse())
	}
}

func TestWhatIsDeployedForPools(t *testing.T) {
	for name, change := range map[string]func(*input){
		"plain": func(*input) {},
		"full":  full,
		"without-zones": func(in *input) {
			in.worker.Spec.Pools = in.worker.Spec.Pools[1:]
			in.worker.Spec.Pools[0].Zones = nil
			in.worker.Spec.Pools[0].UpdateStrategy = new(gardencorev1beta1.ManualInPlaceUpdate)
			in.opts.AllowedSizings = []localv1alpha1.MachineSizing{"Unlimited"}
			in.worker.Spec.Pools[0].ProviderConfig = workerConfig("Unlimited")
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := newInput(t)
			change(in)
			var out strings.Builder
			for _, m := range in.mustRender(t) {
				deployment := &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: m.deployment.Name}}
				deployment.Spec.Replicas = scaling{autoscaled: true}.replicas(deployment, &m.deployment)
				mutateDeployment(deployment, &m.deployment, in.worker.Name)
				for _, obj := range []any{m.class, classSecret(m.class, []byte("user data")), deployment} {
					data, err := yaml.Marshal(obj)
					g.Expect(err).NotTo(HaveOccurred())
					out.WriteString("---\n" + string(data))
				}
			}
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				g.Expect(os.WriteFile(path, []byte(out.String()), 0o600)).To(Succeed())
			}
			want, err := os.ReadFile(path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out.String()).To(Equal(string(want)))
		})
	}
}

func TestWhatRollsMachines(t *testing.T) {
	types := func(in *input) *gardencorev1beta1.MachineType { return &in.profile.Spec.MachineTypes[0] }
	p := func(in *input) *extensionsv1alpha1.WorkerPool { return &in.worker.Spec.Pools[0] }
	for name, test := range map[string]struct {
		change           func(*input)
		rolling, inPlace bool
	}{
		"another gardener-node-agent":          {func(in *input) { p(in).NodeAgentSecretName = new("gardener-node-agent-x") }, true, true},
		"another machine type of another size": {func(in *input) { p(in).MachineType = "large" }, true, false},
		"more CPUs in the machine type":        {func(in *input) { types(in).CPU = resource.MustParse("3") }, true, false},
		"less memory in the machine type":      {func(in *input) { types(in).Memory = resource.MustParse("3Gi") }, true, false},
		"a GPU in the machine type":            {func(in *input) { types(in).GPU = resource.MustParse("1") }, true, false},
		"a volume":                             {func(in *input) { p(in).Volume = &extensionsv1alpha1.Volume{Size: "20Gi"} }, true, false},
		"another sizing of the pool":           {func(in *input) { p(in).ProviderConfig = workerConfig("Overcommit") }, true, false},
		"the seed's backup buckets": {func(in *input) {
			in.shoot.Namespace = "garden"
			p(in).ProviderConfig = sharedBackups()
		}, true, false},
		"machines in another cluster": {func(in *input) {
			in.worker.Spec.InfrastructureProviderStatus = &runtime.RawExtension{Raw: []byte(`{"machineNamespace":"infra-shoot--local--foo"}`)}
		}, true, false},
		"another sizing of the instance": {func(in *input) { in.opts.Sizing = localv1alpha1.MachineSizingOvercommit }, true, false},
		"the Kubernetes minor version, which in a rolling pool is in the node-agent's name": {func(in *input) { p(in).KubernetesVersion = new("1.35.0") }, false, true},
		"the version of the machine image, which in a rolling pool is there, too":           {func(in *input) { p(in).MachineImage.Version = "2.0.0" }, false, true},

		"another notation of the same CPUs":   {func(in *input) { types(in).CPU = resource.MustParse("2000m") }, false, false},
		"another notation of the same memory": {func(in *input) { types(in).Memory = resource.MustParse("4294967296") }, false, false},
		"the sizing that is the default":      {func(in *input) { p(in).ProviderConfig = workerConfig("Exact") }, false, false},
		"another container image of the same version": {func(in *input) {
			in.profile.Spec.ProviderConfig.Raw = []byte(strings.ReplaceAll(cloudProfileConfig, "registry.local", "mirror.local"))
		}, false, false},
		"a patch version of Kubernetes": {func(in *input) { p(in).KubernetesVersion = new("1.34.9") }, false, false},
		"labels":                        {func(in *input) { p(in).Labels = map[string]string{"a": "b"} }, false, false},
		"annotations":                   {func(in *input) { p(in).Annotations = map[string]string{"a": "b"} }, false, false},
		"taints":                        {func(in *input) { p(in).Taints = []corev1.Taint{{Key: "a"}} }, false, false},
		"minimum and maximum":           {func(in *input) { p(in).Minimum, p(in).Maximum = 0, 9 }, false, false},
		"surge and unavailability":      {func(in *input) { p(in).MaxSurge, p(in).MaxUnavailable = intstr.FromInt32(3), intstr.FromInt32(3) }, false, false},
		"priority":                      {func(in *input) { p(in).Priority = new(int32(3)) }, false, false},
		"the autoscaler's options":      {func(in *input) { p(in).ClusterAutoscaler = &extensionsv1alpha1.ClusterAutoscalerOptions{} }, false, false},
		"timeouts": {func(in *input) {
			p(in).MachineControllerManagerSettings = &gardencorev1beta1.MachineControllerManagerSettings{MachineDrainTimeout: &metav1.Duration{Duration: 1}}
		}, false, false},
		"another user data Secret":      {func(in *input) { p(in).UserDataSecretRef.Name = "other" }, false, false},
		"the node template":             {func(in *input) { p(in).NodeTemplate = &extensionsv1alpha1.NodeTemplate{} }, false, false},
		"another zone after the others": {func(in *input) { p(in).Zones = append(p(in).Zones, "2") }, false, false},
		"IP pools": {func(in *input) {
			in.worker.Spec.InfrastructureProviderStatus = &runtime.RawExtension{Raw: []byte(`{"ipPools":[{"ipFamily":"IPv4","name":"four"}]}`)}
		}, false, false},
	} {
		for strategy, want := range map[gardencorev1beta1.MachineUpdateStrategy]bool{
			gardencorev1beta1.AutoRollingUpdate: test.rolling, gardencorev1beta1.AutoInPlaceUpdate: test.inPlace, gardencorev1beta1.ManualInPlaceUpdate: test.inPlace,
		} {
			t.Run(string(strategy)+" and "+name, func(t *testing.T) {
				in := newInput(t)
				p(in).UpdateStrategy = &strategy
				before := in.mustRender(t)
				test.change(in)
				after := in.mustRender(t)
				for i := range 2 {
					rolls := after[i].deployment.ClassName != before[i].deployment.ClassName
					NewWithT(t).Expect(rolls).To(Equal(want))
				}
				NewWithT(t).Expect(after[len(after)-1].deployment.ClassName).To(HavePrefix(namespace + "-b-z1-"))
			})
		}
	}
}

func TestAMachineTypeIsALabelOfNodesIfItCanBeOne(t *testing.T) {
	g := NewWithT(t)
	in := newInput(t)
	odd := in.profile.Spec.MachineTypes[0]
	odd.Name = "small (old)"
	in.profile.Spec.MachineTypes = append(in.profile.Spec.MachineTypes, odd)
	in.worker.Spec.Pools[1].MachineType = odd.Name
	machines := in.mustRender(t)
	g.Expect(machines[0].deployment.Labels).To(HaveKeyWithValue("node.kubernetes.io/instance-type", "small"))
	g.Expect(machines[2].deployment.Labels).NotTo(HaveKey("node.kubernetes.io/instance-type"))
}

// TestTheArchitectureOfNodesIsThatOfTheSeed has Gardener say amd64, which is its default.
func TestTheArchitectureOfNodesIsThatOfTheSeed(t *testing.T) {
	const label = "kubernetes.io/arch"
	g := NewWithT(t)
	in := newInput(t)
	g.Expect(in.mustRender(t)[0].deployment.Labels).NotTo(HaveKey(label))

	in.worker.Spec.Pools[0].Labels = map[string]string{label: "other"}
	g.Expect(in.mustRender(t)[0].deployment.Labels).To(HaveKeyWithValue(label, goruntime.GOARCH))

	in.worker.Spec.InfrastructureProviderStatus = &runtime.RawExtension{Raw: []byte(`{"machineNamespace":"infra-shoot--local--foo"}`)}
	g.Expect(in.mustRender(t)[0].deployment.Labels).To(HaveKeyWithValue(label, "other"), "another cluster may have another")
}

func TestAMistakeIsAConfigurationProblemThatNamesPoolAndRemedy(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*input)
		message string
	}{
		"an unknown machine type": {func(in *input) { in.worker.Spec.Pools[1].MachineType = "huge" },
			`worker pool b: the CloudProfile local has no machine type "huge": add it to spec.machineTypes, or choose another one for the pool`},
		"an unknown version of a machine image": {func(in *input) { in.worker.Spec.Pools[0].MachineImage.Version = "9.0.0" },
			"worker pool a: could not find machine image for local/9.0.0 neither in cloud profile nor in worker status: add the version with its container image to machineImages in spec.providerConfig of the CloudProfile"},
		"an unknown machine image":              {func(in *input) { in.worker.Spec.Pools[0].MachineImage.Name = "other" }, "could not find machine image for other/1.0.0"},
		"a CloudProfile without providerConfig": {func(in *input) { in.profile.Spec.ProviderConfig = nil }, "could not find machine image for local/1.0.0"},
		"a CloudProfile with a wrong field": {func(in *input) {
			in.profile.Spec.ProviderConfig.Raw = []byte(strings.Replace(cloudProfileConfig, "machineImages", "machineimages", 1))
		},
			"CloudProfile local: spec.providerConfig: "},
		"a version without image": {func(in *input) {
			in.profile.Spec.ProviderConfig.Raw = []byte(strings.Replace(cloudProfileConfig, `,"image":"registry.local/machine:1"`, "", 1))
		}, "version 1.0.0 of machine image local has no image in spec.providerConfig of the CloudProfile: set it"},
		"a data volume for the kubelet": {func(in *input) { in.worker.Spec.Pools[1].KubeletDataVolumeName = new("kubelet") },
			"worker pool b: machines have no data volumes: take kubeletDataVolumeName from the pool"},
		"a pool with an unknown sizing": {func(in *input) { in.worker.Spec.Pools[0].ProviderConfig = workerConfig("Tiny") }, "worker pool a: the operator does not allow sizing Tiny: choose one of [Exact Overcommit]"},
		"the seed's backups for a shoot of a project": {func(in *input) { in.worker.Spec.Pools[1].ProviderConfig = sharedBackups() },
			"worker pool b: the machines could read the backups of all shoots of the seed, which only a Shoot in the namespace garden may ask for: take sharedBackupBuckets out of the pool's providerConfig"},
		"the seed's backups for machines that are elsewhere": {func(in *input) {
			in.shoot.Namespace = "garden"
			in.worker.Spec.InfrastructureProviderStatus = &runtime.RawExtension{Raw: []byte(`{"machineNamespace":"infra-shoot--local--foo"}`)}
			in.worker.Spec.Pools[1].ProviderConfig = sharedBackups()
		}, "worker pool b: the machines are not in the cluster with the seed's backup buckets: take sharedBackupBuckets out"},
		"a pool with a wrong field": {func(in *input) {
			in.worker.Spec.Pools[0].ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"kind":"WorkerConfig","apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","size":1}`)}
		}, "worker pool a: providerConfig: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := newInput(t)
			test.change(in)
			_, err := in.render(t)
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
			g.Expect(v1beta1helper.ExtractErrorCodes(reconcilerutils.ReconcileErrCauseOrErr(err))).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
		})
	}
}

func TestWhatNoUserCanPutRightIsNoConfigurationProblem(t *testing.T) {
	for name, change := range map[string]func(*input){
		"no node-agent Secret": func(in *input) { in.worker.Spec.Pools[0].NodeAgentSecretName = nil },
		"a status of the Infrastructure that is no JSON": func(in *input) {
			in.worker.Spec.InfrastructureProviderStatus = &runtime.RawExtension{Raw: []byte("[]")}
		},
		"no CloudProfile": func(in *input) { in.profile = nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := newInput(t)
			change(in)
			_, err := in.render(t)
			g.Expect(err).To(HaveOccurred())
			g.Expect(v1beta1helper.ExtractErrorCodes(reconcilerutils.ReconcileErrCauseOrErr(err))).To(BeEmpty())
		})
	}
}

const flavoredConfig = `{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"CloudProfileConfig","machineImages":[{"name":"local","versions":[{"version":"1.0.0","capabilityFlavors":[
{"image":"amd","capabilities":{"architecture":["amd64"]}},{"image":"arm","capabilities":{"architecture":["arm64"]}}]},{"version":"2.0.0","image":"for-all"}]}]}`

func TestImagesAreFound(t *testing.T) {
	capable := func(in *input) {
		in.profile.Spec.MachineCapabilities = []gardencorev1beta1.CapabilityDefinition{{Name: "architecture", Values: []string{"amd64", "arm64"}}}
		in.profile.Spec.MachineTypes[0].Capabilities = gardencorev1beta1.Capabilities{"architecture": {"arm64"}}
		in.profile.Spec.MachineTypes[1].Capabilities = gardencorev1beta1.Capabilities{"architecture": {"amd64"}}
		in.profile.Spec.ProviderConfig.Raw = []byte(flavoredConfig)
	}
	used := func(in *input, images string) {
		in.worker.Status.ProviderStatus = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"WorkerStatus","machineImages":[` + images + `]}`)}
	}
	for name, test := range map[string]struct {
		change func(*input)
		images []string
		err    string
	}{
		"in the CloudProfile":   {func(*input) {}, []string{"registry.local/machine:1", "registry.local/machine:1"}, ""},
		"by their capabilities": {capable, []string{"arm", "amd"}, ""},
		"one for all capabilities": {func(in *input) {
			capable(in)
			in.worker.Spec.Pools[0].MachineImage.Version = "2.0.0"
		}, []string{"for-all", "amd"}, ""},
		"in the status, if the CloudProfile has dropped them": {func(in *input) {
			in.profile.Spec.ProviderConfig = nil
			used(in, `{"name":"local","version":"1.0.0","image":"kept"}`)
		}, []string{"kept", "kept"}, ""},
		"in the status by their capabilities": {func(in *input) {
			capable(in)
			in.profile.Spec.ProviderConfig = nil
			used(in, `{"name":"local","version":"1.0.0","image":"kept-amd","capabilities":{"architecture":["amd64"]}},{"name":"local","version":"1.0.0","image":"kept-arm","capabilities":{"architecture":["arm64"]}}`)
		}, []string{"kept-arm", "kept-amd"}, ""},
		"in the CloudProfile rather than in the status": {func(in *input) { used(in, `{"name":"local","version":"1.0.0","image":"old"}`) },
			[]string{"registry.local/machine:1", "registry.local/machine:1"}, ""},
		"not for a machine that is not capable": {func(in *input) {
			capable(in)
			in.profile.Spec.MachineCapabilities[0].Values = append(in.profile.Spec.MachineCapabilities[0].Values, "riscv64")
			in.profile.Spec.MachineTypes[0].Capabilities["architecture"] = []string{"riscv64"}
			used(in, `{"name":"local","version":"1.0.0","image":"kept-amd","capabilities":{"architecture":["amd64"]}}`)
		}, nil, "worker pool a: version 1.0.0 of machine image local has no image for machine type small with the capabilities map[architecture:[riscv64]]"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := newInput(t)
			test.change(in)
			machines, err := in.render(t)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect([]string{machines[0].pool.image.Image, machines[2].pool.image.Image}).To(Equal(test.images))
			images := inUse([]zoned{machines[0], machines[2], machines[2]})
			g.Expect(images).To(Equal(inUse([]zoned{machines[2], machines[0]})), "the order of pools does not matter")
		})
	}
}
