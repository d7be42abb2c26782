// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package validator

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/apis/local/validation"
)

// NewNamespacedCloudProfile returns the validator for NamespacedCloudProfiles: the providerConfig has a container image for
// every version of a machine image that is not in the parent, and for no other.
//
// reader reads CloudProfiles from the API server. Needed permissions: get on CloudProfiles.
func NewNamespacedCloudProfile(reader client.Reader) extensionswebhook.Validator {
	v := &namespacedCloudProfile{reader: reader}
	return &rules[*gardencorev1beta1.NamespacedCloudProfile]{check: v.check}
}

type namespacedCloudProfile struct {
	reader client.Reader
}

func (v *namespacedCloudProfile) check(ctx context.Context, profile, old *gardencorev1beta1.NamespacedCloudProfile) (field.ErrorList, error) {
	if old != nil && equality.Semantic.DeepEqual(profile.Spec, old.Spec) {
		return nil, nil
	}
	spec := field.NewPath("spec")
	parent := &gardencorev1beta1.CloudProfile{}
	if missing, err := get(ctx, v.reader, client.ObjectKey{Name: profile.Spec.Parent.Name}, parent, "CloudProfile", spec.Child("parent", "name")); missing != nil || err != nil {
		return appendOne(nil, missing), err
	}
	if parent.Spec.Type != localv1alpha1.Type {
		return nil, nil
	}

	definitions := parent.Spec.MachineCapabilities
	own := gardenerutils.TransformSpecToParentFormat(profile.Spec, definitions)
	path := spec.Child("providerConfig")
	errs := validation.MachineTypes(own.MachineTypes, spec.Child("machineTypes"))
	config, decodeErr := localv1alpha1.CloudProfileConfigAt(profile.Spec.ProviderConfig, path)
	if decodeErr != nil {
		return append(errs, decodeErr), nil
	}
	errs = append(errs, validation.CloudProfileConfig(config, definitions, path)...)
	errs = append(errs, onlyOwn(config, configOf(old), own.MachineImages, parent, path)...)
	parents := offered(parent.Spec.MachineImages)
	inParent := func(image, version string) bool { return parents.Has(imageVersion{image, version}) }
	return append(errs, validation.CompleteImages(config, own.MachineImages, definitions, inParent, spec.Child("machineImages"))...), nil
}

func configOf(profile *gardencorev1beta1.NamespacedCloudProfile) *localv1alpha1.CloudProfileConfig {
	if profile != nil {
		if config, err := localv1alpha1.CloudProfileConfigAt(profile.Spec.ProviderConfig, nil); err == nil {
			return config
		}
	}
	return &localv1alpha1.CloudProfileConfig{}
}

// onlyOwn refuses container images for versions that the profile does not have, or has of its parent. The parent may get a
// version later that the profile had before: that one may stay.
func onlyOwn(config, old *localv1alpha1.CloudProfileConfig, own []gardencorev1beta1.MachineImage, parent *gardencorev1beta1.CloudProfile, path *field.Path) field.ErrorList {
	var (
		errs    field.ErrorList
		parents = offered(parent.Spec.MachineImages)
		owned   = offered(own)
		had     = sets.New[imageVersion]()
	)
	for _, image := range old.MachineImages {
		for _, version := range image.Versions {
			had.Insert(imageVersion{image.Name, version.Version})
		}
	}
	for i, image := range config.MachineImages {
		for j, version := range image.Versions {
			path := path.Child("machineImages").Index(i).Child("versions").Index(j).Child("version")
			this := imageVersion{image.Name, version.Version}
			switch {
			case parents.Has(this) && !had.Has(this):
				errs = append(errs, field.Forbidden(path, fmt.Sprintf(
					"version %s of the machine image %q is one of the CloudProfile %s, whose container image it has: take it out here", version.Version, image.Name, parent.Name)))
			case !owned.Has(this):
				errs = append(errs, field.Invalid(path, version.Version, fmt.Sprintf(
					"the machine image %q does not have this version in spec.machineImages: add it there or take it out here", image.Name)))
			}
		}
	}
	return errs
}

type imageVersion struct{ image, version string }

func offered(images []gardencorev1beta1.MachineImage) sets.Set[imageVersion] {
	result := sets.New[imageVersion]()
	for _, image := range images {
		for _, version := range image.Versions {
			result.Insert(imageVersion{image.Name, version.Version})
		}
	}
	return result
}

func appendOne(errs field.ErrorList, err *field.Error) field.ErrorList {
	if err == nil {
		return errs
	}
	return append(errs, err)
}
