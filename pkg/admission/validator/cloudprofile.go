// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package validator

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/apis/local/validation"
)

// NewCloudProfile returns the validator for CloudProfiles: the providerConfig has a container image for every machine image
// of the CloudProfile, and machine types are machines.
func NewCloudProfile() extensionswebhook.Validator {
	return &rules[*gardencorev1beta1.CloudProfile]{check: checkCloudProfile}
}

func checkCloudProfile(_ context.Context, profile, old *gardencorev1beta1.CloudProfile) (field.ErrorList, error) {
	if profile.Spec.Type != localv1alpha1.Type || old != nil && equality.Semantic.DeepEqual(profile.Spec, old.Spec) {
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
}
