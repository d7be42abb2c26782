// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package skaffold_test has Skaffold read and render its files for every target, and checks what it makes of them: strictly
// against the types of the API, by Gardener's own validation, and against the kind configurations. It also checks that a
// change of any file that an image is made of, and of no other, is a change for Skaffold.
package skaffold_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	corevalidation "github.com/gardener/gardener/pkg/api/core/validation"
	operatorvalidation "github.com/gardener/gardener/pkg/api/operator/v1alpha1/validation"
	seedmanagementvalidation "github.com/gardener/gardener/pkg/api/seedmanagement/validation"
	gardenletconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/gardenlet/v1alpha1"
	gardencore "github.com/gardener/gardener/pkg/apis/core"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	"github.com/gardener/gardener/pkg/apis/seedmanagement"
	seedmanagementv1alpha1 "github.com/gardener/gardener/pkg/apis/seedmanagement/v1alpha1"
	gardenerkubernetes "github.com/gardener/gardener/pkg/client/kubernetes"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

const (
	runtimeFile = "skaffold/skaffold.yaml"
	virtualFile = "skaffold/skaffold-virtual-garden.yaml"
	// repository is where everything is pushed to, as kind/cluster says.
	repository = "registry.local.gardener.cloud:5001/local-skaffold"
	digest     = "@sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

// targets are the profiles of each target, and the configuration of its kind cluster, if it is one.
func targets() map[string]string {
	return map[string]string{
		"landscape": "", "landscape,network": "", "kind": "cluster.yaml", "kind,stand-ins": "cluster.yaml", "kind,caches": "cluster.yaml", "kind,zones": "cluster-zones.yaml", "kind,ipv6": "cluster-ipv6.yaml", "kind,dual-stack": "cluster-dual-stack.yaml",
	}
}

// program is Skaffold, with Helm in its PATH, run in the root of the repository.
type program struct {
	t         *testing.T
	binary    string
	artifacts string
}

// newProgram skips the test where there is no Skaffold: to build it takes two minutes, which `make check` spends.
func newProgram(t *testing.T) program {
	t.Helper()
	binary, helm := os.Getenv("TEST_ASSET_SKAFFOLD"), os.Getenv("TEST_ASSET_HELM")
	if binary == "" || helm == "" {
		t.Skip("TEST_ASSET_SKAFFOLD and TEST_ASSET_HELM name what `make check-skaffold` builds")
	}
	g := NewWithT(t)
	gardener, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/gardener/gardener").Output()
	g.Expect(err).NotTo(HaveOccurred())
	bin := t.TempDir()
	g.Expect(os.Symlink(helm, filepath.Join(bin, "helm"))).To(Succeed())
	kubeconfig := filepath.Join(bin, "kubeconfig")
	g.Expect(os.WriteFile(kubeconfig, nil, 0o600)).To(Succeed())
	root, err := filepath.Abs("..")
	g.Expect(err).NotTo(HaveOccurred())
	for name, value := range map[string]string{
		"PATH": bin + ":" + os.Getenv("PATH"), "KUBECONFIG": kubeconfig, "SKAFFOLD_CONFIG": filepath.Join(root, "skaffold", "config.yaml"),
		"SKAFFOLD_DEFAULT_REPO": repository, "GARDENER_DIR": strings.TrimSpace(string(gardener)), "BACKUP_DIR": "/buckets", "NETWORK_START": "172.30",
		"HELM_CACHE_HOME": t.TempDir(), "HELM_CONFIG_HOME": t.TempDir(), "HELM_DATA_HOME": t.TempDir(), "HOME": t.TempDir(),
	} {
		// Go's caches are below HOME unless it is said where they are.
		if name == "HOME" {
			for _, cache := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
				where, err := exec.CommandContext(t.Context(), "go", "env", cache).Output()
				g.Expect(err).NotTo(HaveOccurred())
				t.Setenv(cache, strings.TrimSpace(string(where)))
			}
		}
		t.Setenv(name, value)
	}
	return program{t: t, binary: binary, artifacts: filepath.Join(bin, "artifacts.json")}
}

