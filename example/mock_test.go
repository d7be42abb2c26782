// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package example_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	corevalidation "github.com/gardener/gardener/pkg/api/core/validation"
	"github.com/gardener/gardener/pkg/api/operator/v1alpha1/validation"
	gardencore "github.com/gardener/gardener/pkg/apis/core"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
	apiserverfeatures "github.com/gardener/gardener/pkg/apiserver/features"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
)

// readJSON reads a file as JSON.
func readJSON(t *testing.T, name string) []byte {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(name) // #nosec G304 -- an example
	g.Expect(err).NotTo(HaveOccurred())
	data, err := yaml.YAMLToJSON(content)
	g.Expect(err).NotTo(HaveOccurred())
	return data
}

// apply returns what a patch makes of an object.
func apply(t *testing.T, object []byte, name string) []byte {
	t.Helper()
	g := NewWithT(t)
	patch, err := jsonpatch.DecodePatch(readJSON(t, name))
	g.Expect(err).NotTo(HaveOccurred())
	data, err := patch.Apply(object)
	g.Expect(err).NotTo(HaveOccurred())
	return data
}

// patched returns the Extension of the other examples with the patch applied.
func patched(t *testing.T) *operatorv1alpha1.Extension {
	t.Helper()
	g := NewWithT(t)
	data := apply(t, readJSON(t, "20-operator-extension.yaml"), "mock/20-operator-extension.patch.yaml")
	extension := &operatorv1alpha1.Extension{}
	g.Expect(yaml.UnmarshalStrict(data, extension)).To(Succeed())
	return extension
}

// expectAllKinds expects the type mock of all kinds, and the type mockos.
func expectAllKinds(t *testing.T, resources []gardencorev1beta1.ControllerResource) {
	t.Helper()
	g := NewWithT(t)
	served := map[string]int{}
	for _, resource := range resources {
		if strings.HasPrefix(resource.Type, "mock") {
			served[resource.Kind+"/"+resource.Type]++
		}
	}
	expected := map[string]int{"OperatingSystemConfig/mockos": 1}
	for kind := range extensionsv1alpha1.AllExtensionKinds {
		expected[kind+"/mock"] = 1
	}
	g.Expect(served).To(Equal(expected))
}

func TestEveryExampleOfTheMockProviderIsReadByATest(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob("mock/*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveExactElements("mock/20-operator-extension.patch.yaml", "mock/21-controller-registration.yaml", "mock/50-cloudprofile.yaml",
		"mock/52-credentials.yaml", "mock/60-seed.yaml", "mock/91-shoot.yaml", "mock/99-operator-extension.patch.yaml"))
}

func TestTheLastPatchTakesBackTheFirst(t *testing.T) {
	g := NewWithT(t)
	before := readJSON(t, "20-operator-extension.yaml")
	after := apply(t, before, "mock/20-operator-extension.patch.yaml")
	g.Expect(after).NotTo(MatchJSON(before))
	g.Expect(apply(t, after, "mock/99-operator-extension.patch.yaml")).To(MatchJSON(before))
}

func TestTheOperatorTakesTheExtensionWithThePatch(t *testing.T) {
	g := NewWithT(t)
	extension := patched(t)
	g.Expect(validation.ValidateExtension(extension)).To(BeEmpty())
	expectAllKinds(t, extension.Spec.Resources)
	g.Expect(extension.Spec.Resources).To(ContainElement(HaveField("Type", "local")), "what was there stays")
	for _, values := range [][]byte{extension.Spec.Deployment.ExtensionDeployment.Values.Raw, extension.Spec.Deployment.ExtensionDeployment.RuntimeClusterValues.Raw} {
		g.Expect(string(values)).To(And(ContainSubstring(`"mock":{"enabled":true}`), ContainSubstring(`"image"`)))
	}

	extension.Spec.Resources[0].ClusterCompatibility = []gardencorev1beta1.ClusterType{gardencorev1beta1.ClusterTypeShoot}
	g.Expect(validation.ValidateExtension(extension)).NotTo(BeEmpty(), "the validation can refuse something")
}

