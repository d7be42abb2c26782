// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	. "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// raw is an object of a kind with these fields.
func raw(kind, fields string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "` + kind + `"` + fields + `}`)}
}

func TestCloudProfileConfigIsDecodedStrictly(t *testing.T) {
	g := NewWithT(t)
	path := field.NewPath("spec", "providerConfig")
	config, problem := CloudProfileConfigAt(raw(CloudProfileConfigKind, `, "machineImages": [{"name": "local", "versions": [{"version": "1.0.0", "image": "node:v1"},
		{"version": "2.0.0", "capabilityFlavors": [{"image": "node:v2", "capabilities": {"architecture": ["arm64"]}}]}]}], "loadBalancer": {"image": "envoy"}`), path)
	g.Expect(problem).NotTo(HaveOccurred())
	g.Expect(config.MachineImages).To(ConsistOf(And(HaveField("Name", "local"), HaveField("Versions", HaveExactElements(
		HaveField("Image", "node:v1"),
		HaveField("CapabilityFlavors", ConsistOf(HaveField("Image", "node:v2"))),
	)))))

	_, problem = CloudProfileConfigAt(raw(CloudProfileConfigKind, `, "machineImages": [{"name": "local", "version": []}]`), path)
	g.Expect(problem).To(MatchError(And(ContainSubstring("spec.providerConfig"), ContainSubstring(`unknown field "machineImages[0].version"`))))
	_, problem = CloudProfileConfigAt(raw(WorkerConfigKind, ""), path)
	g.Expect(problem).To(MatchError(ContainSubstring("spec.providerConfig")))
	config, problem = CloudProfileConfigAt(nil, path)
	g.Expect(problem).NotTo(HaveOccurred())
	g.Expect(config).To(Equal(&CloudProfileConfig{}))
}

func TestWorkerConfigIsDecodedStrictly(t *testing.T) {
	g := NewWithT(t)
	_, problem := WorkerConfigAt(raw(WorkerConfigKind, `, "size": "Exact"`), nil)
	g.Expect(problem).To(MatchError(ContainSubstring(`unknown field "size"`)))
}

func TestTheSizings(t *testing.T) {
	g := NewWithT(t)
	for _, sizing := range []MachineSizing{MachineSizingExact, MachineSizingOvercommit, MachineSizingUnlimited} {
		g.Expect(ValidateMachineSizing(nil, sizing)).To(BeEmpty())
	}
	g.Expect(ValidateMachineSizing(field.NewPath("sizing"), "exact").ToAggregate()).To(MatchError(And(
		ContainSubstring(`sizing: Unsupported value: "exact"`), ContainSubstring(`"Exact", "Overcommit", "Unlimited"`))))
}

func TestMachineProviderSpecNeedsAnImage(t *testing.T) {
	g := NewWithT(t)
	spec, err := DecodeMachineProviderSpec(raw(MachineProviderSpecKind, `, "image": "node:v1", "resources": {"limits": {"cpu": "2"}}`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(spec.Image).To(Equal("node:v1"))
	g.Expect(spec.Resources.Limits.Cpu().String()).To(Equal("2"))

	_, err = DecodeMachineProviderSpec(raw(MachineProviderSpecKind, ""))
	g.Expect(err).To(MatchError(ContainSubstring("providerSpec.image: Required value")))
	_, err = DecodeMachineProviderSpec(nil)
	g.Expect(err).To(MatchError(ContainSubstring("providerSpec.image: Required value")))
	_, err = DecodeMachineProviderSpec(&runtime.RawExtension{Raw: []byte(`[]`)})
	g.Expect(err).To(MatchError(ContainSubstring("providerSpec")))
}

func TestWorkerStatusOfOthersIsEmpty(t *testing.T) {
	g := NewWithT(t)
	for _, status := range []*runtime.RawExtension{nil, {}, {Raw: []byte(":")}, raw("Other", `, "machineImages": [{"name": "a"}]`)} {
		g.Expect(DecodeWorkerStatus(status)).To(Equal(&WorkerStatus{}))
	}
	g.Expect(DecodeWorkerStatus(raw(WorkerStatusKind, `, "machineImages": [{"name": "a", "version": "1", "image": "i"}], "later": true`)).MachineImages).
		To(ConsistOf(MachineImage{Name: "a", Version: "1", Image: "i"}))
}
