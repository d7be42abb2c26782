// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	. "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/validation"
)

var definitions = []gardencorev1beta1.CapabilityDefinition{{Name: "architecture", Values: []string{"amd64", "arm64"}}, {Name: "gpu", Values: []string{"true", "false"}}}

// config has one machine image with these versions.
func config(versions ...localv1alpha1.MachineImageVersion) *localv1alpha1.CloudProfileConfig {
	return &localv1alpha1.CloudProfileConfig{MachineImages: []localv1alpha1.MachineImages{{Name: "local", Versions: versions}}}
}

func flavored(flavors ...localv1alpha1.MachineImageFlavor) localv1alpha1.MachineImageVersion {
	return localv1alpha1.MachineImageVersion{Version: "1.0.0", CapabilityFlavors: flavors}
}

func flavor(image string, architectures ...string) localv1alpha1.MachineImageFlavor {
	return localv1alpha1.MachineImageFlavor{Image: image, Capabilities: gardencorev1beta1.Capabilities{"architecture": architectures}}
}

func TestACloudProfileConfigInItself(t *testing.T) {
	plain := localv1alpha1.MachineImageVersion{Version: "1.0.0", Image: "registry.example:5001/machine:v1"}
	for name, test := range map[string]struct {
		config      *localv1alpha1.CloudProfileConfig
		definitions []gardencorev1beta1.CapabilityDefinition
		errs        []string
	}{
		"an image for each version":                   {config: config(plain, localv1alpha1.MachineImageVersion{Version: "2.0.0", Image: "machine@sha256:" + digest})},
		"flavors for a CloudProfile with definitions": {config: config(flavored(flavor("a", "amd64"), flavor("b", "arm64"))), definitions: definitions},
		"one image for a CloudProfile with definitions": {
			config: config(plain), definitions: definitions,
		},
		"no name": {
			config: &localv1alpha1.CloudProfileConfig{MachineImages: []localv1alpha1.MachineImages{{Versions: []localv1alpha1.MachineImageVersion{plain}}}},
			errs:   []string{`at.machineImages[0].name: Required value: write the one in spec.machineImages`},
		},
		"a name that is there twice": {
			config: &localv1alpha1.CloudProfileConfig{MachineImages: append(config(plain).MachineImages, config(plain).MachineImages...)},
			errs:   []string{`at.machineImages[1].name: Duplicate value: "local"`},
		},
		"no versions":                   {config: config(), errs: []string{`at.machineImages[0].versions: Required value`}},
		"a version that is there twice": {config: config(plain, plain), errs: []string{`at.machineImages[0].versions[1].version: Duplicate value: "1.0.0"`}},
		"no image":                      {config: config(localv1alpha1.MachineImageVersion{Version: "1.0.0"}), errs: []string{`at.machineImages[0].versions[0].image: Required value: name the container image`}},
		"no image and no flavors": {
			config: config(localv1alpha1.MachineImageVersion{Version: "1.0.0"}), definitions: definitions,
			errs: []string{`at.machineImages[0].versions[0].capabilityFlavors: Required value`},
		},
		"no version": {config: config(localv1alpha1.MachineImageVersion{Image: "a"}), errs: []string{`at.machineImages[0].versions[0].version: Required value`}},
		"an image that is no reference": {
			config: config(localv1alpha1.MachineImageVersion{Version: "1.0.0", Image: "https://machine"}),
			errs:   []string{`at.machineImages[0].versions[0].image: Invalid value: "https://machine": it must refer to a container image`},
		},
		"flavors where nothing is defined": {
			config: config(flavored(flavor("a", "amd64"))),
			errs: []string{`at.machineImages[0].versions[0].capabilityFlavors: Forbidden: the CloudProfile has no spec.machineCapabilities`,
				`at.machineImages[0].versions[0].capabilityFlavors[0].capabilities[architecture]: Forbidden`},
		},
		"image and flavors": {
			config: config(localv1alpha1.MachineImageVersion{Version: "1.0.0", Image: "a", CapabilityFlavors: []localv1alpha1.MachineImageFlavor{flavor("a", "amd64")}}), definitions: definitions,
			errs: []string{`at.machineImages[0].versions[0].image: Forbidden: it has no meaning beside capabilityFlavors`},
		},
		"a flavor without image":                     {config: config(flavored(flavor("", "amd64"))), definitions: definitions, errs: []string{`capabilityFlavors[0].image: Required value`}},
		"a flavor whose image is no reference":       {config: config(flavored(flavor("A B", "amd64"))), definitions: definitions, errs: []string{`capabilityFlavors[0].image: Invalid value`}},
		"a value that is not defined":                {config: config(flavored(flavor("a", "amd64", "riscv"))), definitions: definitions, errs: []string{`capabilityFlavors[0].capabilities[architecture][1]: Unsupported value: "riscv": supported values: "amd64", "arm64"`}},
		"a capability that the CloudProfile has not": {config: config(flavored(flavor("a", "amd64"))), definitions: definitions[1:], errs: []string{`capabilityFlavors[0].capabilities[architecture]: Forbidden: the CloudProfile does not have it`}},
	} {
		t.Run(name, func(t *testing.T) {
			expectErrors(t, CloudProfileConfig(test.config, test.definitions, field.NewPath("at")), test.errs)
		})
	}
}

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// expectErrors expects just these errors in this order, each with a part of its message.
func expectErrors(t *testing.T, errs field.ErrorList, parts []string) {
	t.Helper()
	g := NewWithT(t)
	var messages []string
	for _, err := range errs {
		messages = append(messages, err.Error())
	}
	g.Expect(messages).To(HaveLen(len(parts)), "%v", messages)
	for i, part := range parts {
		g.Expect(messages[i]).To(ContainSubstring(part))
	}
}

