// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	. "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/validation"
)

// deadline is far more than any check takes; an API server waits for 10 seconds.
const deadline = 5 * time.Second

func within(t *testing.T, check func()) {
	t.Helper()
	began := time.Now()
	check()
	if took := time.Since(began); took > deadline {
		t.Fatalf("it takes %s", took)
	}
}

// A range that is accepted has only addresses that nobody else on the internet has, and none that the seed uses.
func FuzzNodes(f *testing.F) {
	for _, nodes := range []string{"10.250.0.0/16", "1.1.1.0/26", "127.0.0.0/8", "fd00:10::/56", "::ffff:10.0.0.0/112", "fe80::%eth0/64", "0.0.0.0/0", "::/0", "x", ""} {
		f.Add(nodes, "10.3.0.0/16", "10.4.0.0/16", "10.1.0.0/16")
	}
	f.Fuzz(func(t *testing.T, nodes, pods, services, used string) {
		within(t, func() {
			networking := &gardencorev1beta1.Networking{Nodes: &nodes, Pods: &pods, Services: &services}
			seed := &gardencorev1beta1.Seed{Spec: gardencorev1beta1.SeedSpec{Networks: gardencorev1beta1.SeedNetworks{
				Nodes: &used, Pods: used, Services: used, BlockCIDRs: []string{used},
			}}}
			inSeed := NodesInSeed(networking, seed, field.NewPath("at"))
			if len(Nodes(networking, nil, field.NewPath("at"))) > 0 {
				return
			}
			prefix := netip.MustParsePrefix(nodes)
			first := prefix.Masked().Addr()
			if !first.IsPrivate() && !netip.MustParsePrefix("100.64.0.0/10").Contains(first) {
				t.Errorf("%s is public", nodes)
			}
			for _, other := range []string{pods, services} {
				if parsed, err := netip.ParsePrefix(other); err == nil && parsed.Overlaps(prefix) {
					t.Errorf("%s overlaps %s", nodes, other)
				}
			}
			if parsed, err := netip.ParsePrefix(used); err == nil && parsed.Overlaps(prefix) != (len(inSeed) > 0) {
				t.Errorf("%s and %s: %v", nodes, used, inSeed)
			}
		})
	})
}

func FuzzWorker(f *testing.F) {
	for _, config := range []string{`{}`, `null`, `[[[[`, string(workerConfig(`, "sizing": "Unlimited"`).Raw), string(workerConfig(sharedBackups).Raw)} {
		f.Add("garden-local", []byte(config), []byte(config))
	}
	f.Fuzz(func(t *testing.T, namespace string, config, before []byte) {
		within(t, func() {
			inPlace := gardencorev1beta1.AutoInPlaceUpdate
			pool := &gardencorev1beta1.Worker{Name: "a", UpdateStrategy: &inPlace, ProviderConfig: &runtime.RawExtension{Raw: config}}
			old := &gardencorev1beta1.Worker{Name: "a", UpdateStrategy: &inPlace, ProviderConfig: &runtime.RawExtension{Raw: before}}
			Worker(namespace, pool, nil, field.NewPath("at"))
			if errs := Worker(namespace, pool, pool, field.NewPath("at")); len(errs) > 0 {
				t.Errorf("what stays is refused: %v", errs)
			}
			Worker(namespace, pool, old, field.NewPath("at"))
		})
	})
}