func (p program) run(args ...string) []byte {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), p.binary, args...) // #nosec G204 -- what make has built
	cmd.Dir = ".."
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	NewWithT(p.t).Expect(cmd.Run()).To(Succeed(), "skaffold %v\n%s%s", args, out.String(), log.String())
	return out.Bytes()
}

// images are those that Skaffold builds, by the name in its file.
func (p program) images(file, profiles string) []string {
	p.t.Helper()
	var names []string
	// Without this flag, it would also list the dependencies, which takes a minute and is what dependencies_test.go does.
	for _, document := range documents(p.t, p.run("diagnose", "--yaml-only", "--filename", file, "--profile", profiles)) {
		var config struct {
			Build struct {
				Artifacts []struct{ Image string }
			}
		}
		NewWithT(p.t).Expect(yaml.Unmarshal(document, &config)).To(Succeed())
		for _, artifact := range config.Build.Artifacts {
			names = append(names, artifact.Image)
		}
	}
	return names
}

// render returns all objects, strictly decoded, as if all images were built and pushed.
func (p program) render(file, profiles string) []runtime.Object {
	p.t.Helper()
	g := NewWithT(p.t)
	type build struct {
		ImageName string `json:"imageName"`
		Tag       string `json:"tag"`
	}
	var builds struct {
		Builds []build `json:"builds"`
	}
	for _, name := range p.images(file, profiles) {
		tag := repository + "/" + strings.TrimPrefix(name, repository+"/") + ":v1" + digest
		builds.Builds = append(builds.Builds, build{ImageName: name, Tag: tag})
	}
	content, err := json.Marshal(builds)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(p.artifacts, content, 0o600)).To(Succeed())

	output := filepath.Join(p.t.TempDir(), "rendered.yaml")
	module := map[string]string{runtimeFile: "garden", virtualFile: "gardenlet"}[file]
	p.run("render", "--filename", file, "--module", module, "--profile", profiles, "--build-artifacts", p.artifacts, "--digest-source", "none", "--offline=true", "--output", output)
	rendered, err := os.ReadFile(output) // #nosec G304 -- just written
	g.Expect(err).NotTo(HaveOccurred())
	return decode(p.t, rendered)
}

// decode decodes all objects strictly.
func decode(t *testing.T, rendered []byte) []runtime.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme(t), serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for _, document := range documents(t, rendered) {
		object, _, err := decoder.Decode(document, nil, nil)
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(document))
		objects = append(objects, object)
	}
	return objects
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{gardenerkubernetes.AddGardenSchemeToScheme, gardenerkubernetes.AddSeedSchemeToScheme, gardenletconfigv1alpha1.AddToScheme} {
		NewWithT(t).Expect(add(all)).To(Succeed())
	}
	return all
}

func documents(t *testing.T, content []byte) [][]byte {
	t.Helper()
	var all [][]byte
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		if len(bytes.TrimSpace(document)) > 0 {
			all = append(all, document)
		}
	}
}

// only returns the one object of a type.
func only[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	found := all[T](objects)
	NewWithT(t).Expect(found).To(HaveLen(1))
	return found[0]
}

