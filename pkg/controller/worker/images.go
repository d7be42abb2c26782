// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// images finds the container image of a machine image.
type images struct {
	// config is the CloudProfile's providerConfig.
	config *localv1alpha1.CloudProfileConfig
	// definitions are the CloudProfile's spec.machineCapabilities.
	definitions []gardencorev1beta1.CapabilityDefinition
	// used are those in the status of the Worker, for when the CloudProfile has dropped one.
	used []localv1alpha1.MachineImage
}

// flavor is an image to the library.
type flavor localv1alpha1.MachineImageFlavor

// GetCapabilities implements worker.CapabilitiesAccessor.
func (f flavor) GetCapabilities() gardencorev1beta1.Capabilities { return f.Capabilities }

// find returns the image for machines of a type. An error names the remedy.
func (i *images) find(name, version string, machineType *gardencorev1beta1.MachineType) (*localv1alpha1.MachineImage, error) {
	found, err := i.inProfile(name, version, machineType)
	if found != nil {
		return found, nil
	}
	for _, image := range i.used {
		if image.Name == name && image.Version == version && i.fits(image.Capabilities, machineType) {
			return &image, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: add the version with its container image to machineImages in spec.providerConfig of the CloudProfile, or choose another version for the pool",
		worker.ErrorMachineImageNotFound(name, version))
}

func (i *images) inProfile(name, version string, machineType *gardencorev1beta1.MachineType) (*localv1alpha1.MachineImage, error) {
	for _, image := range i.config.MachineImages {
		if image.Name != name {
			continue
		}
		for _, v := range image.Versions {
			if v.Version == version {
				return i.choose(name, v, machineType)
			}
		}
	}
	return nil, nil
}

// choose returns the image of a version that is capable of what the machine type is. Without machineCapabilities there is
// one image for all; it counts as capable of everything where there are some.
func (i *images) choose(name string, version localv1alpha1.MachineImageVersion, machineType *gardencorev1beta1.MachineType) (*localv1alpha1.MachineImage, error) {
	found := &localv1alpha1.MachineImage{Name: name, Version: version.Version, Image: version.Image}
	if len(i.definitions) == 0 {
		if version.Image == "" {
			return nil, fmt.Errorf("version %s of machine image %s has no image in spec.providerConfig of the CloudProfile: set it, capabilityFlavors are for CloudProfiles with machineCapabilities", version.Version, name)
		}
		return found, nil
	}

	flavors := make([]flavor, 0, len(version.CapabilityFlavors)+1)
	for _, f := range version.CapabilityFlavors {
		flavors = append(flavors, flavor(f))
	}
	if version.Image != "" && len(flavors) == 0 {
		flavors = append(flavors, flavor{Image: version.Image})
	}
	best, err := worker.FindBestImageFlavor(flavors, machineType.Capabilities, i.definitions)
	if err != nil {
		return nil, fmt.Errorf("version %s of machine image %s has no image for machine type %s with the capabilities %s: %w: add one to its capabilityFlavors in spec.providerConfig of the CloudProfile",
			version.Version, name, machineType.Name, machineType.Capabilities, err)
	}
	found.Image, found.Capabilities = best.Image, best.Capabilities
	return found, nil
}

func (i *images) fits(capabilities gardencorev1beta1.Capabilities, machineType *gardencorev1beta1.MachineType) bool {
	return len(i.definitions) == 0 || v1beta1helper.AreCapabilitiesCompatible(capabilities, machineType.Capabilities, i.definitions)
}

// inUse returns the images of pools, each once, in an order that does not depend on that of the pools.
func inUse(pools []pool) []localv1alpha1.MachineImage {
	var out []localv1alpha1.MachineImage
	for _, p := range pools {
		out = append(out, *p.image)
	}
	key := func(image localv1alpha1.MachineImage) string {
		return image.Name + "\n" + image.Version + "\n" + image.Image + "\n" + image.Capabilities.String()
	}
	slices.SortFunc(out, func(a, b localv1alpha1.MachineImage) int { return cmp.Compare(key(a), key(b)) })
	return slices.CompactFunc(out, func(a, b localv1alpha1.MachineImage) bool { return key(a) == key(b) })
}
