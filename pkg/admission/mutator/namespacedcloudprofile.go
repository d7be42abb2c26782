// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package mutator holds the mutators of the admission webhooks. Package admission serves them.
package mutator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// NewNamespacedCloudProfile returns the mutator for the status of NamespacedCloudProfiles. gardener-controller-manager
// merges all that it knows of the parent and the profile's spec into status.cloudProfileSpec, which is what shoots are made
// of; but of providerConfig, which it can't read, it takes the parent's. This adds the machine images of the profile's own.
// A version that both have is the profile's, as it is in status.cloudProfileSpec.machineImages.
func NewNamespacedCloudProfile() extensionswebhook.Mutator {
	return &namespacedCloudProfile{}
}

type namespacedCloudProfile struct{}

// Mutate implements extensionswebhook.Mutator.
func (*namespacedCloudProfile) Mutate(_ context.Context, newObj, _ client.Object) error {
	profile, ok := newObj.(*gardencorev1beta1.NamespacedCloudProfile)
	if !ok {
		return fmt.Errorf("%T is not what this webhook is for", newObj)
	}
	status := &profile.Status.CloudProfileSpec
	if profile.DeletionTimestamp != nil || status.Type != localv1alpha1.Type || profile.Spec.ProviderConfig == nil {
		return nil
	}

	merged, err := localv1alpha1.CloudProfileConfigAt(status.ProviderConfig, field.NewPath("status", "cloudProfileSpec", "providerConfig"))
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
	merge(merged, own.MachineImages)
	merged.TypeMeta = metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.CloudProfileConfigKind}
	raw, jsonErr := json.Marshal(merged)
	if jsonErr != nil {
		return fmt.Errorf("encoding status.cloudProfileSpec.providerConfig: %w", jsonErr)
	}
	status.ProviderConfig = &runtime.RawExtension{Raw: raw}
	return nil
}

// merge adds images, and versions of images, to a configuration, in the place of those that it has.
func merge(into *localv1alpha1.CloudProfileConfig, images []localv1alpha1.MachineImages) {
	byName := make(map[string]int, len(into.MachineImages))
	for i, image := range slices.Backward(into.MachineImages) {
		byName[image.Name] = i
	}
	for _, image := range images {
		i, known := byName[image.Name]
		if !known {
			byName[image.Name] = len(into.MachineImages)
			into.MachineImages = append(into.MachineImages, image)
			continue
		}
		into.MachineImages[i].Versions = mergeVersions(into.MachineImages[i].Versions, image.Versions)
	}
}

func mergeVersions(versions, added []localv1alpha1.MachineImageVersion) []localv1alpha1.MachineImageVersion {
	versions = slices.Clone(versions)
	byVersion := make(map[string]int, len(versions))
	for i, version := range slices.Backward(versions) {
		byVersion[version.Version] = i
	}
	for _, version := range added {
		if i, known := byVersion[version.Version]; known {
			versions[i] = version
			continue
		}
		byVersion[version.Version] = len(versions)
		versions = append(versions, version)
	}
	return versions
}