func TestEveryMachineImageThatIsOfferedNeedsContainerImages(t *testing.T) {
	offered := func(flavors ...gardencorev1beta1.MachineImageFlavor) []gardencorev1beta1.MachineImage {
		return []gardencorev1beta1.MachineImage{{Name: "local", Versions: []gardencorev1beta1.MachineImageVersion{
			{ExpirableVersion: gardencorev1beta1.ExpirableVersion{Version: "1.0.0"}, CapabilityFlavors: flavors},
		}}}
	}
	of := func(architectures ...string) gardencorev1beta1.MachineImageFlavor {
		return gardencorev1beta1.MachineImageFlavor{Capabilities: gardencorev1beta1.Capabilities{"architecture": architectures}}
	}
	plain := config(localv1alpha1.MachineImageVersion{Version: "1.0.0", Image: "a"})

	for name, test := range map[string]struct {
		config      *localv1alpha1.CloudProfileConfig
		offered     []gardencorev1beta1.MachineImage
		definitions []gardencorev1beta1.CapabilityDefinition
		elsewhere   sets.Set[ImageVersion]
		errs        []string
	}{
		"it has":                           {config: plain, offered: offered()},
		"it has one image for all flavors": {config: plain, offered: offered(of("amd64"), of("arm64")), definitions: definitions},
		"it has one for each flavor": {
			config: config(flavored(flavor("b", "arm64"), flavor("a", "amd64"))), offered: offered(of("amd64"), of("arm64")), definitions: definitions,
		},
		"a flavor that leaves out a capability has all of its values": {
			config:  config(flavored(localv1alpha1.MachineImageFlavor{Image: "a", Capabilities: gardencorev1beta1.Capabilities{"architecture": {"amd64"}, "gpu": {"true", "false"}}})),
			offered: offered(of("amd64")), definitions: definitions,
		},
		"the version is missing": {
			config: config(localv1alpha1.MachineImageVersion{Version: "2.0.0", Image: "a"}), offered: offered(),
			errs: []string{`at[0].versions[0].version: Invalid value: "1.0.0": no container image is known for it: add the version to the machine image "local" in machineImages of spec.providerConfig`},
		},
		"the machine image is missing": {config: &localv1alpha1.CloudProfileConfig{}, offered: offered(), errs: []string{`at[0].versions[0].version`}},
		"it is had from elsewhere":     {config: &localv1alpha1.CloudProfileConfig{}, offered: offered(), elsewhere: sets.New(ImageVersion{Image: "local", Version: "1.0.0"})},
		"a flavor is missing": {
			config: config(flavored(flavor("a", "amd64"))), offered: offered(of("amd64"), of("arm64")), definitions: definitions,
			errs: []string{`at[0].versions[0].capabilityFlavors[1]: Invalid value`},
		},
		"a flavor for everything is missing": {
			config: config(flavored(flavor("a", "amd64"))), offered: offered(), definitions: definitions,
			errs: []string{`at[0].versions[0].capabilityFlavors: Invalid value`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectErrors(t, CompleteImages(test.config, test.offered, test.definitions, test.elsewhere, field.NewPath("at")), test.errs)
		})
	}
}

func TestWhichMachinesAVersionServes(t *testing.T) {
	g := NewWithT(t)
	arm := gardencorev1beta1.Capabilities{"architecture": {"arm64"}}
	plain, none, amd := localv1alpha1.MachineImageVersion{Image: "a"}, localv1alpha1.MachineImageVersion{}, flavored(flavor("a", "amd64"))
	both := flavored(flavor("a", "amd64"), flavor("b", "arm64"))
	g.Expect(Serves(&plain, nil, nil)).To(BeTrue())
	g.Expect(Serves(&plain, arm, definitions)).To(BeTrue())
	g.Expect(Serves(&none, nil, nil)).To(BeFalse())
	g.Expect(Serves(&amd, arm, definitions)).To(BeFalse())
	g.Expect(Serves(&amd, nil, nil)).To(BeFalse(), "without definitions flavors are not looked at")
	g.Expect(Serves(&both, arm, definitions)).To(BeTrue())
}

func TestAMachineTypeHasCPUAndMemory(t *testing.T) {
	machineType := func(cpu, memory string) gardencorev1beta1.MachineType {
		return gardencorev1beta1.MachineType{CPU: resource.MustParse(cpu), Memory: resource.MustParse(memory)}
	}
	expectErrors(t, MachineTypes([]gardencorev1beta1.MachineType{machineType("100m", "1Gi"), machineType("0", "1Gi"), machineType("1", "0")}, field.NewPath("at")), []string{
		`at[1].cpu: Invalid value: "0"`, `at[2].memory: Invalid value: "0"`,
	})
}
