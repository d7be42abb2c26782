// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package example_test reads the examples as strictly as an API server that validates them: a field that isn't there, or a
// value that Gardener refuses, fails a test rather than a user.
package example_test

import (
	"os"
	"os/exec"
	"path/filepath"
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

func TestEveryExampleIsReadByATest(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob("*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveExactElements("10-secret-backup.yaml", "11-secret-dns.yaml", "20-operator-extension.yaml", "30-garden.yaml", "40-extension.yaml", "50-cloudprofile.yaml"))
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
	scheme := runtime.NewScheme()
	gardencoreinstall.Install(scheme)
	scheme.Default(profile)
	internal := &gardencore.CloudProfile{}
	g.Expect(scheme.Convert(profile, internal, nil)).To(Succeed())
	g.Expect(corevalidation.ValidateCloudProfile(internal)).To(BeEmpty())

	internal.Spec.MachineTypes[0].Memory = resource.MustParse("-1")
	g.Expect(corevalidation.ValidateCloudProfile(internal)).NotTo(BeEmpty(), "the validation can refuse something")
}

func TestEveryMachineImageOfTheCloudProfileHasAnImage(t *testing.T) {
	g := NewWithT(t)
	profile := read[gardencorev1beta1.CloudProfile](t, "50-cloudprofile.yaml")
	config, err := localv1alpha1.DecodeCloudProfileConfig(profile.Spec.ProviderConfig)
	g.Expect(err).NotTo(HaveOccurred())

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
