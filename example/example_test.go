// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package example_test reads the examples as strictly as an API server that validates them: a field that isn't there, or a
// value that Gardener refuses, fails a test rather than a user.
package example_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiserverschema "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/resource"
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

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

func read[T any](t *testing.T, name string) *T {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(name) // #nosec G304 -- an example
	g.Expect(err).NotTo(HaveOccurred())
	object := new(T)
	g.Expect(yaml.UnmarshalStrict(content, object)).To(Succeed())
	return object
}

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

// readRegistration reads a ControllerRegistration and the ControllerDeployment that it names, which Gardener has to accept. The
// last is the registration in Gardener's internal version.
func readRegistration(t *testing.T, name string) (*gardencorev1.ControllerDeployment, *gardencorev1beta1.ControllerRegistration, *gardencore.ControllerRegistration) {
	t.Helper()
	g := NewWithT(t)
	deployment, registration := &gardencorev1.ControllerDeployment{}, &gardencorev1beta1.ControllerRegistration{}
	readAll(t, name, deployment, registration)
	convertedDeployment, convertedRegistration := &gardencore.ControllerDeployment{}, &gardencore.ControllerRegistration{}
	internal(t, deployment, convertedDeployment)
	internal(t, registration, convertedRegistration)
	g.Expect(corevalidation.ValidateControllerDeployment(convertedDeployment)).To(BeEmpty())
	g.Expect(corevalidation.ValidateControllerRegistration(convertedRegistration)).To(BeEmpty())
	g.Expect(registration.Spec.Deployment.DeploymentRefs).To(HaveExactElements(gardencorev1beta1.DeploymentRef{Name: deployment.Name}))
	return deployment, registration, convertedRegistration
}

func TestEveryExampleIsReadByATest(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob("*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	others := []string{
		"10-secret-backup.yaml", "11-secret-dns.yaml", "20-operator-extension.yaml", "21-controller-registration.yaml", "30-garden.yaml", "40-extension.yaml", "50-cloudprofile.yaml",
		"51-projects.yaml", "52-credentials.yaml", "53-exposureclass.yaml", "60-seed-secrets.yaml", "96-bastion.yaml", "98-managedseed.yaml",
	}
	g.Expect(files).To(ConsistOf(append(others, slices.Collect(maps.Keys(shoots()))...)))
}

func TestGardenerAcceptsTheExposureClass(t *testing.T) {
	class, converted := &gardencorev1beta1.ExposureClass{}, &gardencore.ExposureClass{}
	readAll(t, "53-exposureclass.yaml", class)
	internal(t, class, converted)
	NewWithT(t).Expect(corevalidation.ValidateExposureClass(converted)).To(BeEmpty())
}

func TestEveryExampleSaysInWhichClusterItBelongs(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	ofMock, err := filepath.Glob("[ms]*/*.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, file := range append(files, ofMock...) {
		t.Run(file, func(t *testing.T) {
			g := NewWithT(t)
			content, err := os.ReadFile(file) // #nosec G304 -- an example
			g.Expect(err).NotTo(HaveOccurred())
			_, text, found := strings.Cut(string(content), "SPDX-License-Identifier: Apache-2.0\n\n")
			g.Expect(found).To(BeTrue())
			g.Expect(text).To(MatchRegexp("^# Cluster: (garden runtime cluster|virtual garden)\n#\n# [A-Z]"))
		})
	}
}

func TestGardenersSchemasAcceptTheExamples(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/gardener/gardener").Output()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	gardener := strings.TrimSpace(string(out))

	for name, crd := range map[string]string{
		"20-operator-extension.yaml": "operator/10-crd-operator.gardener.cloud_extensions.yaml",
		"30-garden.yaml":             "operator/10-crd-operator.gardener.cloud_gardens.yaml",
		"40-extension.yaml":          "seed-crds/10-crd-extensions.gardener.cloud_extensions.yaml",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			definition := read[apiextensionsv1.CustomResourceDefinition](t, filepath.Join(gardener, "example", crd))
			schema := &apiextensions.JSONSchemaProps{}
			g.Expect(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, schema, nil)).To(Succeed())
			validator, _, err := apiserverschema.NewSchemaValidator(schema)
			g.Expect(err).NotTo(HaveOccurred())

			object := *read[map[string]any](t, name)
			g.Expect(apiserverschema.ValidateCustomResource(nil, object, validator)).To(BeEmpty())

			delete(object, "spec")
			object["spec"] = "not an object"
			g.Expect(apiserverschema.ValidateCustomResource(nil, object, validator)).NotTo(BeEmpty(), "the schema can refuse something")
		})
	}
}

func TestTheGardenNamesTheSecretsAndTheExtensionBesideIt(t *testing.T) {
	g := NewWithT(t)
	garden := read[operatorv1alpha1.Garden](t, "30-garden.yaml")
	extension := read[operatorv1alpha1.Extension](t, "20-operator-extension.yaml")
	backup, dns := read[corev1.Secret](t, "10-secret-backup.yaml"), read[corev1.Secret](t, "11-secret-dns.yaml")
	g.Expect(garden.Spec.VirtualCluster.ETCD.Main.Backup.SecretRef.Name).To(Equal(backup.Name))
	g.Expect(garden.Spec.DNS.Providers).To(HaveLen(1))
	g.Expect(garden.Spec.DNS.Providers[0].SecretRef.Name).To(Equal(dns.Name))

	var served []string
	for _, resource := range extension.Spec.Resources {
		served = append(served, resource.Kind+"/"+resource.Type)
	}
	g.Expect(served).To(ContainElements(
		"BackupBucket/"+garden.Spec.VirtualCluster.ETCD.Main.Backup.Provider,
		"DNSRecord/"+garden.Spec.DNS.Providers[0].Type,
		"Extension/"+garden.Spec.Extensions[0].Type,
	))
}

