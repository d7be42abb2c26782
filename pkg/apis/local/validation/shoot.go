// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// Machines get their addresses from an IPPool of Calico with the range of the shoot's nodes, which has to hold one block at
// least (Calico's documentation of IPPools, blockSize).
const (
	nodesBitsMaxV4 = 26
	nodesBitsMaxV6 = 122
)

// Empty refuses a providerConfig where there is nothing to configure: what a user asks for must not be ignored.
func Empty(config *runtime.RawExtension, path *field.Path) field.ErrorList {
	if config == nil || len(config.Raw) == 0 || string(config.Raw) == "null" {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "there is nothing to configure for type "+localv1alpha1.Type+": take it out")}
}

// Worker checks what machines make of a worker pool. path is that of the pool. old is the pool as it was, nil if it is new;
// what it had before is not complained about, so that an object that is older than a rule can be changed in other ways.
// namespace is that of the Shoot.
func Worker(namespace string, worker, old *gardencorev1beta1.Worker, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if old == nil || !sameConfig(worker.ProviderConfig, old.ProviderConfig) {
		errs = append(errs, workerConfig(namespace, worker, old, path.Child("providerConfig"))...)
	}
	if len(worker.DataVolumes) > 0 && (old == nil || len(old.DataVolumes) == 0) {
		errs = append(errs, field.Forbidden(path.Child("dataVolumes"), "machines have no data volumes: take them out"))
	}
	if worker.KubeletDataVolumeName != nil && (old == nil || old.KubeletDataVolumeName == nil) {
		errs = append(errs, field.Forbidden(path.Child("kubeletDataVolumeName"), "machines have no data volumes: take it out"))
	}
	if encrypted(worker) && (old == nil || !encrypted(old)) {
		errs = append(errs, field.Forbidden(path.Child("volume", "encrypted"), "the volume of a machine is a folder on a node of the seed, which is not encrypted for it: take it out"))
	}
	return errs
}

func encrypted(worker *gardencorev1beta1.Worker) bool {
	return worker.Volume != nil && worker.Volume.Encrypted != nil && *worker.Volume.Encrypted
}

func sameConfig(a, b *runtime.RawExtension) bool {
	return string(rawOf(a)) == string(rawOf(b))
}

func rawOf(config *runtime.RawExtension) []byte {
	if config == nil {
		return nil
	}
	return config.Raw
}

func workerConfig(namespace string, worker, old *gardencorev1beta1.Worker, path *field.Path) field.ErrorList {
	config, problem := localv1alpha1.WorkerConfigAt(worker.ProviderConfig, path)
	if problem != nil {
		return field.ErrorList{problem}
	}
	if config.Sizing != "" {
		if errs := localv1alpha1.ValidateMachineSizing(config.Sizing, path.Child("sizing")); len(errs) > 0 {
			return errs
		}
	}
	if config.SharedBackupBuckets && namespace != v1beta1constants.GardenNamespace {
		return field.ErrorList{field.Forbidden(path.Child("sharedBackupBuckets"),
			"the machines could read the backups of all shoots of the seed: only a Shoot in the namespace garden, which may become a seed, can have them; take it out")}
	}
	if old == nil || !v1beta1helper.IsUpdateStrategyInPlace(worker.UpdateStrategy) {
		return nil
	}
	before, err := localv1alpha1.WorkerConfigAt(old.ProviderConfig, path)
	if err != nil {
		return nil
	}
	var errs field.ErrorList
	if before.Sizing != config.Sizing {
		errs = append(errs, field.Forbidden(path.Child("sizing"),
			"machines that are updated in place keep their size: add a pool with another name and sizing, and then take this one out"))
	}
	if before.SharedBackupBuckets != config.SharedBackupBuckets {
		errs = append(errs, field.Forbidden(path.Child("sharedBackupBuckets"),
			"machines that are updated in place keep their folders: add a pool with another name, and then take this one out"))
	}
	return errs
}

// Nodes checks the range of a shoot's nodes. path is that of spec.networking.
func Nodes(networking *gardencorev1beta1.Networking, path *field.Path) field.ErrorList {
	if networking == nil || networking.Nodes == nil {
		return nil
	}
	value, path, others := *networking.Nodes, path.Child("nodes"), path
	nodes, err := netip.ParsePrefix(value)
	if err != nil {
		return field.ErrorList{field.Invalid(path, value, "it is no CIDR")}
	}

	var errs field.ErrorList
	limit := nodesBitsMaxV4
	if nodes.Addr().Is6() {
		limit = nodesBitsMaxV6
	}
	if nodes.Bits() > limit {
		errs = append(errs, field.Invalid(path, value, fmt.Sprintf("it is too small: machines get their addresses by blocks of a /%d, choose a range that has one at least", limit)))
	}
	for _, other := range []struct {
		field string
		cidr  *string
	}{{"pods", networking.Pods}, {"services", networking.Services}} {
		if overlaps(nodes, other.cidr) {
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("it overlaps %s (%s): choose ranges that are apart", others.Child(other.field), *other.cidr)))
		}
	}
	return errs
}

// NodesInSeed checks that machines which run in a seed have addresses that nothing else of the seed has: they are pods
// there. path is that of spec.networking.
func NodesInSeed(networking *gardencorev1beta1.Networking, seed *gardencorev1beta1.Seed, path *field.Path) field.ErrorList {
	if networking == nil || networking.Nodes == nil {
		return nil
	}
	nodes, err := netip.ParsePrefix(*networking.Nodes)
	if err != nil {
		return nil // Nodes tells.
	}
	var errs field.ErrorList
	for _, used := range []struct {
		field string
		cidr  *string
	}{{"nodes", seed.Spec.Networks.Nodes}, {"pods", &seed.Spec.Networks.Pods}, {"services", &seed.Spec.Networks.Services}} {
		if overlaps(nodes, used.cidr) {
			errs = append(errs, field.Invalid(path.Child("nodes"), *networking.Nodes, fmt.Sprintf(
				"it overlaps spec.networks.%s of the Seed %s (%s), in which the machines are pods: choose another range, or another seed", used.field, seed.Name, *used.cidr)))
		}
	}
	return errs
}

func overlaps(prefix netip.Prefix, other *string) bool {
	if other == nil {
		return false
	}
	parsed, err := netip.ParsePrefix(*other)
	return err == nil && prefix.Overlaps(parsed)
}
