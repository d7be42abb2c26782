// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"

	. "github.com/gardener/gardener-extension-provider-local/pkg/admission"
)

func data(pairs ...string) map[string][]byte {
	out := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = []byte(pairs[i+1])
	}
	return out
}

func TestSecretsOfShoots(t *testing.T) {
	one, two := string(kubeconfig("https://one")), string(kubeconfig("https://two"))
	for name, test := range map[string]struct {
		data, old map[string][]byte
		errs      []string
	}{
		"nothing":                          {},
		"something else":                   {data: data("token", "x")},
		"a kubeconfig":                     {data: data("kubeconfig", one)},
		"a kubeconfig that comes":          {data: data("kubeconfig", one), old: data("a", "b")},
		"a kubeconfig that goes":           {data: data("a", "b"), old: data("kubeconfig", one)},
		"another token for the same":       {data: data("kubeconfig", one+"\n"), old: data("kubeconfig", one)},
		"one that is broken as before":     {data: data("kubeconfig", "x"), old: data("kubeconfig", "x")},
		"one that was broken is put right": {data: data("kubeconfig", two), old: data("kubeconfig", "x")},
		"another server":                   {data: data("kubeconfig", two), old: data("kubeconfig", one), errs: []string{"data[kubeconfig]: Forbidden: its server must stay the same"}},
		"an empty kubeconfig":              {data: data("kubeconfig", ""), errs: []string{"data[kubeconfig]: Invalid value: it can't be used: it is empty"}},
		"a server without TLS":             {data: data("kubeconfig", string(kubeconfig("http://one"))), errs: []string{"no server that is a URL with https"}},
		"a key that nobody reads":          {data: data("kube-Config", one), errs: []string{"data[kube-Config]: Forbidden: it would not be looked at: call it kubeconfig"}},
		"a kubeconfig that becomes broken": {data: data("kubeconfig", "x"), old: data("kubeconfig", one), errs: []string{"data[kubeconfig]: Invalid value"}},
	} {
		t.Run(name, func(t *testing.T) {
			var old *corev1.Secret
			var oldInternal *gardencorev1beta1.InternalSecret
			if test.old != nil {
				old, oldInternal = credentialsSecret(test.old), &gardencorev1beta1.InternalSecret{Data: test.old}
			}
			for _, err := range []error{
				validate(t, NewSecret(), credentialsSecret(test.data), old),
				validate(t, NewInternalSecret(), &gardencorev1beta1.InternalSecret{Data: test.data}, oldInternal),
			} {
				expect(t, err, test.errs)
				if err != nil {
					NewWithT(t).Expect(err.Error()).NotTo(ContainSubstring("secret-token"))
				}
			}
		})
	}
}

func TestWorkloadIdentities(t *testing.T) {
	identity := func(typ string, config *runtime.RawExtension) *securityv1alpha1.WorkloadIdentity {
		return &securityv1alpha1.WorkloadIdentity{Spec: securityv1alpha1.WorkloadIdentitySpec{TargetSystem: securityv1alpha1.TargetSystem{Type: typ, ProviderConfig: config}}}
	}
	config := raw("WorkloadIdentityConfig", "")
	v := NewWorkloadIdentity()
	run(t, map[string]test[*securityv1alpha1.WorkloadIdentity]{
		"nothing to configure": {validator: v, obj: identity("local", nil)},
		"another type":         {validator: v, obj: identity("other", config)},
		"a providerConfig":     {validator: v, obj: identity("local", config), errs: []string{"spec.targetSystem.providerConfig: Forbidden: there is nothing to configure for type local: take it out"}},
		"one from before":      {validator: v, obj: identity("local", config), old: identity("local", config)},
		"one that is deleted":  {validator: v, obj: deleted(identity("local", config))},
	})
}

func TestSeeds(t *testing.T) {
	type s = gardencorev1beta1.Seed
	var (
		good = changed(seed(), func(s *s) {
			s.Spec.Backup = &gardencorev1beta1.Backup{Provider: "local", CredentialsRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: namespace, Name: "credentials"}}
		})
		config  = raw("X", "")
		v       = NewSeed(reader(credentialsSecret(nil)))
		noNodes = changed(good, func(s *s) { s.Spec.Networks.Nodes = nil })
	)
	run(t, map[string]test[*gardencorev1beta1.Seed]{
		"a good one":                      {validator: v, obj: good},
		"no backup":                       {validator: v, obj: seed()},
		"a backup of another type":        {validator: v, obj: changed(good, func(s *s) { s.Spec.Backup.Provider, s.Spec.Backup.ProviderConfig = "other", config })},
		"a seed of another type":          {validator: v, obj: changed(noNodes, func(s *s) { s.Spec.Provider.Type, s.Spec.Provider.ProviderConfig = "other", config })},
		"one that is deleted":             {validator: v, obj: deleted(noNodes)},
		"one that stays":                  {validator: v, obj: noNodes, old: noNodes},
		"one from before the rules":       {validator: v, obj: changed(noNodes, func(s *s) { s.Spec.Networks.BlockCIDRs = []string{"1.2.3.4/32"} }), old: noNodes},
		"no nodes":                        {validator: v, obj: noNodes, errs: []string{"spec.networks.nodes: Required value: write the range of the seed's nodes"}},
		"nodes that go":                   {validator: v, obj: noNodes, old: good, errs: []string{"spec.networks.nodes: Required value"}},
		"a providerConfig":                {validator: v, obj: changed(good, func(s *s) { s.Spec.Provider.ProviderConfig = config }), errs: []string{"spec.provider.providerConfig: Forbidden"}},
		"a providerConfig of the backup":  {validator: v, obj: changed(good, func(s *s) { s.Spec.Backup.ProviderConfig = config }), errs: []string{"spec.backup.providerConfig: Forbidden"}},
		"backups with a WorkloadIdentity": {validator: NewSeed(silent()), obj: changed(good, func(s *s) { s.Spec.Backup.CredentialsRef.Kind = "WorkloadIdentity" })},
		"a Secret that is not there":      {validator: NewSeed(reader()), obj: good, errs: []string{"spec.backup.credentialsRef: reading Secret", "not found"}},
		"a Secret that can't be read":     {validator: NewSeed(silent()), obj: good, errs: []string{"spec.backup.credentialsRef: reading Secret"}},
		"backups without credentials":     {validator: v, obj: changed(good, func(s *s) { s.Spec.Backup.CredentialsRef = nil })},
	})
}
