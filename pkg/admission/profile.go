// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/apis/local/validation"
)

// NewCloudProfile returns the validator for CloudProfiles: the providerConfig has a container image for every machine image
// of the CloudProfile, and machine types are machines.
func NewCloudProfile() extensionswebhook.Validator {
	return &validator[gardencorev1beta1.CloudProfile]{func(_ context.Context, profile, old *gardencorev1beta1.CloudProfile) (field.ErrorList, error) {
		if profile.Spec.Type != localv1alpha1.Type || equality.Semantic.DeepEqual(profile.Spec, old.Spec) {
			return nil, nil
		}
		var (
			spec        = field.NewPath("spec")
			path        = spec.Child("providerConfig")
			definitions = profile.Spec.MachineCapabilities
			errs        = validation.MachineTypes(profile.Spec.MachineTypes, spec.Child("machineTypes"))
		)
		if profile.Spec.ProviderConfig == nil {
			return append(errs, field.Required(path, "write a CloudProfileConfig that names the container images of the machine images")), nil
		}
		config, err := localv1alpha1.CloudProfileConfigAt(profile.Spec.ProviderConfig, path)
		if err != nil {
			return append(errs, err), nil
		}
		errs = append(errs, validation.CloudProfileConfig(config, definitions, path)...)
		return append(errs, validation.CompleteImages(config, profile.Spec.MachineImages, definitions, nil, spec.Child("machineImages"))...), nil
	}}
}

// NewNamespacedCloudProfile returns the validator for NamespacedCloudProfiles: the providerConfig has a container image for
// every version of a machine image that is not in the parent, and for no other.
//
// reader reads CloudProfiles from the API server. Needed permissions: get on CloudProfiles.
func NewNamespacedCloudProfile(reader client.Reader) extensionswebhook.Validator {
	return &validator[gardencorev1beta1.NamespacedCloudProfile]{func(ctx context.Context, profile, old *gardencorev1beta1.NamespacedCloudProfile) (field.ErrorList, error) {
		if old.Spec.Parent.Name != "" && equality.Semantic.DeepEqual(profile.Spec, old.Spec) {
			return nil, nil
		}
		spec := field.NewPath("spec")
		parent := &gardencorev1beta1.CloudProfile{}
		if err := reader.Get(ctx, client.ObjectKey{Name: profile.Spec.Parent.Name}, parent); err != nil {
			return nil, fmt.Errorf("%s: reading CloudProfile %s: %w", spec.Child("parent", "name"), profile.Spec.Parent.Name, err)
		}
		if parent.Spec.Type != localv1alpha1.Type {
			return nil, nil
		}

		var (
			path        = spec.Child("providerConfig")
			definitions = parent.Spec.MachineCapabilities
			own         = gardenerutils.TransformSpecToParentFormat(profile.Spec, definitions)
			parents     = offered(parent.Spec.MachineImages)
			errs        = validation.MachineTypes(own.MachineTypes, spec.Child("machineTypes"))
		)
		config, decodeErr := localv1alpha1.CloudProfileConfigAt(profile.Spec.ProviderConfig, path)
		if decodeErr != nil {
			return append(errs, decodeErr), nil
		}
		errs = append(errs, validation.CloudProfileConfig(config, definitions, path)...)
		errs = append(errs, onlyOwn(config, had(old), offered(own.MachineImages), parents, parent.Name, path)...)
		return append(errs, validation.CompleteImages(config, own.MachineImages, definitions, parents, spec.Child("machineImages"))...), nil
	}}
}

func offered(images []gardencorev1beta1.MachineImage) sets.Set[validation.ImageVersion] {
	result := sets.New[validation.ImageVersion]()
	for _, image := range images {
		for _, version := range image.Versions {
			result.Insert(validation.ImageVersion{Image: image.Name, Version: version.Version})
		}
	}
	return result
}

// had returns the versions for which the profile had a container image.
func had(old *gardencorev1beta1.NamespacedCloudProfile) sets.Set[validation.ImageVersion] {
	config, err := localv1alpha1.CloudProfileConfigAt(old.Spec.ProviderConfig, nil)
	if err != nil {
		return nil
	}
	return sets.KeySet(validation.Versions(config))
}

