// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"fmt"

	"github.com/Masterminds/semver/v3"

	extensionsbastion "github.com/gardener/gardener/extensions/pkg/bastion"
	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

// image is what a bastion runs.
type image struct {
	// reference is that of a container image.
	reference string
	// version is that of the machine image.
	version string
}

// flavor is one of which Gardener's library chooses.
type flavor struct {
	localv1alpha1.MachineImageFlavor
}

// GetCapabilities implements worker.CapabilitiesAccessor.
func (f flavor) GetCapabilities() gardencorev1beta1.Capabilities { return f.Capabilities }

// findImage returns the image for bastions of a CloudProfile: of the machine image in its spec.bastion or else of one that
// suits its smallest machine type. If there is none, that is a configuration problem.
func findImage(profile *gardencorev1beta1.CloudProfile) (image, error) {
	mistake := func(format string, args ...any) (image, error) {
		return image{}, common.ConfigurationProblem(fmt.Errorf("CloudProfile %s: %w", profile.Name, fmt.Errorf(format, args...)), common.RetryMissing)
	}

	spec, err := extensionsbastion.GetMachineSpecFromCloudProfile(profile)
	if err != nil {
		return mistake("no machine type and machine image for bastions: %w; name them in spec.bastion", err)
	}
	config, err := localv1alpha1.DecodeCloudProfileConfig(profile.Spec.ProviderConfig)
	if err != nil {
		return mistake("%w", err)
	}
	version := findVersion(config, spec.ImageBaseName, spec.ImageVersion)
	if version == nil {
		return mistake("there is no container image for version %s of the machine image %s: add it to spec.providerConfig.machineImages", spec.ImageVersion, spec.ImageBaseName)
	}

	found := image{reference: version.Image, version: version.Version}
	if len(version.CapabilityFlavors) > 0 {
		flavors := make([]flavor, 0, len(version.CapabilityFlavors))
		for _, f := range version.CapabilityFlavors {
			flavors = append(flavors, flavor{f})
		}
		best, err := worker.FindBestImageFlavor(flavors, spec.MachineTypeCapabilities, profile.Spec.MachineCapabilities)
		if err != nil {
			return mistake("none of the capabilityFlavors of version %s of the machine image %s in spec.providerConfig.machineImages suits the machine type %s: %w",
				version.Version, spec.ImageBaseName, spec.MachineTypeName, err)
		}
		found.reference = best.Image
	}
	if found.reference == "" {
		return mistake("version %s of the machine image %s has no image in spec.providerConfig.machineImages: set it", version.Version, spec.ImageBaseName)
	}
	return found, nil
}

// findVersion returns a version of a machine image, or nil. Gardener's library writes a version that it has chosen with
// three numbers, whatever it is in the CloudProfile.
func findVersion(config *localv1alpha1.CloudProfileConfig, name, wanted string) *localv1alpha1.MachineImageVersion {
	var equal *localv1alpha1.MachineImageVersion
	for i := range config.MachineImages {
		if config.MachineImages[i].Name != name {
			continue
		}
		for j := range config.MachineImages[i].Versions {
			version := &config.MachineImages[i].Versions[j]
			if version.Version == wanted {
				return version
			}
			if equal == nil && isSameVersion(version.Version, wanted) {
				equal = version
			}
		}
	}
	return equal
}

func isSameVersion(a, b string) bool {
	first, errA := semver.NewVersion(a)
	second, errB := semver.NewVersion(b)
	return errA == nil && errB == nil && first.String() == second.String()
}
