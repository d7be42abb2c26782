// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

func newProfile(images ...localv1alpha1.MachineImageVersion) *gardencorev1beta1.CloudProfile {
	raw, _ := json.Marshal(&localv1alpha1.CloudProfileConfig{
		TypeMeta:      metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.CloudProfileConfigKind},
		MachineImages: []localv1alpha1.MachineImages{{Name: "other"}, {Name: "local", Versions: images}},
	})
	return &gardencorev1beta1.CloudProfile{
		TypeMeta:   metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: "CloudProfile"},
		ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Spec: gardencorev1beta1.CloudProfileSpec{
			MachineTypes: []gardencorev1beta1.MachineType{
				{Name: "small", CPU: resource.MustParse("1"), Architecture: new("amd64")},
				{Name: "large", CPU: resource.MustParse("8"), Architecture: new("amd64")},
			},
			MachineImages: []gardencorev1beta1.MachineImage{{Name: "local", Versions: []gardencorev1beta1.MachineImageVersion{
				newVersion("1.0.0", "amd64"), newVersion("2.0", "amd64"), newVersion("3.0.0", "arm64"),
			}}},
			ProviderConfig: &runtime.RawExtension{Raw: raw},
		},
	}
}

func newVersion(version, architecture string) gardencorev1beta1.MachineImageVersion {
	return gardencorev1beta1.MachineImageVersion{
		ExpirableVersion: gardencorev1beta1.ExpirableVersion{Version: version, Classification: new(gardencorev1beta1.ClassificationSupported)},
		Architectures:    []string{architecture},
	}
}

// withCapabilities gives the machine types and images of a CloudProfile capabilities.
func withCapabilities(profile *gardencorev1beta1.CloudProfile, network string) *gardencorev1beta1.CloudProfile {
	profile.Spec.MachineCapabilities = []gardencorev1beta1.CapabilityDefinition{
		{Name: "architecture", Values: []string{"amd64", "arm64"}}, {Name: "network", Values: []string{"fast", "slow"}},
	}
	for i := range profile.Spec.MachineTypes {
		profile.Spec.MachineTypes[i].Capabilities = gardencorev1beta1.Capabilities{"architecture": {"amd64"}, "network": {network}}
	}
	profile.Spec.MachineImages[0].Versions = []gardencorev1beta1.MachineImageVersion{newVersion("1.0.0", "amd64")}
	profile.Spec.MachineImages[0].Versions[0].CapabilityFlavors = []gardencorev1beta1.MachineImageFlavor{
		{Capabilities: gardencorev1beta1.Capabilities{"architecture": {"amd64"}}},
	}
	return profile
}

func TestFindImage(t *testing.T) {
	flavors := localv1alpha1.MachineImageVersion{Version: "1.0.0", CapabilityFlavors: []localv1alpha1.MachineImageFlavor{
		{Image: "slow:1", Capabilities: gardencorev1beta1.Capabilities{"architecture": {"amd64"}, "network": {"slow"}}},
		{Image: "fast:1", Capabilities: gardencorev1beta1.Capabilities{"architecture": {"amd64"}, "network": {"fast"}}},
		{Image: "arm:1", Capabilities: gardencorev1beta1.Capabilities{"architecture": {"arm64"}}},
	}}
	fastOnly := localv1alpha1.MachineImageVersion{Version: "1.0.0", CapabilityFlavors: flavors.CapabilityFlavors[1:]}
	one, two := localv1alpha1.MachineImageVersion{Version: "1.0.0", Image: "node:1"}, localv1alpha1.MachineImageVersion{Version: "2.0", Image: "node:2"}

	for name, tt := range map[string]struct {
		profile  *gardencorev1beta1.CloudProfile
		change   func(*gardencorev1beta1.CloudProfile)
		expected image
		err      string
	}{
		"the newest version of the right architecture, which Gardener writes in another form": {
			profile: newProfile(one, two), expected: image{"node:2", "2.0"},
		},
		"the version for bastions": {
			profile: newProfile(one, two),
			change: func(p *gardencorev1beta1.CloudProfile) {
				p.Spec.Bastion = &gardencorev1beta1.Bastion{MachineImage: &gardencorev1beta1.BastionMachineImage{Name: "local", Version: new("1.0.0")}}
			},
			expected: image{"node:1", "1.0.0"},
		},
		"the flavor that suits the machine type":        {profile: withCapabilities(newProfile(flavors), "slow"), expected: image{"slow:1", "1.0.0"}},
		"the flavor that suits another machine type":    {profile: withCapabilities(newProfile(flavors), "fast"), expected: image{"fast:1", "1.0.0"}},
		"no flavor that suits":                          {profile: withCapabilities(newProfile(fastOnly), "slow"), err: "none of the capabilityFlavors of version 1.0.0 of the machine image local"},
		"one image in a CloudProfile with capabilities": {profile: withCapabilities(newProfile(one), "fast"), expected: image{"node:1", "1.0.0"}},
		"no container image for the version":            {profile: newProfile(one), err: "CloudProfile local: there is no container image for version 2.0.0 of the machine image local: add it to spec.providerConfig.machineImages"},
		"a version without image":                       {profile: newProfile(localv1alpha1.MachineImageVersion{Version: "2.0"}), err: "version 2.0 of the machine image local has no image"},
		"no machine image for bastions": {
			profile: newProfile(one),
			change:  func(p *gardencorev1beta1.CloudProfile) { p.Spec.MachineImages = nil },
			err:     "name them in spec.bastion",
		},
		"a providerConfig with a field that does not exist": {
			profile: newProfile(one),
			change: func(p *gardencorev1beta1.CloudProfile) {
				p.Spec.ProviderConfig.Raw = []byte(`{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"CloudProfileConfig","machineImage":[]}`)
			},
			err: `CloudProfile local: spec.providerConfig: Invalid value: strict decoding error: unknown field "machineImage"`,
		},
		"no providerConfig": {
			profile: newProfile(one), change: func(p *gardencorev1beta1.CloudProfile) { p.Spec.ProviderConfig = nil },
			err: "add it to spec.providerConfig.machineImages",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if tt.change != nil {
				tt.change(tt.profile)
			}
			found, err := findImage(tt.profile)
			g.Expect(found).To(Equal(tt.expected))
			if tt.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(tt.err)))
			g.Expect(v1beta1helper.ExtractErrorCodes(reconcilerutils.ReconcileErrCauseOrErr(err))).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
		})
	}
}
