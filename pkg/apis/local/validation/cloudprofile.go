// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package validation holds the rules for what is inside of CloudProfiles and Shoots of type local. Each error has the path
// of the field and names the remedy. The admission webhooks use it.
package validation

import (
	"fmt"
	"maps"
	"slices"

	distreference "github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// CloudProfileConfig checks a configuration in itself: each machine image and version is there once, and each version has
// container images as the CloudProfile wants them, which depends on its spec.machineCapabilities. path is that of the
// configuration.
func CloudProfileConfig(config *localv1alpha1.CloudProfileConfig, definitions []gardencorev1beta1.CapabilityDefinition, path *field.Path) field.ErrorList {
	var (
		errs  field.ErrorList
		names = sets.New[string]()
	)
	for i, image := range config.MachineImages {
		path := path.Child("machineImages").Index(i)
		errs = append(errs, unique(names, image.Name, path.Child("name"))...)
		if len(image.Versions) == 0 {
			errs = append(errs, field.Required(path.Child("versions"), "add the versions that spec.machineImages has, or take the machine image out"))
		}
		versions := sets.New[string]()
		for j, version := range image.Versions {
			path := path.Child("versions").Index(j)
			errs = append(errs, unique(versions, version.Version, path.Child("version"))...)
			errs = append(errs, imageVersion(version, definitions, path)...)
		}
	}
	return errs
}

func unique(seen sets.Set[string], value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "write the one in spec.machineImages")}
	}
	if seen.Has(value) {
		return field.ErrorList{field.Duplicate(path, value)}
	}
	seen.Insert(value)
	return nil
}

func imageVersion(version localv1alpha1.MachineImageVersion, definitions []gardencorev1beta1.CapabilityDefinition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if version.Image != "" {
		errs = append(errs, reference(version.Image, path.Child("image"))...)
	}
	flavors := path.Child("capabilityFlavors")
	switch {
	case len(definitions) == 0 && len(version.CapabilityFlavors) > 0:
		errs = append(errs, field.Forbidden(flavors, "the CloudProfile has no spec.machineCapabilities: set image instead"))
	case len(definitions) == 0 && version.Image == "":
		errs = append(errs, field.Required(path.Child("image"), "name the container image of this version"))
	case version.Image != "" && len(version.CapabilityFlavors) > 0:
		errs = append(errs, field.Forbidden(path.Child("image"), "it has no meaning beside capabilityFlavors: take one of them out"))
	case version.Image == "" && len(version.CapabilityFlavors) == 0:
		errs = append(errs, field.Required(flavors, "name the container images of this version, or a single image for all machines"))
	}
	for k, flavor := range version.CapabilityFlavors {
		path := flavors.Index(k)
		if flavor.Image == "" {
			errs = append(errs, field.Required(path.Child("image"), "name the container image"))
		} else {
			errs = append(errs, reference(flavor.Image, path.Child("image"))...)
		}
		errs = append(errs, capabilities(flavor.Capabilities, definitions, path.Child("capabilities"))...)
	}
	return errs
}

func reference(image string, path *field.Path) field.ErrorList {
	if _, err := distreference.ParseNormalizedNamed(image); err != nil {
		return field.ErrorList{field.Invalid(path, image, fmt.Sprintf("it must refer to a container image, like registry/repository:tag: %v", err))}
	}
	return nil
}

func capabilities(of gardencorev1beta1.Capabilities, definitions []gardencorev1beta1.CapabilityDefinition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(of)) {
		i := slices.IndexFunc(definitions, func(definition gardencorev1beta1.CapabilityDefinition) bool { return definition.Name == key })
		if i < 0 {
			errs = append(errs, field.Forbidden(path.Key(key), "the CloudProfile does not have it in spec.machineCapabilities"))
			continue
		}
		for j, value := range of[key] {
			if !slices.Contains(definitions[i].Values, value) {
				errs = append(errs, field.NotSupported(path.Key(key).Index(j), value, definitions[i].Values))
			}
		}
	}
	return errs
}