func all[T runtime.Object](objects []runtime.Object) []T {
	var found []T
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

func TestSkaffoldFindsNoFaultAndRendersWhatGardenerTakes(t *testing.T) {
	skaffold := newProgram(t)
	for profiles, config := range targets() {
		t.Run(profiles, func(t *testing.T) {
			skaffold.t = t
			g := NewWithT(t)
			objects := skaffold.render(runtimeFile, profiles)
			garden := only[*operatorv1alpha1.Garden](t, objects)
			var extensions []operatorv1alpha1.Extension
			for _, extension := range all[*operatorv1alpha1.Extension](objects) {
				g.Expect(operatorvalidation.ValidateExtension(extension)).To(BeEmpty())
				extensions = append(extensions, *extension)
			}
			g.Expect(extensions).To(HaveLen(2))
			g.Expect(operatorvalidation.ValidateGarden(garden, extensions)).To(BeEmpty())
			expectOurDigests(g, extensions)

			virtual := skaffold.render(virtualFile, profiles)
			gardenlet, seed := expectGardenlet(t, only[*seedmanagementv1alpha1.Gardenlet](t, virtual))
			g.Expect(gardenlet.Spec.Deployment.Helm.OCIRepository.GetURL()).To(HaveSuffix(digest))
			if config == "" {
				g.Expect(all[*gardencorev1beta1.CloudProfile](virtual)).To(BeEmpty(), "make up applies it")
			} else {
				expectProfile(t, only[*gardencorev1beta1.CloudProfile](t, virtual))
			}

			expectSameCluster(g, garden, seed)
			if config != "" {
				expectKind(t, profiles, "kind/"+config, garden, extensions)
			}
		})
	}
}

func TestHealthChecksAskPrometheusWhereItRuns(t *testing.T) {
	skaffold := newProgram(t)
	for profiles, asks := range map[string]bool{"landscape": false, "landscape,observability": true} {
		g := NewWithT(t)
		gardenlet := only[*seedmanagementv1alpha1.Gardenlet](t, skaffold.render(virtualFile, profiles))
		g.Expect(string(gardenlet.Spec.Config.Raw)).To(ContainSubstring(fmt.Sprintf(`"PrometheusHealthChecks":%t`, asks)), profiles)
	}
}

func TestADebuggerMayStopTheInstances(t *testing.T) {
	skaffold := newProgram(t)
	extensions := all[*operatorv1alpha1.Extension](skaffold.render(runtimeFile, "landscape,debug"))
	i := slices.IndexFunc(extensions, func(extension *operatorv1alpha1.Extension) bool { return extension.Name == "provider-local" })
	NewWithT(t).Expect(i).To(BeNumerically(">=", 0))
	deployment := extensions[i].Spec.Deployment.ExtensionDeployment
	for _, values := range []*apiextensionsv1.JSON{deployment.Values, deployment.RuntimeClusterValues} {
		NewWithT(t).Expect(string(values.Raw)).To(And(ContainSubstring(`"debug":true`), ContainSubstring(`"leaderElect":false`)))
	}
}

func TestACheckoutOfGardenerChangesImagesAndNothingElse(t *testing.T) {
	skaffold := newProgram(t)
	g := NewWithT(t)
	folder := t.TempDir()
	t.Setenv("GARDENER_IMAGES", folder)
	const vector = "images:\n- name: gardener-resource-manager\n  repository: r/resource-manager\n  tag: sha256:2\n"
	for _, deployer := range []string{"gardener-operator", "gardenlet"} {
		values, err := yaml.Marshal(map[string]any{"image": map[string]string{"repository": "r/" + deployer, "tag": "sha256:1"}, "imageVectorOverwrite": vector})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.WriteFile(filepath.Join(folder, deployer+"-images.yaml"), values, 0o600)).To(Succeed())
	}
	g.Expect(all[*appsv1.Deployment](skaffold.render(runtimeFile, "landscape,checkout"))).To(And(Not(BeEmpty()),
		HaveEach(HaveField("Spec.Template.Spec.Containers", HaveExactElements(HaveField("Image", "r/gardener-operator@sha256:1"))))))
	g.Expect(all[*corev1.ConfigMap](skaffold.render(runtimeFile, "landscape,checkout"))).To(ContainElement(HaveField("Data", HaveKeyWithValue("images_overwrite.yaml", vector))))

	released, _ := expectGardenlet(t, only[*seedmanagementv1alpha1.Gardenlet](t, skaffold.render(virtualFile, "landscape,network")))
	built, _ := expectGardenlet(t, only[*seedmanagementv1alpha1.Gardenlet](t, skaffold.render(virtualFile, "landscape,network,checkout")))
	g.Expect(built.Spec.Deployment.Image).To(HaveValue(HaveField("Repository", HaveValue(Equal("r/gardenlet")))))
	g.Expect(built.Spec.Deployment.ImageVectorOverwrite).To(HaveValue(Equal(vector)))
	built.Spec.Deployment.Image, built.Spec.Deployment.ImageVectorOverwrite = released.Spec.Deployment.Image, nil
	g.Expect(built.Spec).To(Equal(released.Spec))
}

