// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

// list is a list of resources from names and quantities in turn.
func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestCapacity(t *testing.T) {
	machineType := func(cpu, gpus, memory string) *gardencorev1beta1.MachineType {
		return &gardencorev1beta1.MachineType{CPU: resource.MustParse(cpu), GPU: resource.MustParse(gpus), Memory: resource.MustParse(memory)}
	}
	withStorage := machineType("1", "0", "1Gi")
	withStorage.Storage = &gardencorev1beta1.MachineTypeStorage{StorageSize: new(resource.MustParse("20Gi"))}

	for _, test := range []struct {
		name        string
		machineType *gardencorev1beta1.MachineType
		volume      string
		expected    corev1.ResourceList
	}{
		{"no type", nil, "", list()},
		{"what a type does not say is left out", &gardencorev1beta1.MachineType{}, "", list()},
		{"cpu and memory", machineType("2", "0", "4Gi"), "", list("cpu", "2", "memory", "4Gi")},
		{"GPUs", machineType("2", "3", "4Gi"), "", list("cpu", "2", "memory", "4Gi", "nvidia.com/gpu", "3")},
		{"storage of the type", withStorage, "", list("cpu", "1", "memory", "1Gi", "ephemeral-storage", "20Gi")},
		{"a volume goes before it", withStorage, "50Gi", list("cpu", "1", "memory", "1Gi", "ephemeral-storage", "50Gi")},
		{"a volume that is no quantity", withStorage, "large", list("cpu", "1", "memory", "1Gi", "ephemeral-storage", "20Gi")},
	} {
		t.Run(test.name, func(t *testing.T) {
			NewWithT(t).Expect(machine.Capacity(test.machineType, test.volume, gpu)).To(Equal(test.expected))
		})
	}
}

func TestResources(t *testing.T) {
	capacity := list("cpu", "2", "memory", "4Gi", "nvidia.com/gpu", "1")
	// The disk has a limit, which no node has to have free.
	requests := list("cpu", "2", "memory", "4Gi", "nvidia.com/gpu", "1", "ephemeral-storage", "0")
	limits := list("cpu", "2", "memory", "4Gi", "nvidia.com/gpu", "1", "ephemeral-storage", "20Gi")
	for sizing, expected := range map[localv1alpha1.MachineSizing]corev1.ResourceRequirements{
		localv1alpha1.MachineSizingExact: {Requests: requests, Limits: limits},
		"":                               {Requests: requests, Limits: limits},
		// GPUs can't be shared.
		localv1alpha1.MachineSizingOvercommit: {Requests: list("cpu", "0", "memory", "0", "nvidia.com/gpu", "1", "ephemeral-storage", "0"), Limits: limits},
		localv1alpha1.MachineSizingUnlimited:  {},
	} {
		t.Run("sizing "+string(sizing), func(t *testing.T) {
			g := NewWithT(t)
			resources := machine.Resources(capacity, sizing)
			g.Expect(resources.Limits).To(BeComparableTo(expected.Limits))
			g.Expect(resources.Requests).To(BeComparableTo(expected.Requests))
		})
	}
}

func TestTheDiskOfATypeOrAVolumeIsRequested(t *testing.T) {
	g := NewWithT(t)
	capacity := list("cpu", "2", "ephemeral-storage", "50Gi")
	exact := machine.Resources(capacity, localv1alpha1.MachineSizingExact)
	g.Expect(exact.Requests).To(BeComparableTo(capacity))
	g.Expect(exact.Limits).To(BeComparableTo(capacity))
	overcommit := machine.Resources(capacity, localv1alpha1.MachineSizingOvercommit)
	g.Expect(overcommit.Requests).To(BeComparableTo(list("cpu", "0", "ephemeral-storage", "0")))
	g.Expect(overcommit.Limits).To(BeComparableTo(capacity))
}

func TestNames(t *testing.T) {
	g := NewWithT(t)
	g.Expect(machine.Name(machine.PodName("shoot--local--a-worker-z1-12345-abcde"))).To(Equal("shoot--local--a-worker-z1-12345-abcde"))

	long := "shoot--project123--shootname12-workerpool12345-z1-12345-abcde"
	g.Expect(machine.PodName(long)).To(And(HaveLen(63), HavePrefix("machine-shoot--project123--shootname12-"), Not(Equal(machine.PodName(long[:60]+"f")))))
	g.Expect(validation.IsDNS1123Label(machine.PodName(long))).To(BeEmpty())
	g.Expect(validation.IsDNS1123Label(machine.PodName(long[:45] + strings.Repeat("-", 12) + "abc"))).To(BeEmpty())

	g.Expect(machine.IPPoolName("shoot--local--a", gardencorev1beta1.IPFamilyIPv6)).To(Equal("shoot-machines-shoot--local--a-ipv6"))
	g.Expect(machine.Labels("m")).To(Equal(map[string]string{"app": "machine", "machine-provider": "local", "machine": "m"}))
}
