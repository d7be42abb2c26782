// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	. "github.com/gardener/gardener-extension-provider-local/pkg/admission"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

func config(images string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "CloudProfileConfig", "machineImages": ` + images + `}`)}
}

func profile(own, parent *runtime.RawExtension) *gardencorev1beta1.NamespacedCloudProfile {
	return &gardencorev1beta1.NamespacedCloudProfile{
		Spec:   gardencorev1beta1.NamespacedCloudProfileSpec{ProviderConfig: own},
		Status: gardencorev1beta1.NamespacedCloudProfileStatus{CloudProfileSpec: gardencorev1beta1.CloudProfileSpec{Type: "local", ProviderConfig: parent}},
	}
}

func TestMachineImagesOfTheProfileJoinThoseOfTheParent(t *testing.T) {
	const (
		one   = `{"name": "local", "versions": [{"version": "1", "image": "a:1"}]}`
		two   = `{"name": "local", "versions": [{"version": "2", "image": "a:2"}]}`
		both  = `[{"name": "local", "versions": [{"version": "1", "image": "a:1"}, {"version": "2", "image": "a:2"}]}]`
		mine  = `{"name": "local", "versions": [{"version": "1", "capabilityFlavors": [{"image": "mine", "capabilities": {"architecture": ["arm64"]}}]}]}`
		other = `{"name": "other", "versions": [{"version": "7", "image": "b:7"}]}`
	)
	for name, test := range map[string]struct{ own, parent, merged string }{
		"another version":                {"[" + two + "]", "[" + one + "]", both},
		"another machine image":          {"[" + other + "]", "[" + one + "]", "[" + one + "," + other + "]"},
		"the same version, which counts": {"[" + mine + "]", "[" + one + "," + other + "]", "[" + mine + "," + other + "]"},
		"a second time":                  {"[" + two + "]", both, both},
		"nothing of the profile's own":   {"[]", "[" + one + "]", "[" + one + "]"},
		"nothing of the parent":          {"[" + one + "]", "[]", "[" + one + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			obj := profile(config(test.own), config(test.parent))
			g.Expect(NewImageMerger().Mutate(t.Context(), obj, nil)).To(Succeed())
			g.Expect(obj.Status.CloudProfileSpec.ProviderConfig.Raw).To(MatchJSON(config(test.merged).Raw))
			g.Expect(obj.Spec.ProviderConfig).To(Equal(config(test.own)))

			decoded := &localv1alpha1.CloudProfileConfig{}
			g.Expect(json.Unmarshal(obj.Status.CloudProfileSpec.ProviderConfig.Raw, decoded)).To(Succeed())
			g.Expect(decoded.Kind).To(Equal(localv1alpha1.CloudProfileConfigKind))
		})
	}
}

func TestAParentWithoutAConfig(t *testing.T) {
	g := NewWithT(t)
	obj := profile(config(`[{"name": "local", "versions": []}]`), nil)
	g.Expect(NewImageMerger().Mutate(t.Context(), obj, nil)).To(Succeed())
	g.Expect(obj.Status.CloudProfileSpec.ProviderConfig.Raw).To(MatchJSON(config(`[{"name": "local", "versions": []}]`).Raw))
}

func TestWhatIsLeftAlone(t *testing.T) {
	broken := &runtime.RawExtension{Raw: []byte("{}")}
	for name, change := range map[string]func(*gardencorev1beta1.NamespacedCloudProfile){
		"another type": func(p *gardencorev1beta1.NamespacedCloudProfile) { p.Status.CloudProfileSpec.Type = "other" },
		"no status yet": func(p *gardencorev1beta1.NamespacedCloudProfile) {
			p.Status = gardencorev1beta1.NamespacedCloudProfileStatus{}
		},
		"no providerConfig":               func(p *gardencorev1beta1.NamespacedCloudProfile) { p.Spec.ProviderConfig = nil },
		"a profile that is being deleted": func(p *gardencorev1beta1.NamespacedCloudProfile) { p.DeletionTimestamp = &metav1.Time{} },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			obj := profile(broken, broken)
			change(obj)
			before := obj.DeepCopy()
			g.Expect(NewImageMerger().Mutate(t.Context(), obj, nil)).To(Succeed())
			g.Expect(obj).To(Equal(before))
		})
	}
}

func TestWhatCannotBeMerged(t *testing.T) {
	g := NewWithT(t)
	broken := &runtime.RawExtension{Raw: []byte(`{"kind": "X"}`)}
	g.Expect(NewImageMerger().Mutate(t.Context(), profile(broken, config("[]")), nil)).To(MatchError(HavePrefix("spec.providerConfig: ")))
	g.Expect(NewImageMerger().Mutate(t.Context(), profile(config("[]"), broken), nil)).To(MatchError(HavePrefix("status.cloudProfileSpec.providerConfig: ")))
}
