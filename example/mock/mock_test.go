// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package mock_test reads the examples for the mock provider as strictly as Gardener does.
package mock_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	corevalidation "github.com/gardener/gardener/pkg/api/core/validation"
	"github.com/gardener/gardener/pkg/api/operator/v1alpha1/validation"
	gardencore "github.com/gardener/gardener/pkg/apis/core"
	gardencoreinstall "github.com/gardener/gardener/pkg/apis/core/install"
	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
	apiserverfeatures "github.com/gardener/gardener/pkg/apiserver/features"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
)

// readAll reads a file of several objects into objects, one after the other.
func readAll(t *testing.T, name string, objects ...any) {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(name) // #nosec G304 -- an example
	g.Expect(err).NotTo(HaveOccurred())
	documents := strings.Split(string(content), "\n---\n")
	g.Expect(documents).To(HaveLen(len(objects)))
	for i, object := range objects {
		g.Expect(yaml.UnmarshalStrict([]byte(documents[i]), object)).To(Succeed())
	}
}

// internal converts an object as gardener-apiserver does, with its defaults.
func internal(t *testing.T, in, out runtime.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	gardencoreinstall.Install(scheme)
	scheme.Default(in)
	NewWithT(t).Expect(scheme.Convert(in, out, nil)).To(Succeed())
}

// patched returns the Extension of the other examples with the patch applied.
func patched(t *testing.T) *operatorv1alpha1.Extension {
	t.Helper()
	g := NewWithT(t)
	read := func(name string) []byte {
		content, err := os.ReadFile(name) // #nosec G304 -- an example
		g.Expect(err).NotTo(HaveOccurred())
		data, err := yaml.YAMLToJSON(content)
		g.Expect(err).NotTo(HaveOccurred())
		return data
	}
	patch, err := jsonpatch.DecodePatch(read("20-operator-extension.patch.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	data, err := patch.Apply(read("../20-operator-extension.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
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

func TestEveryExampleIsReadByATest(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob("*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveExactElements("20-operator-extension.patch.yaml", "21-controller-registration.yaml", "50-cloudprofile.yaml",
		"52-credentials.yaml", "60-seed.yaml", "91-shoot.yaml"))
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
	deployment, registration := &gardencorev1.ControllerDeployment{}, &gardencorev1beta1.ControllerRegistration{}
	readAll(t, "21-controller-registration.yaml", deployment, registration)
	convertedDeployment, convertedRegistration := &gardencore.ControllerDeployment{}, &gardencore.ControllerRegistration{}
	internal(t, deployment, convertedDeployment)
	internal(t, registration, convertedRegistration)
	g.Expect(corevalidation.ValidateControllerDeployment(convertedDeployment)).To(BeEmpty())
	g.Expect(corevalidation.ValidateControllerRegistration(convertedRegistration)).To(BeEmpty())
	expectAllKinds(t, registration.Spec.Resources)
	g.Expect(registration.Spec.Deployment.DeploymentRefs).To(HaveExactElements(gardencorev1beta1.DeploymentRef{Name: deployment.Name}))

	convertedRegistration.Spec.Resources = append(convertedRegistration.Spec.Resources, convertedRegistration.Spec.Resources[0])
	g.Expect(corevalidation.ValidateControllerRegistration(convertedRegistration)).NotTo(BeEmpty(), "so the patch of the Extension is applied once")

	values := map[string]any{}
	g.Expect(json.Unmarshal(deployment.Helm.Values.Raw, &values)).To(Succeed())
	renderer, err := chart.NewRenderer(chart.Capabilities{KubeVersion: "v1.36.3"})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = renderer.Render(t.Context(), chart.Embedded(os.DirFS("../../charts"), "provider-local"), chart.Release{Name: "provider-mock", Namespace: "extension-provider-mock"}, values)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestGardenerTakesTheCloudProfileAndTheSeed(t *testing.T) {
	g := NewWithT(t)
	profile, convertedProfile := &gardencorev1beta1.CloudProfile{}, &gardencore.CloudProfile{}
	readAll(t, "50-cloudprofile.yaml", profile)
	internal(t, profile, convertedProfile)
	g.Expect(corevalidation.ValidateCloudProfile(convertedProfile)).To(BeEmpty())

	seed, convertedSeed := &gardencorev1beta1.Seed{}, &gardencore.Seed{}
	readAll(t, "60-seed.yaml", seed)
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
	readAll(t, "52-credentials.yaml", secret, binding)
	profile, shoot := &gardencorev1beta1.CloudProfile{}, &gardencorev1beta1.Shoot{}
	readAll(t, "50-cloudprofile.yaml", profile)
	readAll(t, "91-shoot.yaml", shoot)

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