func TestGardenerTakesTheRegistrationAndTheChartItsValues(t *testing.T) {
	g := NewWithT(t)
	deployment, registration, converted := readRegistration(t, "mock/21-controller-registration.yaml")
	expectAllKinds(t, registration.Spec.Resources)

	converted.Spec.Resources = append(converted.Spec.Resources, converted.Spec.Resources[0])
	g.Expect(corevalidation.ValidateControllerRegistration(converted)).NotTo(BeEmpty(), "so the patch of the Extension is applied once")

	values := map[string]any{}
	g.Expect(json.Unmarshal(deployment.Helm.Values.Raw, &values)).To(Succeed())
	renderer, err := chart.NewRenderer("v1.36.3")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = renderer.Render(t.Context(), chart.Embedded(os.DirFS("../charts"), "provider-local"), chart.Release{Name: "provider-mock", Namespace: "extension-provider-mock"}, values)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestGardenerTakesTheCloudProfileAndTheSeed(t *testing.T) {
	g := NewWithT(t)
	profile, convertedProfile := &gardencorev1beta1.CloudProfile{}, &gardencore.CloudProfile{}
	readAll(t, "mock/50-cloudprofile.yaml", profile)
	internal(t, profile, convertedProfile)
	g.Expect(corevalidation.ValidateCloudProfile(convertedProfile)).To(BeEmpty())

	seed, convertedSeed := &gardencorev1beta1.Seed{}, &gardencore.Seed{}
	readAll(t, "mock/60-seed.yaml", seed)
	internal(t, seed, convertedSeed)
	g.Expect(corevalidation.ValidateSeed(convertedSeed)).To(BeEmpty())
	g.Expect(seed.Spec.Backup).To(BeNil(), "etcd-druid knows no store of type mock")
	convertedSeed.Spec.Networks.Pods = ""
	g.Expect(corevalidation.ValidateSeed(convertedSeed)).NotTo(BeEmpty(), "the validation can refuse something")
}

func TestTheShootIsMadeOfWhatTheOtherExamplesOffer(t *testing.T) {
	g := NewWithT(t)
	// The validation asks for them.
	apiserverfeatures.RegisterFeatureGates()
	secret, binding := &corev1.Secret{}, &securityv1alpha1.CredentialsBinding{}
	readAll(t, "mock/52-credentials.yaml", secret, binding)
	profile, shoot := &gardencorev1beta1.CloudProfile{}, &gardencorev1beta1.Shoot{}
	readAll(t, "mock/50-cloudprofile.yaml", profile)
	readAll(t, "mock/91-shoot.yaml", shoot)

	g.Expect(shoot.Spec.CloudProfile.Name).To(Equal(profile.Name))
	g.Expect(*shoot.Spec.CredentialsBindingName).To(Equal(binding.Name))
	g.Expect(binding.CredentialsRef.Name).To(Equal(secret.Name))
	g.Expect(profile.Spec.Kubernetes.Versions).To(ContainElement(HaveField("Version", shoot.Spec.Kubernetes.Version)))
	for _, pool := range shoot.Spec.Provider.Workers {
		g.Expect(profile.Spec.MachineTypes).To(ContainElement(HaveField("Name", pool.Machine.Type)))
		g.Expect(profile.Spec.MachineImages).To(ContainElement(And(HaveField("Name", pool.Machine.Image.Name),
			HaveField("Versions", ContainElement(HaveField("Version", *pool.Machine.Image.Version))))))
		for _, zone := range pool.Zones {
			g.Expect(profile.Spec.Regions[0].Zones).To(ContainElement(HaveField("Name", zone)))
		}
	}
	converted := &gardencore.Shoot{}
	internal(t, shoot, converted)
	g.Expect(corevalidation.ValidateShoot(converted)).To(BeEmpty())
	converted.Spec.Region = ""
	g.Expect(corevalidation.ValidateShoot(converted)).NotTo(BeEmpty(), "the validation can refuse something")
}
