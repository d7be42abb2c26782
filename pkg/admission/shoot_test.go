// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"

	. "github.com/gardener/gardener-extension-provider-local/pkg/admission"
)

func shoot() *gardencorev1beta1.Shoot {
	return &gardencorev1beta1.Shoot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shoot"},
		Spec: gardencorev1beta1.ShootSpec{
			CloudProfile:           &gardencorev1beta1.CloudProfileReference{Kind: "CloudProfile", Name: "local"},
			CredentialsBindingName: new("binding"),
			SeedName:               new("seed"),
			Networking:             &gardencorev1beta1.Networking{Nodes: new("10.0.0.0/16"), Pods: new("10.3.0.0/16"), Services: new("10.4.0.0/16")},
			Provider:               gardencorev1beta1.Provider{Type: "local", Workers: []gardencorev1beta1.Worker{pool("a", "local", "1.0.0")}},
		},
	}
}

func pool(name, image, version string) gardencorev1beta1.Worker {
	return gardencorev1beta1.Worker{Name: name, Machine: gardencorev1beta1.Machine{Type: "small", Image: &gardencorev1beta1.ShootMachineImage{Name: image, Version: &version}}}
}

func seed() *gardencorev1beta1.Seed {
	return &gardencorev1beta1.Seed{
		ObjectMeta: metav1.ObjectMeta{Name: "seed"},
		Spec: gardencorev1beta1.SeedSpec{
			Provider: gardencorev1beta1.SeedProvider{Type: "local"},
			Networks: gardencorev1beta1.SeedNetworks{Nodes: new("172.18.0.0/24"), Pods: "10.1.0.0/16", Services: "10.2.0.0/16"},
		},
	}
}

func secretBinding() *gardencorev1beta1.SecretBinding {
	return &gardencorev1beta1.SecretBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "old"}, Provider: &gardencorev1beta1.SecretBindingProvider{Type: "local"},
		SecretRef: corev1.SecretReference{Namespace: namespace, Name: "credentials"},
	}
}

func binding() *securityv1alpha1.CredentialsBinding {
	return &securityv1alpha1.CredentialsBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "binding"}, Provider: securityv1alpha1.CredentialsBindingProvider{Type: "local"},
		CredentialsRef: corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: namespace, Name: "credentials"},
	}
}

