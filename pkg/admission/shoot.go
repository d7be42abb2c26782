// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/apis/local/validation"
)

// NewShoot returns the validator for Shoots: the providerConfigs, what machines have not, the range of the nodes, and that
// there is a container image for the machines of every pool. Gardener's own rules come before it.
//
// nodeRanges are those that nodes may have besides private ones.
//
// reader reads from the API server. Needed permissions: get on CloudProfiles, NamespacedCloudProfiles, Seeds,
// CredentialsBindings, SecretBindings, Secrets and InternalSecrets.
func NewShoot(reader client.Reader, nodeRanges ...netip.Prefix) extensionswebhook.Validator {
	v := &shootValidator{reader: reader, nodeRanges: nodeRanges}
	return &validator[gardencorev1beta1.Shoot]{v.check}
}

type shootValidator struct {
	reader     client.Reader
	nodeRanges []netip.Prefix
}

func (v *shootValidator) check(ctx context.Context, shoot, old *gardencorev1beta1.Shoot) (field.ErrorList, error) {
	if shoot.Spec.Provider.Type != localv1alpha1.Type || equality.Semantic.DeepEqual(shoot.Spec, old.Spec) {
		return nil, nil
	}

	var (
		errs          field.ErrorList
		spec          = field.NewPath("spec")
		path          = spec.Child("provider")
		provider, was = shoot.Spec.Provider, old.Spec.Provider
	)
	if !equality.Semantic.DeepEqual(provider.InfrastructureConfig, was.InfrastructureConfig) {
		errs = append(errs, validation.Empty(provider.InfrastructureConfig, path.Child("infrastructureConfig"))...)
	}
	if !equality.Semantic.DeepEqual(provider.ControlPlaneConfig, was.ControlPlaneConfig) {
		errs = append(errs, validation.Empty(provider.ControlPlaneConfig, path.Child("controlPlaneConfig"))...)
	}
	if len(provider.Workers) == 0 {
		return errs, nil
	}

	before := byName(was.Workers)
	for i := range provider.Workers {
		errs = append(errs, validation.Worker(shoot.Namespace, &provider.Workers[i], before[provider.Workers[i].Name], path.Child("workers").Index(i))...)
	}
	images, err := v.checkImages(ctx, shoot, old, path.Child("workers"))
	if err != nil {
		return nil, err
	}
	nodes, err := v.checkNodes(ctx, shoot, old, spec)
	if err != nil {
		return nil, err
	}
	credentials, err := v.checkCredentials(ctx, shoot, old, spec)
	return slices.Concat(errs, images, nodes, credentials), err
}

// checkCredentials looks at other credentials than before.
func (v *shootValidator) checkCredentials(ctx context.Context, shoot, old *gardencorev1beta1.Shoot, spec *field.Path) (field.ErrorList, error) {
	if len(old.Spec.Provider.Workers) == 0 ||
		ptr.Equal(shoot.Spec.CredentialsBindingName, old.Spec.CredentialsBindingName) && ptr.Equal(shoot.Spec.SecretBindingName, old.Spec.SecretBindingName) {
		return nil, nil
	}
	now, err := kubeconfigOf(ctx, v.reader, shoot)
	if err != nil {
		return nil, err
	}
	was, err := kubeconfigOf(ctx, v.reader, old)
	if err != nil || sameServer(now, was) {
		return nil, err
	}
	return field.ErrorList{field.Forbidden(spec.Child("credentialsBindingName"),
		"the server of its kubeconfig must stay the same, as the machines are there: make another Shoot for another cluster")}, nil
}

func byName(pools []gardencorev1beta1.Worker) map[string]*gardencorev1beta1.Worker {
	result := make(map[string]*gardencorev1beta1.Worker, len(pools))
	for i := range pools {
		result[pools[i].Name] = &pools[i]
	}
	return result
}

