// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// FuzzDecode looks for what a user may write that makes a controller panic, or that is accepted, but not a second time.
func FuzzDecode(f *testing.F) {
	const version = `{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":`
	for _, seed := range []string{
		version + `"CloudProfileConfig","machineImages":[{"name":"debian","versions":[{"version":"12.0.0","image":"a/b:c"}]}]}`,
		version + `"DNSRecordConfig","provider":"rfc2136","rfc2136":{"server":"10.0.0.1:53"}}`,
		version + `"WorkerConfig"}`,
		version + `"MachineProviderSpec","image":"a/b:c"}`,
		// It is no MachineProviderSpec that users write, so the quantity is not parsed, which would take minutes.
		version + `"MachineProviderSpec","resources":{"requests":{"cpu":"1000000000000000000000e200000000"}}}`,
		`{}`, `null`, `[]`, `"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		again(t, data, at(localv1alpha1.CloudProfileConfigAt))
		again(t, data, localv1alpha1.DecodeDNSRecordConfig)
		again(t, data, at(localv1alpha1.WorkerConfigAt))
		if !bytes.Contains(data, []byte("resources")) { // What machine-controller-manager is given is written by controllers.
			again(t, data, localv1alpha1.DecodeMachineProviderSpec)
		}
		// What controllers wrote they read without a complaint.
		localv1alpha1.DecodeDNSRecordStatus(&runtime.RawExtension{Raw: data})
		localv1alpha1.DecodeWorkerStatus(&runtime.RawExtension{Raw: data})
	})
}

// at is a function that decodes, without a path.
func at[T any](decode func(*runtime.RawExtension, *field.Path) (*T, *field.Error)) func(*runtime.RawExtension) (*T, error) {
	return func(raw *runtime.RawExtension) (*T, error) {
		decoded, problem := decode(raw, nil)
		if problem != nil {
			return nil, problem
		}
		return decoded, nil
	}
}

func again[T any](t *testing.T, data []byte, decode func(*runtime.RawExtension) (*T, error)) {
	t.Helper()
	first, err := decode(&runtime.RawExtension{Raw: data})
	if err != nil || first == nil {
		return
	}
	content, err := json.Marshal(first)
	if err != nil {
		t.Fatalf("encoding what was decoded: %v", err)
	}
	// A decoder may take off the kind, which it has checked.
	var document map[string]any
	if json.Unmarshal(content, &document) == nil && document["kind"] == nil {
		return
	}
	second, err := decode(&runtime.RawExtension{Raw: content})
	if err != nil {
		t.Fatalf("what was accepted is refused: %v\n%s", err, content)
	}
	if !equality.Semantic.DeepEqual(first, second) {
		t.Fatalf("it changes when it is decoded again: %s", content)
	}
}