// onlyOwn refuses container images for versions that the profile does not have, or has of its parent. The parent may get a
// version later that the profile had before: that one may stay.
func onlyOwn(config *localv1alpha1.CloudProfileConfig, had, own, parents sets.Set[validation.ImageVersion], parent string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, image := range config.MachineImages {
		for j, version := range image.Versions {
			path := path.Child("machineImages").Index(i).Child("versions").Index(j).Child("version")
			this := validation.ImageVersion{Image: image.Name, Version: version.Version}
			switch {
			case parents.Has(this) && !had.Has(this):
				errs = append(errs, field.Forbidden(path, fmt.Sprintf(
					"version %s of the machine image %q is one of the CloudProfile %s, whose container image it has: take it out here", version.Version, image.Name, parent)))
			case !own.Has(this):
				errs = append(errs, field.Invalid(path, version.Version, fmt.Sprintf(
					"the machine image %q does not have this version in spec.machineImages: add it there or take it out here", image.Name)))
			}
		}
	}
	return errs
}

// NewImageMerger returns the mutator for the status of NamespacedCloudProfiles. gardener-controller-manager merges all that
// it knows of the parent and the profile's spec into status.cloudProfileSpec, which is what shoots are made of; but of
// providerConfig, which it can't read, it takes the parent's. This adds the machine images of the profile's own. A version
// that both have is the profile's, as it is in status.cloudProfileSpec.machineImages.
func NewImageMerger() extensionswebhook.Mutator { return &imageMerger{} }

type imageMerger struct{}

// Mutate implements extensionswebhook.Mutator.
func (*imageMerger) Mutate(_ context.Context, newObj, _ client.Object) error {
	profile := newObj.(*gardencorev1beta1.NamespacedCloudProfile)
	status := &profile.Status.CloudProfileSpec
	if profile.DeletionTimestamp != nil || status.Type != localv1alpha1.Type || profile.Spec.ProviderConfig == nil {
		return nil
	}

	config, err := localv1alpha1.CloudProfileConfigAt(status.ProviderConfig, field.NewPath("status", "cloudProfileSpec", "providerConfig"))
	if err != nil {
		return err
	}
	own, err := localv1alpha1.CloudProfileConfigAt(profile.Spec.ProviderConfig, field.NewPath("spec", "providerConfig"))
	if err != nil {
		return err
	}
	if len(own.MachineImages) == 0 {
		return nil
	}
	config.MachineImages = merge(config.MachineImages, own.MachineImages,
		func(image localv1alpha1.MachineImages) string { return image.Name },
		func(before, image localv1alpha1.MachineImages) localv1alpha1.MachineImages {
			before.Versions = merge(before.Versions, image.Versions,
				func(version localv1alpha1.MachineImageVersion) string { return version.Version },
				func(_, version localv1alpha1.MachineImageVersion) localv1alpha1.MachineImageVersion { return version })
			return before
		})
	config.TypeMeta = metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.CloudProfileConfigKind}
	raw, jsonErr := json.Marshal(config)
	if jsonErr != nil {
		return fmt.Errorf("encoding status.cloudProfileSpec.providerConfig: %w", jsonErr)
	}
	status.ProviderConfig = &runtime.RawExtension{Raw: raw}
	return nil
}

// merge returns the list with more elements: one whose key the list has takes the place of the first such element, by join,
// others follow at the end. It looks keys up in a map, as a user decides how long the lists are.
func merge[T any](list, more []T, key func(T) string, join func(before, element T) T) []T {
	list = slices.Clone(list)
	known := make(map[string]int, len(list))
	for i, element := range slices.Backward(list) {
		known[key(element)] = i
	}
	for _, element := range more {
		if i, ok := known[key(element)]; ok {
			list[i] = join(list[i], element)
			continue
		}
		known[key(element)] = len(list)
		list = append(list, element)
	}
	return list
}
