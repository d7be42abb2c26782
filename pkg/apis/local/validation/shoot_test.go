// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"cmp"
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	. "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/validation"
)

func workerConfig(fields string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "WorkerConfig"` + fields + `}`)}
}

func TestEmptyConfigurations(t *testing.T) {
	g := NewWithT(t)
	at := field.NewPath("at")
	g.Expect(Empty(nil, at)).To(BeEmpty())
	g.Expect(Empty(&runtime.RawExtension{}, at)).To(BeEmpty())
	g.Expect(Empty(&runtime.RawExtension{Raw: []byte("null")}, at)).To(BeEmpty())
	expectErrors(t, Empty(&runtime.RawExtension{Raw: []byte("{}")}, at), []string{"at: Forbidden: there is nothing to configure for type local: take it out"})
}

// sharedBackups asks for the seed's backup buckets.
const sharedBackups = `, "sharedBackupBuckets": true`

func TestWorkerPools(t *testing.T) {
	inPlace := gardencorev1beta1.AutoInPlaceUpdate
	for name, test := range map[string]struct {
		// namespace is that of the Shoot; by default one of a project.
		namespace string
		pool      gardencorev1beta1.Worker
		old       *gardencorev1beta1.Worker
		errs      []string
	}{
		"nothing special":   {},
		"a sizing":          {pool: gardencorev1beta1.Worker{ProviderConfig: workerConfig(`, "sizing": "Overcommit"`)}},
		"no sizing at all":  {pool: gardencorev1beta1.Worker{ProviderConfig: workerConfig("")}},
		"a volume":          {pool: gardencorev1beta1.Worker{Volume: &gardencorev1beta1.Volume{VolumeSize: "10Gi", Encrypted: new(false)}}},
		"an unknown sizing": {pool: gardencorev1beta1.Worker{ProviderConfig: workerConfig(`, "sizing": "exact"`)}, errs: []string{`at.providerConfig.sizing: Unsupported value: "exact"`}},
		"an unknown field":  {pool: gardencorev1beta1.Worker{ProviderConfig: workerConfig(`, "size": "Exact"`)}, errs: []string{`at.providerConfig: Invalid value: strict decoding error: unknown field "size": correct it or take it out`}},
		"a field that is there twice": {
			pool: gardencorev1beta1.Worker{ProviderConfig: workerConfig(`, "sizing": "Exact", "sizing": "Exact"`)}, errs: []string{`duplicate field "sizing"`},
		},
		"another kind": {
			pool: gardencorev1beta1.Worker{ProviderConfig: &runtime.RawExtension{Raw: []byte(`{"apiVersion": "v1", "kind": "WorkerConfig"}`)}},
			errs: []string{"it must be of apiVersion local.provider.extensions.gardener.cloud/v1alpha1 and kind WorkerConfig"},
		},
		"data volumes": {
			pool: gardencorev1beta1.Worker{DataVolumes: []gardencorev1beta1.DataVolume{{Name: "a"}}, KubeletDataVolumeName: new("a")},
			errs: []string{"at.dataVolumes: Forbidden: machines have no data volumes", "at.kubeletDataVolumeName: Forbidden"},
		},
		"an encrypted volume":                                               {pool: gardencorev1beta1.Worker{Volume: &gardencorev1beta1.Volume{Encrypted: new(true)}}, errs: []string{"at.volume.encrypted: Forbidden"}},
		"another sizing of machines that roll":                              {pool: gardencorev1beta1.Worker{ProviderConfig: workerConfig(`, "sizing": "Exact"`)}, old: &gardencorev1beta1.Worker{}},
		"another sizing of machines that stay":                              {pool: gardencorev1beta1.Worker{UpdateStrategy: &inPlace, ProviderConfig: workerConfig(`, "sizing": "Exact"`)}, old: &gardencorev1beta1.Worker{}, errs: []string{"at.providerConfig.sizing: Forbidden: machines that are updated in place keep their size"}},
		"the same sizing of machines that stay":                             {pool: gardencorev1beta1.Worker{UpdateStrategy: &inPlace, ProviderConfig: workerConfig("")}, old: &gardencorev1beta1.Worker{}},
		"a sizing for a new pool of such":                                   {pool: gardencorev1beta1.Worker{UpdateStrategy: &inPlace, ProviderConfig: workerConfig(`, "sizing": "Exact"`)}},
		"what it had before the rules were there":                           {pool: older(), old: new(older())},
		"the seed's backups for machines of a shoot that may become a seed": {namespace: "garden", pool: gardencorev1beta1.Worker{ProviderConfig: workerConfig(sharedBackups)}},
		"the seed's backups for machines of anybody": {
			pool: gardencorev1beta1.Worker{ProviderConfig: workerConfig(sharedBackups)},
			errs: []string{"at.providerConfig.sharedBackupBuckets: Forbidden: the machines could read the backups of all shoots of the seed"},
		},
		"the seed's backups for machines that stay": {
			namespace: "garden", pool: gardencorev1beta1.Worker{UpdateStrategy: &inPlace, ProviderConfig: workerConfig(sharedBackups)}, old: &gardencorev1beta1.Worker{},
			errs: []string{"at.providerConfig.sharedBackupBuckets: Forbidden: machines that are updated in place keep their folders"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectErrors(t, Worker(cmp.Or(test.namespace, "garden-local"), &test.pool, test.old, field.NewPath("at")), test.errs)
		})
	}
}

// older is a pool from before there were rules.
func older() gardencorev1beta1.Worker {
	return gardencorev1beta1.Worker{
		ProviderConfig: workerConfig(`, "size": "Exact"`), Volume: &gardencorev1beta1.Volume{Encrypted: new(true)},
		DataVolumes: []gardencorev1beta1.DataVolume{{Name: "a"}}, KubeletDataVolumeName: new("a"),
	}
}

const notPrivate = "it is not a private range"

func TestTheRangeOfNodes(t *testing.T) {
	for name, test := range map[string]struct {
		networking *gardencorev1beta1.Networking
		errs       []string
	}{
		"no networking": {},
		"no range":      {networking: &gardencorev1beta1.Networking{}},
		"ranges that are apart": {networking: &gardencorev1beta1.Networking{
			Nodes: new("10.0.0.0/16"), Pods: new("10.3.0.0/16"), Services: new("10.4.0.0/16")}},
		"ranges of two families": {networking: &gardencorev1beta1.Networking{
			Nodes: new("fd00:1::/64"), Pods: new("10.3.0.0/16"), Services: new("10.4.0.0/16"),
			IPFamilies: []gardencorev1beta1.IPFamily{gardencorev1beta1.IPFamilyIPv4, gardencorev1beta1.IPFamilyIPv6}}},
		"the smallest":                   {networking: &gardencorev1beta1.Networking{Nodes: new("10.0.0.0/26")}},
		"the smallest IPv6":              {networking: &gardencorev1beta1.Networking{Nodes: new("fd00::/122")}},
		"too small":                      {networking: &gardencorev1beta1.Networking{Nodes: new("10.0.0.0/27")}, errs: []string{`at.nodes: Invalid value: "10.0.0.0/27": it is too small: machines get their addresses by blocks of a /26`}},
		"too small IPv6":                 {networking: &gardencorev1beta1.Networking{Nodes: new("fd00::/123")}, errs: []string{"blocks of a /122"}},
		"no CIDR":                        {networking: &gardencorev1beta1.Networking{Nodes: new("10.0.0.0")}, errs: []string{`at.nodes: Invalid value: "10.0.0.0": it is no CIDR`}},
		"the largest":                    {networking: &gardencorev1beta1.Networking{Nodes: new("172.16.0.0/12")}},
		"the largest IPv6":               {networking: &gardencorev1beta1.Networking{Nodes: new("fd00:10:1::/48")}},
		"too large IPv6":                 {networking: &gardencorev1beta1.Networking{Nodes: new("fd00:10::/47")}, errs: []string{"it is too large: choose a /48 or smaller"}},
		"shared (RFC 6598)":              {networking: &gardencorev1beta1.Networking{Nodes: new("100.64.0.0/16")}},
		"what the operator allows":       {networking: &gardencorev1beta1.Networking{Nodes: new("198.51.100.0/25")}},
		"what the operator allows, IPv6": {networking: &gardencorev1beta1.Networking{Nodes: new("2001:db8::/64")}},
		"more than the operator allows":  {networking: &gardencorev1beta1.Networking{Nodes: new("198.51.96.0/20")}, errs: []string{notPrivate}},
		"public":                         {networking: &gardencorev1beta1.Networking{Nodes: new("1.1.1.0/26")}, errs: []string{`at.nodes: Invalid value: "1.1.1.0/26": it is not a private range: choose a part of one of [10.0.0.0/8 172.16.0.0/12`}},
		"public IPv6":                    {networking: &gardencorev1beta1.Networking{Nodes: new("2606:4700::/64")}, errs: []string{notPrivate}},
		"the loopback":                   {networking: &gardencorev1beta1.Networking{Nodes: new("127.0.0.0/16")}, errs: []string{notPrivate}},
		"link-local":                     {networking: &gardencorev1beta1.Networking{Nodes: new("169.254.169.192/26")}, errs: []string{notPrivate}},
		"link-local IPv6":                {networking: &gardencorev1beta1.Networking{Nodes: new("fe80::/64")}, errs: []string{notPrivate}},
		"multicast":                      {networking: &gardencorev1beta1.Networking{Nodes: new("224.0.0.0/24")}, errs: []string{notPrivate}},
		"nothing":                        {networking: &gardencorev1beta1.Networking{Nodes: new("0.0.0.0/26")}, errs: []string{notPrivate}},
		"an IPv4 address in IPv6":        {networking: &gardencorev1beta1.Networking{Nodes: new("::ffff:10.0.0.0/112")}, errs: []string{notPrivate}},
		"it overlaps pods and services": {
			networking: &gardencorev1beta1.Networking{Nodes: new("10.0.0.0/8"), Pods: new("10.3.0.0/16"), Services: new("10.4.0.0/16")},
			errs:       []string{"it is too large: choose a /12 or smaller", "it overlaps at.pods (10.3.0.0/16)", "it overlaps at.services (10.4.0.0/16)"},
		},
		"it overlaps pods by IPv6": {
			networking: &gardencorev1beta1.Networking{Nodes: new("fd00::/64"), Pods: new("fd00::/56"), Services: new("fd01::/108")},
			errs:       []string{"it overlaps at.pods (fd00::/56): choose ranges that are apart"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectErrors(t, Nodes(test.networking, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::/32")}, field.NewPath("at")), test.errs)
		})
	}
}

func TestTheRangeOfNodesInASeed(t *testing.T) {
	seed := &gardencorev1beta1.Seed{
		ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Spec:       gardencorev1beta1.SeedSpec{Networks: gardencorev1beta1.SeedNetworks{Nodes: new("172.18.0.0/24"), Pods: "10.1.0.0/16", Services: "10.2.0.0/16", BlockCIDRs: []string{"10.7.0.0/16"}}},
	}
	for name, test := range map[string]struct {
		nodes *string
		errs  []string
	}{
		"no range":                 {},
		"apart":                    {nodes: new("10.0.0.0/16")},
		"another family":           {nodes: new("fd00::/64")},
		"no CIDR, as Nodes tells":  {nodes: new("x")},
		"among the seed's nodes":   {nodes: new("172.18.0.0/26"), errs: []string{`at.nodes: Invalid value: "172.18.0.0/26": it overlaps spec.networks.nodes of the Seed local (172.18.0.0/24)`}},
		"among what is blocked":    {nodes: new("10.7.1.0/24"), errs: []string{"spec.networks.blockCIDRs[0] of the Seed local (10.7.0.0/16)"}},
		"around pods and services": {nodes: new("10.0.0.0/14"), errs: []string{"spec.networks.pods of the Seed local (10.1.0.0/16)", "spec.networks.services of the Seed local (10.2.0.0/16)"}},
	} {
		t.Run(name, func(t *testing.T) {
			expectErrors(t, NodesInSeed(&gardencorev1beta1.Networking{Nodes: test.nodes}, seed, field.NewPath("at")), test.errs)
		})
	}
	NewWithT(t).Expect(NodesInSeed(nil, seed, field.NewPath("at"))).To(BeEmpty())
}