func TestGardenerOperatorAcceptsTheExtension(t *testing.T) {
	g := NewWithT(t)
	extension := read[operatorv1alpha1.Extension](t, "20-operator-extension.yaml")
	g.Expect(validation.ValidateExtension(extension)).To(BeEmpty())

	lifecycle := extension.Spec.Resources[len(extension.Spec.Resources)-1].Lifecycle
	lifecycle.Delete = lifecycle.Reconcile
	g.Expect(validation.ValidateExtension(extension)).To(ContainElement(HaveField("Field", HaveSuffix("lifecycle.delete"))),
		"the validation can refuse something")
}

func TestGardenerAcceptsTheControllerRegistration(t *testing.T) {
	g := NewWithT(t)
	deployment, registration, converted := readRegistration(t, "21-controller-registration.yaml")

	extension := read[operatorv1alpha1.Extension](t, "20-operator-extension.yaml")
	g.Expect(*deployment.Helm.OCIRepository).To(Equal(*extension.Spec.Deployment.ExtensionDeployment.Helm.OCIRepository))
	g.Expect(registration.Spec.Resources).To(HaveLen(len(extension.Spec.Resources)))
	g.Expect(registration.Annotations).To(Equal(extension.Annotations), "the level of Pod Security")

	converted.Spec.Resources[0].Kind = "Nonsense"
	g.Expect(corevalidation.ValidateControllerRegistration(converted)).NotTo(BeEmpty(), "the validation can refuse something")
}

func TestAGardenMayNameWhatIsMeantForGardens(t *testing.T) {
	g := NewWithT(t)
	garden := read[operatorv1alpha1.Garden](t, "30-garden.yaml")
	extensions := []operatorv1alpha1.Extension{*read[operatorv1alpha1.Extension](t, "20-operator-extension.yaml")}
	g.Expect(validation.ValidateGarden(garden, extensions)).To(BeEmpty())

	garden.Spec.Extensions[0].Type = "local-ext-seed"
	g.Expect(validation.ValidateGarden(garden, extensions)).To(ContainElement(HaveField("Field", HavePrefix("spec.extensions[0]"))))
}

func TestTheExtensionIsOfClassGardenAndOfATypeThatIsServed(t *testing.T) {
	g := NewWithT(t)
	extension := read[extensionsv1alpha1.Extension](t, "40-extension.yaml")
	g.Expect(*extension.Spec.Class).To(Equal(extensionsv1alpha1.ExtensionClassGarden))
	g.Expect(extension.Spec.Type).To(Equal("local-ext-shoot"))
	g.Expect(extension.Namespace).To(Equal("garden"))
}

func TestGardenerAcceptsTheCloudProfile(t *testing.T) {
	g := NewWithT(t)
	profile := read[gardencorev1beta1.CloudProfile](t, "50-cloudprofile.yaml")
	converted := &gardencore.CloudProfile{}
	internal(t, profile, converted)
	g.Expect(corevalidation.ValidateCloudProfile(converted)).To(BeEmpty())

	converted.Spec.MachineTypes[0].Memory = resource.MustParse("-1")
	g.Expect(corevalidation.ValidateCloudProfile(converted)).NotTo(BeEmpty(), "the validation can refuse something")
}

func TestEveryMachineImageOfTheCloudProfileHasAnImage(t *testing.T) {
	g := NewWithT(t)
	profile := read[gardencorev1beta1.CloudProfile](t, "50-cloudprofile.yaml")
	config, problem := localv1alpha1.CloudProfileConfigAt(profile.Spec.ProviderConfig, nil)
	g.Expect(problem).NotTo(HaveOccurred())

	offered, served := map[string][]string{}, map[string][]string{}
	for _, image := range profile.Spec.MachineImages {
		for _, version := range image.Versions {
			offered[image.Name] = append(offered[image.Name], version.Version)
		}
	}
	for _, image := range config.MachineImages {
		for _, version := range image.Versions {
			g.Expect(version.Image).NotTo(BeEmpty())
			served[image.Name] = append(served[image.Name], version.Version)
		}
	}
	g.Expect(served).To(Equal(offered))
}

func TestTheProjectsHaveTheNamespacesBesideThem(t *testing.T) {
	g := NewWithT(t)
	namespaces, projects := []*corev1.Namespace{{}, {}}, []*gardencorev1beta1.Project{{}, {}}
	readAll(t, "51-projects.yaml", namespaces[0], projects[0], namespaces[1], projects[1])
	for i, project := range projects {
		g.Expect(*project.Spec.Namespace).To(Equal(namespaces[i].Name))
		g.Expect(namespaces[i].Labels).To(HaveKeyWithValue("project.gardener.cloud/name", project.Name))
		converted := &gardencore.Project{}
		internal(t, project, converted)
		g.Expect(corevalidation.ValidateProject(converted)).To(BeEmpty())
	}
}

func TestTheSeedFindsItsSecrets(t *testing.T) {
	g := NewWithT(t)
	backup, dns := &corev1.Secret{}, &corev1.Secret{}
	readAll(t, "60-seed-secrets.yaml", backup, dns)
	gardenlet, err := os.ReadFile("../skaffold/gardenlet/templates/gardenlet.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(gardenlet)).To(And(ContainSubstring("name: "+backup.Name), ContainSubstring("name: "+dns.Name)))
	g.Expect(backup.Namespace).To(Equal("garden"))
	g.Expect(dns.Namespace).To(Equal("garden"))
}
