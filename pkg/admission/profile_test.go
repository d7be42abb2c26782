// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	. "github.com/gardener/gardener-extension-provider-local/pkg/admission"
)

func TestCloudProfiles(t *testing.T) {
	good := cloudProfile()
	bad := changed(good, func(p *gardencorev1beta1.CloudProfile) { p.Spec.ProviderConfig = nil })
	v := NewCloudProfile()
	run(t, map[string]test[*gardencorev1beta1.CloudProfile]{
		"one that is complete":                  {validator: v, obj: good},
		"another type":                          {validator: v, obj: changed(bad, func(p *gardencorev1beta1.CloudProfile) { p.Spec.Type = "other" })},
		"one that is being deleted":             {validator: v, obj: deleted(bad)},
		"one that is older than the rule":       {validator: v, obj: changed(bad, func(p *gardencorev1beta1.CloudProfile) { p.Labels = map[string]string{"a": "b"} }), old: bad},
		"one that is changed and not put right": {validator: v, obj: changed(bad, func(p *gardencorev1beta1.CloudProfile) { p.Spec.Regions = make([]gardencorev1beta1.Region, 1) }), old: bad, errs: []string{"spec.providerConfig: Required value"}},
		"no providerConfig":                     {validator: v, obj: bad, errs: []string{"spec.providerConfig: Required value: write a CloudProfileConfig"}},
		"a field that there is not": {validator: v, obj: changed(good, func(p *gardencorev1beta1.CloudProfile) {
			p.Spec.ProviderConfig = raw("CloudProfileConfig", `, "machineImage": []`)
		}), errs: []string{`spec.providerConfig: Invalid value: strict decoding error: unknown field "machineImage"`}},
		"a version without an image": {validator: v, obj: changed(good, func(p *gardencorev1beta1.CloudProfile) {
			p.Spec.MachineImages = []gardencorev1beta1.MachineImage{machineImage("local", "1.0.0", "2.0.0")}
		}), errs: []string{`spec.machineImages[0].versions[1].version: Invalid value: "2.0.0"`}},
		"several mistakes are told at once": {validator: v, obj: changed(good, func(p *gardencorev1beta1.CloudProfile) {
			p.Spec.ProviderConfig = raw("CloudProfileConfig", `, "machineImages": [{"name": "local", "versions": [{"version": "3.0.0", "image": ":"}]}]`)
		}), errs: []string{"spec.providerConfig.machineImages[0].versions[0].image: Invalid value", "spec.machineImages[0].versions[0].version: Invalid value"}},
		"a machine type that has nothing":          {validator: v, obj: changed(good, func(p *gardencorev1beta1.CloudProfile) { p.Spec.MachineTypes[0].CPU = resource.Quantity{} }), errs: []string{"spec.machineTypes[0].cpu: Invalid value"}},
		"an image for a version that is not there": {validator: v, obj: changed(good, func(p *gardencorev1beta1.CloudProfile) { p.Spec.MachineImages = nil })},
	})
}

func TestManyMistakesAreNotToldAllAtOnce(t *testing.T) {
	profile := changed(cloudProfile(), func(p *gardencorev1beta1.CloudProfile) {
		p.Spec.MachineTypes = make([]gardencorev1beta1.MachineType, 1000)
	})
	g := NewWithT(t)
	err := NewCloudProfile().Validate(t.Context(), profile, nil)
	g.Expect(err).To(MatchError(And(ContainSubstring("spec.machineTypes[0].cpu: Invalid value"), HaveSuffix(", and 1950 more"))))
	g.Expect(err).NotTo(MatchError(ContainSubstring("spec.machineTypes[100]")))
}

