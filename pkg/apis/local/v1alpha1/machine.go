// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DecodeMachineProviderSpec decodes and validates the providerSpec of a MachineClass strictly. An error names the path of
// the field that is wrong, below providerSpec.
func DecodeMachineProviderSpec(raw *runtime.RawExtension) (*MachineProviderSpec, error) {
	spec := &MachineProviderSpec{}
	if problem := decodeAt(raw, spec, MachineProviderSpecKind, field.NewPath("providerSpec")); problem != nil {
		return nil, problem
	}
	if spec.Image == "" {
		return nil, field.Required(field.NewPath("providerSpec", "image"), "name the container image of the machine")
	}
	return spec, nil
}

// DecodeWorkerStatus decodes the providerStatus of a Worker; nil, and what is not a WorkerStatus, is an empty one.
func DecodeWorkerStatus(raw *runtime.RawExtension) *WorkerStatus {
	status := &WorkerStatus{}
	if raw == nil || json.Unmarshal(raw.Raw, status) != nil || status.Kind != WorkerStatusKind {
		return &WorkerStatus{}
	}
	return status
}

// DefaultAllowedSizings are what worker pools may choose if the operator does not say it: what bounds a machine, and the sizing
// that all pools have by default.
func DefaultAllowedSizings(sizing MachineSizing) []MachineSizing {
	out := []MachineSizing{MachineSizingExact, MachineSizingOvercommit}
	if !slices.Contains(out, sizing) {
		out = append(out, sizing)
	}
	return out
}

// ValidateMachineSizing returns an error if a sizing is none that there is.
func ValidateMachineSizing(path *field.Path, sizing MachineSizing) field.ErrorList {
	known := []MachineSizing{MachineSizingExact, MachineSizingOvercommit, MachineSizingUnlimited}
	if slices.Contains(known, sizing) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, sizing, known)}
}

func decodeStrictly(raw *runtime.RawExtension, into runtime.Object) error {
	if raw == nil || len(raw.Raw) == 0 {
		return nil
	}
	// Only that kind is known. Users name the kind, and one of ours has quantities, which take hours to parse if they are made for it.
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(SchemeGroupVersion, into)
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(SchemeGroupVersion)
	return runtime.DecodeInto(decoder, raw.Raw, into)
}
