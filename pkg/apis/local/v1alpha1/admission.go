// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CloudProfileConfigAt decodes the providerConfig of a CloudProfile or NamespacedCloudProfile at a path strictly; nil is an
// empty one. An error is for whoever writes that object: it has the path.
func CloudProfileConfigAt(raw *runtime.RawExtension, path *field.Path) (*CloudProfileConfig, *field.Error) {
	config := &CloudProfileConfig{}
	return config, decodeAt(raw, config, CloudProfileConfigKind, path)
}

// WorkerConfigAt decodes the providerConfig of a worker pool at a path strictly; nil is an empty one. It is not validated.
func WorkerConfigAt(raw *runtime.RawExtension, path *field.Path) (*WorkerConfig, *field.Error) {
	config := &WorkerConfig{}
	return config, decodeAt(raw, config, WorkerConfigKind, path)
}

func decodeAt(raw *runtime.RawExtension, into runtime.Object, kind string, path *field.Path) *field.Error {
	err := decodeStrictly(raw, into)
	switch {
	case err == nil:
		return nil
	case runtime.IsStrictDecodingError(err):
		return field.Invalid(path, field.OmitValueType{}, err.Error()+": correct it or take it out")
	default:
		return field.Invalid(path, field.OmitValueType{}, fmt.Sprintf("%v: it must be of apiVersion %s and kind %s", err, SchemeGroupVersion, kind))
	}
}