// checkImages looks at pools that are new or that get another machine image or type. Others go on with what they have,
// even if the CloudProfile has dropped it.
func (v *shootValidator) checkImages(ctx context.Context, shoot, old *gardencorev1beta1.Shoot, path *field.Path) (field.ErrorList, error) {
	var (
		changed []int
		pools   = byName(old.Spec.Provider.Workers)
	)
	for i, pool := range shoot.Spec.Provider.Workers {
		before := pools[pool.Name]
		if pool.Machine.Image != nil && pool.Machine.Image.Version != nil && (before == nil || !equality.Semantic.DeepEqual(pool.Machine, before.Machine)) {
			changed = append(changed, i)
		}
	}
	if len(changed) == 0 {
		return nil, nil
	}

	profile, err := gardenerutils.GetCloudProfile(ctx, v.reader, shoot)
	if err != nil {
		return nil, fmt.Errorf("spec.cloudProfile: reading it: %w", err)
	}
	config, decodeErr := localv1alpha1.CloudProfileConfigAt(profile.Spec.ProviderConfig, field.NewPath("spec", "providerConfig"))
	if decodeErr != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "cloudProfile"), profile.Name, "it is not valid, ask whoever maintains it: "+decodeErr.Error())}, nil
	}
	var errs field.ErrorList
	versions := validation.Versions(config)
	for _, i := range changed {
		errs = append(errs, checkMachine(shoot.Spec.Provider.Workers[i].Machine, profile, versions, path.Index(i).Child("machine"))...)
	}
	return errs, nil
}

func checkMachine(machine gardencorev1beta1.Machine, profile *gardencorev1beta1.CloudProfile, versions map[validation.ImageVersion]*localv1alpha1.MachineImageVersion, path *field.Path) field.ErrorList {
	machineType := v1beta1helper.FindMachineTypeByName(profile.Spec.MachineTypes, machine.Type)
	if machineType == nil {
		return field.ErrorList{field.Invalid(path.Child("type"), machine.Type, fmt.Sprintf("the CloudProfile %s has no such machine type: choose one of its spec.machineTypes", profile.Name))}
	}
	version := versions[validation.ImageVersion{Image: machine.Image.Name, Version: *machine.Image.Version}]
	if version == nil {
		return field.ErrorList{field.Invalid(path.Child("image", "version"), *machine.Image.Version, fmt.Sprintf(
			"the CloudProfile %s has no container image for this version of the machine image %q: choose another version, or have it added to machineImages of spec.providerConfig there", profile.Name, machine.Image.Name))}
	}
	if !validation.Serves(version, machineType.Capabilities, profile.Spec.MachineCapabilities) {
		return field.ErrorList{field.Invalid(path.Child("image", "version"), *machine.Image.Version, fmt.Sprintf(
			"the CloudProfile %s has no container image of this version for the capabilities %s of machine type %q: choose another version or type, or have one added to capabilityFlavors in spec.providerConfig there",
			profile.Name, machineType.Capabilities, machine.Type))}
	}
	return nil
}

// rangesOf leaves out what is no range: a Shoot may get another one of these fields though it is older than a rule for ranges.
func rangesOf(networking *gardencorev1beta1.Networking) [3]string {
	if networking == nil {
		return [3]string{}
	}
	return [3]string{ptr.Deref(networking.Nodes, ""), ptr.Deref(networking.Pods, ""), ptr.Deref(networking.Services, "")}
}

// checkNodes looks at the range of the nodes when the ranges change, and at that of the seed when a seed is chosen.
func (v *shootValidator) checkNodes(ctx context.Context, shoot, old *gardencorev1beta1.Shoot, spec *field.Path) (field.ErrorList, error) {
	var (
		errs     field.ErrorList
		path     = spec.Child("networking")
		networks = shoot.Spec.Networking
		changed  = !equality.Semantic.DeepEqual(rangesOf(networks), rangesOf(old.Spec.Networking))
	)
	if changed {
		errs = append(errs, validation.Nodes(networks, v.nodeRanges, path)...)
	}
	if shoot.Spec.SeedName == nil || !changed && ptr.Equal(shoot.Spec.SeedName, old.Spec.SeedName) {
		return errs, nil
	}
	seed := &gardencorev1beta1.Seed{}
	if err := v.reader.Get(ctx, client.ObjectKey{Name: *shoot.Spec.SeedName}, seed); err != nil {
		return nil, fmt.Errorf("%s: reading Seed %s: %w", spec.Child("seedName"), *shoot.Spec.SeedName, err)
	}
	inSeed := validation.NodesInSeed(networks, seed, path)
	if len(inSeed) == 0 {
		return errs, nil
	}
	if kubeconfig, err := kubeconfigOf(ctx, v.reader, shoot); kubeconfig != nil || err != nil {
		return errs, err
	}
	return append(errs, inSeed...), nil
}