func TestNamespacedCloudProfiles(t *testing.T) {
	own := func(fields string) *gardencorev1beta1.NamespacedCloudProfile {
		return &gardencorev1beta1.NamespacedCloudProfile{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"},
			Spec: gardencorev1beta1.NamespacedCloudProfileSpec{
				Parent:         gardencorev1beta1.CloudProfileReference{Kind: "CloudProfile", Name: "local"},
				MachineImages:  []gardencorev1beta1.MachineImage{machineImage("local", "1.1.0"), machineImage("other", "7.0.0")},
				ProviderConfig: raw("CloudProfileConfig", fields),
			},
		}
	}
	const (
		local   = `{"name": "local", "versions": [{"version": "1.1.0", "image": "machine:v1.1"}]}`
		other   = `{"name": "other", "versions": [{"version": "7.0.0", "image": "other:v7"}]}`
		both    = `, "machineImages": [` + local + `, ` + other + `]`
		parents = `, "machineImages": [` + local + `, ` + other + `, {"name": "local-old", "versions": []}]`
	)
	var (
		good  = own(both)
		v     = NewNamespacedCloudProfile(reader(cloudProfile()))
		later = NewNamespacedCloudProfile(reader(changed(cloudProfile(), func(p *gardencorev1beta1.CloudProfile) {
			p.Spec.MachineImages = []gardencorev1beta1.MachineImage{machineImage("local", "1.0.0", "1.1.0")}
		})))
	)
	run(t, map[string]test[*gardencorev1beta1.NamespacedCloudProfile]{
		"versions and images of its own": {validator: v, obj: good},
		"nothing of its own": {validator: v, obj: changed(good, func(p *gardencorev1beta1.NamespacedCloudProfile) {
			p.Spec.MachineImages, p.Spec.ProviderConfig = nil, nil
		})},
		"another expiration of a version of the parent": {validator: v, obj: changed(good, func(p *gardencorev1beta1.NamespacedCloudProfile) {
			p.Spec.MachineImages, p.Spec.ProviderConfig = []gardencorev1beta1.MachineImage{machineImage("local", "1.0.0")}, nil
		})},
		"a parent of another type": {validator: NewNamespacedCloudProfile(reader(changed(cloudProfile(), func(p *gardencorev1beta1.CloudProfile) { p.Spec.Type = "other" }))), obj: own("x")},
		"a parent that is not there": {validator: NewNamespacedCloudProfile(reader()), obj: good,
			errs: []string{"spec.parent.name: reading CloudProfile local: ", "not found"}},
		"a parent that can't be read": {validator: NewNamespacedCloudProfile(silent()), obj: good, errs: []string{"spec.parent.name: reading CloudProfile local: no answer"}},
		"no parent":                   {validator: NewNamespacedCloudProfile(reader()), obj: &gardencorev1beta1.NamespacedCloudProfile{}, errs: []string{"reading CloudProfile"}},
		"one that is being deleted":   {validator: NewNamespacedCloudProfile(silent()), obj: deleted(good)},
		"one whose spec stays":        {validator: NewNamespacedCloudProfile(silent()), obj: good, old: good},
		"a version without an image": {validator: v, obj: own(`, "machineImages": [` + other + `]`),
			errs: []string{`spec.machineImages[0].versions[0].version: Invalid value: "1.1.0": no container image is known for it`}},
		"an image for a version that it has not": {validator: v, obj: own(`, "machineImages": [` + local + `, ` + other + `, {"name": "third", "versions": [{"version": "1", "image": "x"}]}]`),
			errs: []string{`spec.providerConfig.machineImages[2].versions[0].version: Invalid value: "1": the machine image "third" does not have this version in spec.machineImages`}},
		"an image for a version of the parent": {validator: v, obj: changed(own(`, "machineImages": [{"name": "local", "versions": [{"version": "1.0.0", "image": "mine"}]}]`), func(p *gardencorev1beta1.NamespacedCloudProfile) {
			p.Spec.MachineImages = []gardencorev1beta1.MachineImage{machineImage("local", "1.0.0")}
		}), errs: []string{`spec.providerConfig.machineImages[0].versions[0].version: Forbidden: version 1.0.0 of the machine image "local" is one of the CloudProfile local`}},
		"a version that the parent got later may stay": {validator: later, old: good, obj: changed(good, func(p *gardencorev1beta1.NamespacedCloudProfile) { p.Spec.CABundle = new("x") })},
		"a version that the parent has may not come":   {validator: later, obj: good, errs: []string{"Forbidden: version 1.1.0"}},
		"a machine image without versions":             {validator: v, obj: own(parents), errs: []string{"spec.providerConfig.machineImages[2].versions: Required value"}},
		"a field that there is not":                    {validator: v, obj: own(`, "images": []`), errs: []string{`spec.providerConfig: Invalid value: strict decoding error: unknown field "images"`}},
		"a machine type that has nothing": {validator: v, obj: changed(good, func(p *gardencorev1beta1.NamespacedCloudProfile) {
			p.Spec.MachineTypes = []gardencorev1beta1.MachineType{{Name: "x"}}
		}), errs: []string{"spec.machineTypes[0].cpu: Invalid value", "spec.machineTypes[0].memory: Invalid value"}},
	})
}