func TestShoots(t *testing.T) {
	type s = gardencorev1beta1.Shoot
	var (
		good   = shoot()
		v      = NewShoot(reader(cloudProfile(), seed(), binding(), credentialsSecret(nil)))
		config = &runtime.RawExtension{Raw: []byte("{}")}
		wrong  = changed(good, func(s *s) { s.Spec.Provider.InfrastructureConfig = config })
		silent = NewShoot(silent())
		inSeed = changed(good, func(s *s) { s.Spec.Networking.Nodes = new("10.1.0.0/24") })
		bare   = changed(good, func(s *s) { s.Spec.Provider.Workers = nil })
		// moved has another binding, for a server.
		moved = func(server string) extensionswebhook.Validator {
			secret := credentialsSecret(map[string][]byte{"kubeconfig": kubeconfig(server)})
			secret.Name = "moved"
			other := changed(binding(), func(b *securityv1alpha1.CredentialsBinding) { b.Name, b.CredentialsRef.Name = "moved", "moved" })
			return NewShoot(reader(cloudProfile(), seed(), binding(), credentialsSecret(map[string][]byte{"kubeconfig": kubeconfig("https://elsewhere")}), other, secret))
		}
	)
	run(t, map[string]test[*gardencorev1beta1.Shoot]{
		"a good one":                           {validator: v, obj: good},
		"another type":                         {validator: silent, obj: changed(wrong, func(s *s) { s.Spec.Provider.Type = "other" })},
		"one that is being deleted":            {validator: silent, obj: deleted(wrong)},
		"one whose spec stays":                 {validator: silent, obj: changed(wrong, func(s *s) { s.Annotations = map[string]string{"a": "b"} }), old: wrong},
		"one that is older than a rule":        {validator: v, obj: changed(wrong, func(s *s) { s.Spec.Purpose = new(gardencorev1beta1.ShootPurposeTesting) }), old: wrong},
		"an infrastructureConfig":              {validator: v, obj: wrong, errs: []string{"spec.provider.infrastructureConfig: Forbidden: there is nothing to configure for type local: take it out"}},
		"a controlPlaneConfig":                 {validator: v, obj: good, old: nil},
		"a controlPlaneConfig that comes":      {validator: v, old: good, obj: changed(good, func(s *s) { s.Spec.Provider.ControlPlaneConfig = config }), errs: []string{"spec.provider.controlPlaneConfig: Forbidden"}},
		"one without workers asks nobody":      {validator: silent, obj: bare},
		"one without workers but with configs": {validator: silent, obj: changed(bare, func(s *s) { s.Spec.Provider.ControlPlaneConfig = config }), errs: []string{"spec.provider.controlPlaneConfig: Forbidden"}},
		"a pool's providerConfig":              {validator: v, obj: changed(good, func(s *s) { s.Spec.Provider.Workers[0].ProviderConfig = raw("WorkerConfig", `, "sizing": "no"`) }), errs: []string{"spec.provider.workers[0].providerConfig.sizing: Unsupported value"}},
		"data volumes": {validator: v, obj: changed(good, func(s *s) {
			s.Spec.Provider.Workers[0].DataVolumes = []gardencorev1beta1.DataVolume{{Name: "d"}}
		}), errs: []string{"spec.provider.workers[0].dataVolumes: Forbidden"}},
		"an unknown version": {validator: v, obj: changed(good, func(s *s) { s.Spec.Provider.Workers = append(s.Spec.Provider.Workers, pool("b", "local", "9.0.0")) }),
			errs: []string{`spec.provider.workers[1].machine.image.version: Invalid value: "9.0.0": the CloudProfile local has no container image for this version of the machine image "local"`}},
		"an unknown machine type": {validator: v, obj: changed(good, func(s *s) { s.Spec.Provider.Workers[0].Machine.Type = "huge" }),
			errs: []string{`spec.provider.workers[0].machine.type: Invalid value: "huge": the CloudProfile local has no such machine type`}},
		"a version that the CloudProfile has dropped stays": {validator: v,
			old: changed(good, func(s *s) { s.Spec.Provider.Workers[0].Machine.Image.Version = new("0.9.0") }),
			obj: changed(good, func(s *s) {
				s.Spec.Provider.Workers[0].Machine.Image.Version, s.Spec.Provider.Workers[0].Maximum = new("0.9.0"), 3
			})},
		"a CloudProfile that can't be read": {validator: silent, obj: good, errs: []string{"spec.cloudProfile: reading it: no answer"}},
		"a CloudProfile that is not valid": {validator: NewShoot(reader(changed(cloudProfile(), func(p *gardencorev1beta1.CloudProfile) { p.Spec.ProviderConfig = raw("X", "") }), seed())), obj: good,
			errs: []string{`spec.cloudProfile: Invalid value: "local": it is not valid, ask whoever maintains it: spec.providerConfig`}},
		"a range of nodes that is too small": {validator: v, obj: changed(good, func(s *s) { s.Spec.Networking.Nodes = new("10.0.0.0/28") }), errs: []string{"spec.networking.nodes: Invalid value"}},
		"a public range of nodes": {validator: v, obj: changed(good, func(s *s) { s.Spec.Networking.Nodes = new("1.1.1.0/26") }), errs: []string{
			`spec.networking.nodes: Invalid value: "1.1.1.0/26": it is not a private range`}},
		"a public range that the operator allows": {obj: changed(good, func(s *s) { s.Spec.Networking.Nodes = new("1.1.1.0/26") }),
			validator: NewShoot(reader(cloudProfile(), seed(), binding(), credentialsSecret(nil)), netip.MustParsePrefix("1.1.1.0/24"))},
		"a public range that is older than the rule": {validator: v, old: changed(good, func(s *s) { s.Spec.Networking.Nodes = new("1.1.1.0/26") }), obj: changed(good, func(s *s) {
			s.Spec.Networking.Nodes, s.Spec.Networking.ProviderConfig = new("1.1.1.0/26"), config
		})},
		"a range of nodes that stays": {validator: silent, old: inSeed, obj: changed(inSeed, func(s *s) { s.Spec.Purpose = new(gardencorev1beta1.ShootPurposeTesting) })},
		"nodes among the seed's pods": {validator: v, obj: inSeed,
			errs: []string{`spec.networking.nodes: Invalid value: "10.1.0.0/24": it overlaps spec.networks.pods of the Seed seed (10.1.0.0/16)`}},
		"no seed yet": {validator: NewShoot(reader(cloudProfile())), obj: changed(inSeed, func(s *s) { s.Spec.SeedName = nil })},
		"another seed": {validator: v, obj: inSeed, old: changed(inSeed, func(s *s) { s.Spec.SeedName = new("other") }),
			errs: []string{"it overlaps spec.networks.pods of the Seed seed"}},
		"a seed that is not there": {validator: NewShoot(reader(cloudProfile())), obj: good, errs: []string{"spec.seedName: reading Seed seed: ", "not found"}},
		"nodes among the pods of a seed in which they are not": {obj: inSeed,
			validator: NewShoot(reader(cloudProfile(), seed(), binding(), credentialsSecret(map[string][]byte{"kubeconfig": kubeconfig("https://elsewhere")})))},
		"the same by a SecretBinding": {obj: changed(inSeed, func(s *s) { s.Spec.CredentialsBindingName, s.Spec.SecretBindingName = nil, new("old") }),
			validator: NewShoot(reader(cloudProfile(), seed(), secretBinding(), credentialsSecret(map[string][]byte{"kubeconfig": kubeconfig("https://elsewhere")})))},
		"credentials for the machines' cluster that are others": {validator: moved("https://elsewhere"), old: good, obj: changed(good, func(s *s) { s.Spec.CredentialsBindingName = new("moved") })},
		"credentials for another cluster": {validator: moved("https://another"), old: good, obj: changed(good, func(s *s) { s.Spec.CredentialsBindingName = new("moved") }),
			errs: []string{"spec.credentialsBindingName: Forbidden: the server of its kubeconfig must stay the same"}},
		"nodes among the seed's pods, and credentials that are missing": {obj: inSeed, validator: NewShoot(reader(cloudProfile(), seed(), binding())), errs: []string{"it overlaps"}},
		"nodes among the seed's pods, and no binding":                   {obj: inSeed, validator: NewShoot(reader(cloudProfile(), seed())), errs: []string{"it overlaps"}},
	})
}