func TestTheSecondClusterIsASeedOfTheSameGarden(t *testing.T) {
	skaffold := newProgram(t)
	g := NewWithT(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(os.WriteFile(kubeconfig, []byte("a:\n  b: c"), 0o600)).To(Succeed())
	skaffold.binary = os.Getenv("TEST_ASSET_HELM")
	objects := decode(t, skaffold.run("template", "local2", "skaffold/gardenlet", "--values", "skaffold/gardenlet/values-second.yaml", "--set", "chart=chart"+digest, "--set-file", "kubeconfig="+kubeconfig))
	gardenlet, seed := expectGardenlet(t, only[*seedmanagementv1alpha1.Gardenlet](t, objects))
	secret := only[*corev1.Secret](t, objects)
	g.Expect(gardenlet.Spec.KubeconfigSecretRef.Name).To(Equal(secret.Name))
	g.Expect(secret.StringData).To(HaveKeyWithValue("kubeconfig", "a:\n  b: c\n"))
	g.Expect(gardenlet.Name).To(Equal("local2"))
	g.Expect(seed.Ingress.Domain).To(Equal("ingress.local2.seed.local.gardener.cloud"))
	g.Expect(seed.Settings.VerticalPodAutoscaler.Enabled).To(BeTrue(), "the Garden has one in its own cluster only")
}

func TestAnotherNetworkChangesAddressesAndNothingElse(t *testing.T) {
	skaffold := newProgram(t)
	g := NewWithT(t)
	rendered := map[string]string{}
	for _, profiles := range []string{"landscape", "landscape,network"} {
		var objects []any
		for _, file := range []string{runtimeFile, virtualFile} {
			for _, object := range skaffold.render(file, profiles) {
				if extension, ok := object.(*operatorv1alpha1.Extension); ok && extension.Name == "provider-local" {
					objects = append(objects, complete(t, extension))
				}
				objects = append(objects, object)
			}
		}
		content, err := yaml.Marshal(objects)
		g.Expect(err).NotTo(HaveOccurred())
		// The landscape has no IPv6, so that another network names none.
		rendered[profiles] = regexp.MustCompile(`(?m)^.*fd00:ff::.*\n`).ReplaceAllString(string(content), "")
	}
	expected := strings.NewReplacer("172.18.", "172.30.", "10.244.0.0/16", "172.30.64.0/18", "10.96.0.0/16", "172.30.32.0/20", "10.96.0.", "172.30.32.").Replace(rendered["landscape"])
	g.Expect(rendered["landscape,network"]).To(Equal(expected))
	g.Expect(expected).To(And(ContainSubstring("172.30.255.128"), ContainSubstring("172.30.64.0/18")))
}

// complete takes the load balancers out of the values for garden and seeds, which have the same, and returns them with the
// defaults of the instances.
func complete(t *testing.T, extension *operatorv1alpha1.Extension) configv1alpha1.LoadBalancersConfiguration {
	t.Helper()
	deployment := extension.Spec.Deployment.ExtensionDeployment
	ofSeeds, ofGarden := completeValues(t, deployment.Values), completeValues(t, deployment.RuntimeClusterValues)
	NewWithT(t).Expect(ofGarden).To(Equal(ofSeeds))
	return ofSeeds
}

func completeValues(t *testing.T, raw *apiextensionsv1.JSON) configv1alpha1.LoadBalancersConfiguration {
	t.Helper()
	g := NewWithT(t)
	values := map[string]any{}
	g.Expect(json.Unmarshal(raw.Raw, &values)).To(Succeed())
	content, err := json.Marshal(values["loadBalancers"])
	g.Expect(err).NotTo(HaveOccurred())
	config := &configv1alpha1.ExtensionConfiguration{}
	g.Expect(yaml.UnmarshalStrict(content, &config.LoadBalancers)).To(Succeed())
	configv1alpha1.SetDefaults(config)
	delete(values, "loadBalancers")
	raw.Raw, err = json.Marshal(values)
	g.Expect(err).NotTo(HaveOccurred())
	return config.LoadBalancers
}

// expectOurDigests expects that the Extension of this repository names its charts and images by digest.
func expectOurDigests(g Gomega, extensions []operatorv1alpha1.Extension) {
	for _, extension := range extensions {
		if extension.Name != "provider-local" {
			continue
		}
		deployment := extension.Spec.Deployment
		for _, ref := range []string{
			deployment.ExtensionDeployment.Helm.OCIRepository.GetURL(), deployment.AdmissionDeployment.RuntimeCluster.Helm.OCIRepository.GetURL(),
			deployment.AdmissionDeployment.VirtualCluster.Helm.OCIRepository.GetURL(),
		} {
			g.Expect(ref).To(And(HavePrefix(repository), HaveSuffix(digest)))
		}
		for _, values := range [][]byte{deployment.ExtensionDeployment.Values.Raw, deployment.ExtensionDeployment.RuntimeClusterValues.Raw, deployment.AdmissionDeployment.Values.Raw} {
			g.Expect(string(values)).To(ContainSubstring(digest))
		}
		return
	}
	g.Expect(extensions).To(ContainElement(HaveField("Name", "provider-local")))
}

// expectGardenlet returns the Gardenlet, validated with the defaults of the API server, and the seed that it registers.
func expectGardenlet(t *testing.T, gardenlet *seedmanagementv1alpha1.Gardenlet) (*seedmanagementv1alpha1.Gardenlet, *gardencorev1beta1.SeedSpec) {
	t.Helper()
	g := NewWithT(t)
	config := &gardenletconfigv1alpha1.GardenletConfiguration{}
	g.Expect(yaml.UnmarshalStrict(gardenlet.Spec.Config.Raw, config)).To(Succeed())

	all := scheme(t)
	all.Default(gardenlet)
	converted := &seedmanagement.Gardenlet{}
	g.Expect(all.Convert(gardenlet, converted, nil)).To(Succeed())
	g.Expect(seedmanagementvalidation.ValidateGardenlet(converted)).To(BeEmpty())

	seed, internal := &gardencorev1beta1.Seed{ObjectMeta: gardenlet.ObjectMeta, Spec: config.SeedConfig.Spec}, &gardencore.Seed{}
	seed.Namespace = ""
	all.Default(seed)
	g.Expect(all.Convert(seed, internal, nil)).To(Succeed())
	g.Expect(corevalidation.ValidateSeed(internal)).To(BeEmpty())
	return gardenlet, &seed.Spec
}

// expectProfile expects that the CloudProfile is valid, and on kind, that its machine image is what Skaffold has built.
func expectProfile(t *testing.T, profile *gardencorev1beta1.CloudProfile) {
	t.Helper()
	g := NewWithT(t)
	config, problem := localv1alpha1.CloudProfileConfigAt(profile.Spec.ProviderConfig, nil)
	g.Expect(problem).NotTo(HaveOccurred())
	g.Expect(config.MachineImages).To(And(Not(BeEmpty()), HaveEach(HaveField("Versions", Not(BeEmpty())))))
	for _, image := range config.MachineImages {
		for _, version := range image.Versions {
			g.Expect(version.Image).To(And(HavePrefix(repository), HaveSuffix(digest)))
		}
	}
	converted := &gardencore.CloudProfile{}
	all := scheme(t)
	all.Default(profile)
	g.Expect(all.Convert(profile, converted, nil)).To(Succeed())
	g.Expect(corevalidation.ValidateCloudProfile(converted)).To(BeEmpty())
}

// expectSameCluster expects that the seed is the cluster that the Garden is in.
func expectSameCluster(g Gomega, garden *operatorv1alpha1.Garden, seed *gardencorev1beta1.SeedSpec) {
	cluster := garden.Spec.RuntimeCluster
	g.Expect(seed.Provider.Zones).To(Equal(cluster.Provider.Zones))
	g.Expect(seed.Networks.IPFamilies).To(Equal(cluster.Networking.IPFamilies))
	g.Expect(seed.Networks.Nodes).To(HaveValue(Equal(cluster.Networking.Nodes[0])))
	g.Expect(seed.Networks.Pods).To(Equal(cluster.Networking.Pods[0]))
	g.Expect(seed.Networks.Services).To(Equal(cluster.Networking.Services[0]))
}

// expectKind expects that the Garden is for the cluster of a kind configuration.
func expectKind(t *testing.T, profiles, file string, garden *operatorv1alpha1.Garden, extensions []operatorv1alpha1.Extension) {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(file) // #nosec G304 -- a file of this folder
	g.Expect(err).NotTo(HaveOccurred())
	var config struct {
		Networking struct{ IPFamily, PodSubnet, ServiceSubnet string }
		Nodes      []struct{ Labels map[string]string }
	}
	g.Expect(yaml.Unmarshal(content, &config)).To(Succeed())
	families := map[string][]gardencorev1beta1.IPFamily{
		"": {gardencorev1beta1.IPFamilyIPv4}, "ipv6": {gardencorev1beta1.IPFamilyIPv6}, "dual": {gardencorev1beta1.IPFamilyIPv6, gardencorev1beta1.IPFamilyIPv4},
	}[config.Networking.IPFamily]
	cluster := garden.Spec.RuntimeCluster
	g.Expect(cluster.Networking.IPFamilies).To(Equal(families))
	g.Expect(strings.Join(cluster.Networking.Pods, ",")).To(Equal(config.Networking.PodSubnet))
	g.Expect(strings.Join(cluster.Networking.Services, ",")).To(Equal(config.Networking.ServiceSubnet))
	// Gardener's kube-apiserver listens on "::", takes its pod's IPv6 address for its own if there is one, and wants Services of that family.
	virtual, err := netip.ParsePrefix(garden.Spec.VirtualCluster.Networking.Services[0])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(virtual.Addr().Is6()).To(Equal(slices.Contains(families, gardencorev1beta1.IPFamilyIPv6)), "Services of the virtual garden")
	var zones []string
	for _, node := range config.Nodes {
		if zone, ok := node.Labels["topology.kubernetes.io/zone"]; ok {
			zones = append(zones, zone)
		}
	}
	g.Expect(cluster.Provider.Zones).To(Equal(zones))

	for _, extension := range extensions {
		if extension.Name != "provider-local" {
			continue
		}
		var values struct {
			DNS struct {
				CoreDNS struct{ ClusterIP string }
			}
			Machines struct {
				RegistryMirrors []struct {
					Upstream string
					Hosts    []string
				}
			}
		}
		g.Expect(json.Unmarshal(extension.Spec.Deployment.ExtensionDeployment.RuntimeClusterValues.Raw, &values)).To(Succeed())
		g.Expect(json.Unmarshal(extension.Spec.Deployment.ExtensionDeployment.Values.Raw, &values)).To(Succeed())
		script, err := os.ReadFile("kind/cluster")
		g.Expect(err).NotTo(HaveOccurred())
		names := []string{"registry.local.gardener.cloud:5001"}
		if strings.Contains(profiles, "caches") {
			names = append(names, strings.Fields(string(regexp.MustCompile(`upstreams=\((.*?)\)`).FindSubmatch(script)[1]))...)
		}
		g.Expect(values.Machines.RegistryMirrors).To(HaveLen(len(names)))
		for i, mirror := range values.Machines.RegistryMirrors {
			g.Expect(mirror).To(And(HaveField("Upstream", names[i]), HaveField("Hosts", HaveLen(1))))
			host, err := url.Parse(mirror.Hosts[0])
			g.Expect(err).NotTo(HaveOccurred())
			if config.Networking.IPFamily == "ipv6" {
				g.Expect(host.Hostname()).To(Equal("registry.local.gardener.cloud"), "a DNSRecord has it")
			} else {
				g.Expect(host.Hostname()).To(Equal(fmt.Sprintf("172.18.254.%d", i+1)), "kind/cluster gives the registry the address")
			}
		}
		address, err := netip.ParseAddr(values.DNS.CoreDNS.ClusterIP)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(netip.MustParsePrefix(cluster.Networking.Services[0]).Contains(address)).To(BeTrue(), "%s is an address of a Service", address)
	}
}
