// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"bytes"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// Empty refuses a providerConfig where there is nothing to configure: what a user asks for must not be ignored.
func Empty(config *runtime.RawExtension, path *field.Path) field.ErrorList {
	if raw := rawOf(config); len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "there is nothing to configure for type "+localv1alpha1.Type+": take it out")}
}

// Worker checks what machines make of a worker pool. path is that of the pool. old is the pool as it was, nil if it is new;
// what it had before is not complained about, so that an object that is older than a rule can be changed in other ways.
// namespace is that of the Shoot.
func Worker(namespace string, worker, old *gardencorev1beta1.Worker, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if old == nil || !bytes.Equal(rawOf(worker.ProviderConfig), rawOf(old.ProviderConfig)) {
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
	return worker.Volume != nil && ptr.Deref(worker.Volume.Encrypted, false)
}

func rawOf(config *runtime.RawExtension) []byte {
	return ptr.Deref(config, runtime.RawExtension{}).Raw
}

func workerConfig(namespace string, worker, old *gardencorev1beta1.Worker, path *field.Path) field.ErrorList {
	config, problem := localv1alpha1.WorkerConfigAt(worker.ProviderConfig, path)
	if problem != nil {
		return field.ErrorList{problem}
	}
	if config.Sizing != "" {
		if errs := localv1alpha1.ValidateMachineSizing(path.Child("sizing"), config.Sizing); len(errs) > 0 {
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