func TestShootsOfANamespacedCloudProfile(t *testing.T) {
	g := NewWithT(t)
	profile := &gardencorev1beta1.NamespacedCloudProfile{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}}
	profile.Status.CloudProfileSpec = cloudProfile().Spec
	own := changed(shoot(), func(s *gardencorev1beta1.Shoot) {
		s.Spec.CloudProfile = &gardencorev1beta1.CloudProfileReference{Kind: "NamespacedCloudProfile", Name: "own"}
	})
	g.Expect(NewShoot(reader(profile, seed())).Validate(t.Context(), own, nil)).To(Succeed())
	own.Spec.Provider.Workers[0].Machine.Image.Version = new("2.0.0")
	g.Expect(NewShoot(reader(profile, seed())).Validate(t.Context(), own, nil)).To(MatchError(ContainSubstring("the CloudProfile own has no container image")))
}

func TestAnImageForTheCapabilitiesOfTheMachineType(t *testing.T) {
	g := NewWithT(t)
	profile := cloudProfile()
	profile.Spec.MachineCapabilities = []gardencorev1beta1.CapabilityDefinition{{Name: "architecture", Values: []string{"amd64", "arm64"}}}
	profile.Spec.MachineTypes[0].Capabilities = gardencorev1beta1.Capabilities{"architecture": {"arm64"}}
	profile.Spec.ProviderConfig = raw("CloudProfileConfig", `, "machineImages": [{"name": "local", "versions": [{"version": "1.0.0",
		"capabilityFlavors": [{"image": "machine:v1", "capabilities": {"architecture": ["amd64"]}}]}]}]`)
	g.Expect(NewShoot(reader(profile, seed())).Validate(t.Context(), shoot(), nil)).To(MatchError(And(
		ContainSubstring("spec.provider.workers[0].machine.image.version: Invalid value"), ContainSubstring("for the capabilities map[architecture:[arm64]] of machine type"))))

	profile.Spec.MachineTypes[0].Capabilities = nil
	g.Expect(NewShoot(reader(profile, seed())).Validate(t.Context(), shoot(), nil)).To(Succeed())
}