// CompleteImages checks that the configuration has a container image for whatever machine images are offered, but for the
// versions that are had from elsewhere. path is that of the offered machine images.
func CompleteImages(config *localv1alpha1.CloudProfileConfig, offered []gardencorev1beta1.MachineImage, definitions []gardencorev1beta1.CapabilityDefinition,
	elsewhere sets.Set[ImageVersion], path *field.Path) field.ErrorList {
	var (
		errs     field.ErrorList
		versions = Versions(config)
	)
	for i, image := range offered {
		for j, version := range image.Versions {
			key := ImageVersion{image.Name, version.Version}
			if elsewhere.Has(key) {
				continue
			}
			path := path.Index(i).Child("versions").Index(j)
			found := versions[key]
			if found == nil {
				errs = append(errs, field.Invalid(path.Child("version"), version.Version, fmt.Sprintf(
					"no container image is known for it: add the version to the machine image %q in machineImages of spec.providerConfig", image.Name)))
				continue
			}
			if len(definitions) > 0 && len(found.CapabilityFlavors) > 0 {
				errs = append(errs, completeFlavors(found, version.CapabilityFlavors, definitions, path)...)
			}
		}
	}
	return errs
}

// completeFlavors tells which flavors of a version that is offered have no container image. A version that is offered
// without flavors is one that is capable of all that the CloudProfile knows.
func completeFlavors(found *localv1alpha1.MachineImageVersion, offered []gardencorev1beta1.MachineImageFlavor, definitions []gardencorev1beta1.CapabilityDefinition, path *field.Path) field.ErrorList {
	flavorPath := func(k int) *field.Path { return path.Child("capabilityFlavors").Index(k) }
	if len(offered) == 0 {
		offered = []gardencorev1beta1.MachineImageFlavor{{}}
		flavorPath = func(int) *field.Path { return path.Child("capabilityFlavors") }
	}

	known := sets.New[string]()
	for _, flavor := range found.CapabilityFlavors {
		known.Insert(textOf(gardencorev1beta1.GetCapabilitiesWithAppliedDefaults(flavor.Capabilities, definitions)))
	}
	var errs field.ErrorList
	for k, flavor := range offered {
		wanted := gardencorev1beta1.GetCapabilitiesWithAppliedDefaults(flavor.Capabilities, definitions)
		if !known.Has(textOf(wanted)) {
			errs = append(errs, field.Invalid(flavorPath(k), wanted.String(), "no container image is known for these capabilities: add one with just these to capabilityFlavors of the version in spec.providerConfig"))
		}
	}
	return errs
}

// textOf returns the same text for equal capabilities, in whatever order their values are.
func textOf(capabilities gardencorev1beta1.Capabilities) string {
	sorted := make(map[string][]string, len(capabilities))
	for name, values := range capabilities {
		sorted[name] = slices.Compact(slices.Sorted(slices.Values(values)))
	}
	return fmt.Sprintf("%q", sorted) // in the order of the names
}

// ImageVersion names a version of a machine image.
type ImageVersion struct{ Image, Version string }

// Versions returns the versions of all machine images in a configuration. Of two that are the same it is the first.
func Versions(config *localv1alpha1.CloudProfileConfig) map[ImageVersion]*localv1alpha1.MachineImageVersion {
	result := map[ImageVersion]*localv1alpha1.MachineImageVersion{}
	for i := range config.MachineImages {
		image := &config.MachineImages[i]
		for j := range image.Versions {
			key := ImageVersion{image.Name, image.Versions[j].Version}
			if result[key] == nil {
				result[key] = &image.Versions[j]
			}
		}
	}
	return result
}

// Serves reports whether a version of a machine image has a container image for machines with these capabilities.
func Serves(version *localv1alpha1.MachineImageVersion, machine gardencorev1beta1.Capabilities, definitions []gardencorev1beta1.CapabilityDefinition) bool {
	if len(definitions) == 0 || len(version.CapabilityFlavors) == 0 {
		return version.Image != ""
	}
	return slices.ContainsFunc(version.CapabilityFlavors, func(flavor localv1alpha1.MachineImageFlavor) bool {
		return v1beta1helper.AreCapabilitiesCompatible(flavor.Capabilities, machine, definitions)
	})
}

// MachineTypes checks that each type can be a machine. path is that of the types.
func MachineTypes(types []gardencorev1beta1.MachineType, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, machineType := range types {
		path := path.Index(i)
		if machineType.CPU.Sign() <= 0 {
			errs = append(errs, field.Invalid(path.Child("cpu"), machineType.CPU.String(), "a machine has just what its type has: it must be more than nothing"))
		}
		if machineType.Memory.Sign() <= 0 {
			errs = append(errs, field.Invalid(path.Child("memory"), machineType.Memory.String(), "a machine has just what its type has: it must be more than nothing"))
		}
	}
	return errs
}
