// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

const poolV6 = "shoot-machines-" + namespace + "-ipv6"

func dualStack(s *gardencorev1beta1.Shoot) {
	s.Spec.Networking.IPFamilies = []gardencorev1beta1.IPFamily{ipv4, ipv6}
	s.Status.Networking = &gardencorev1beta1.NetworkingStatus{Nodes: []string{"10.0.0.0/16", "fd00:10:1:100::/56"}}
}

func TestWithoutCalicoItIsToldAndGoesOnAndLaterThereMayBeOne(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, false, false)
	e.mustReconcile()
	g.Expect(e.infrastructure().Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	g.Expect(e.providerStatus().IPPools).To(BeEmpty())
	g.Expect(e.providerStatus().Message).To(HavePrefix("The cluster of the machines has no IPPools of Calico (crd.projectcalico.org/v1): "))
	g.Expect(e.infrastructure().Status.Networking.Nodes).To(Equal([]string{"10.0.0.0/16"}))

	e.calico = true
	e.ask("reconcile")
	e.mustReconcile()
	g.Expect(e.providerStatus().Message).To(BeEmpty())
	g.Expect(e.pool(poolV4)).NotTo(BeNil())

	e.calico = false
	e.delete()
	e.mustReconcile()
	g.Expect(e.infrastructure()).To(BeNil())
}

func TestTwoFamiliesHaveAPoolEachOfTheirOwnRange(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, false, true)
	e.setShoot(dualStack)
	e.mustReconcile()
	g.Expect(cidrOf(*e.pool(poolV4))).To(Equal("10.0.0.0/16"))
	g.Expect(cidrOf(*e.pool(poolV6))).To(Equal("fd00:10:1:100::/56"))
	g.Expect(e.providerStatus().IPPools).To(Equal([]localv1alpha1.MachineIPPool{
		{IPFamily: ipv4, Name: poolV4, CIDR: "10.0.0.0/16"}, {IPFamily: ipv6, Name: poolV6, CIDR: "fd00:10:1:100::/56"},
	}))
	e.delete()
	e.mustReconcile()
	g.Expect(e.pool(poolV4)).To(BeNil())
	g.Expect(e.pool(poolV6)).To(BeNil())
}

func TestAFamilyWithoutARangeHasNoPool(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, false, true)
	e.setShoot(func(s *gardencorev1beta1.Shoot) { dualStack(s); s.Status.Networking = nil })
	e.mustReconcile()
	g.Expect(e.pool(poolV4)).NotTo(BeNil())
	g.Expect(e.pool(poolV6)).To(BeNil(), "never with a range of the other family")
	g.Expect(e.providerStatus().IPPools).To(HaveLen(1))
	g.Expect(e.providerStatus().Message).To(HavePrefix("There is no range of family IPv6 for nodes"))
}

func TestMachinesTakeNoAddressThatTheSeedUsesOtherwise(t *testing.T) {
	for name, test := range map[string]struct{ nodes, used string }{
		"of a load balancer":  {"172.18.255.0/24", "172.18.255.1/32"},
		"of one of its nodes": {"172.18.0.0/25", "172.18.0.0/24"},
		"of a Service":        {"10.2.0.0/15", "10.2.0.0/16"},
		"of a pod":            {"10.8.128.0/17", "10.8.0.0/16"},
		"of a DNS server":     {"10.9.0.0/24", "10.9.0.10/32"},
		"of what machines reach by the configuration": {"192.168.0.0/16", "192.168.7.0/24"},
		"that the operator has blocked":               {"172.30.0.0/16", "172.30.1.0/24"},
	} {
		for where, remote := range map[string]bool{"in the seed": false, "elsewhere": true} {
			t.Run(name+" "+where, func(t *testing.T) {
				g := NewWithT(t)
				e := newEnvironment(t, remote, true)
				e.setShoot(func(s *gardencorev1beta1.Shoot) { s.Spec.Networking.Nodes = new(test.nodes) })
				e.mustReconcile()
				if remote {
					g.Expect(e.providerStatus().Message).To(BeEmpty(), "the ranges of the seed mean nothing there")
					g.Expect(e.providerStatus().IPPools).To(HaveLen(1))
					return
				}
				g.Expect(e.pool(poolV4)).To(BeNil())
				g.Expect(e.providerStatus().IPPools).To(BeEmpty())
				g.Expect(e.providerStatus().Message).To(ContainSubstring("overlaps " + test.used + ", which the seed uses"))
			})
		}
	}
}

func TestMachinesTakePrivateAddressesOnly(t *testing.T) {
	for name, test := range map[string]struct{ nodes, message string }{
		"a public range":                {"1.1.1.0/26", "1.1.1.0/26 of the shoot's nodes is not a private range"},
		"the loopback":                  {"127.0.0.0/8", "not a private range"},
		"link-local addresses":          {"169.254.169.192/26", "not a private range"},
		"multicast":                     {"224.0.0.0/24", "not a private range"},
		"no address at all":             {"0.0.0.0/26", "not a private range"},
		"more than a private range":     {"172.16.0.0/11", "not a private range"},
		"a range too large":             {"10.0.0.0/8", "10.0.0.0/8 of the shoot's nodes is too large: choose a /12 or smaller"},
		"one that the operator allows":  {"198.51.100.0/25", ""},
		"one that is shared (RFC 6598)": {"100.64.0.0/12", ""},
		"the largest":                   {"10.240.0.0/12", ""},
	} {
		for where, remote := range map[string]bool{"in the seed": false, "elsewhere": true} {
			t.Run(name+" "+where, func(t *testing.T) {
				g := NewWithT(t)
				e := newEnvironment(t, remote, true)
				e.setShoot(func(s *gardencorev1beta1.Shoot) { s.Spec.Networking.Nodes = new(test.nodes) })
				e.mustReconcile()
				g.Expect(e.infrastructure().Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
				at := e.server
				if remote {
					at = e.other
				}
				if test.message == "" {
					g.Expect(e.providerStatus().Message).To(BeEmpty())
					g.Expect(at.pool(poolV4)).NotTo(BeNil())
					return
				}
				g.Expect(e.providerStatus().Message).To(ContainSubstring(test.message))
				g.Expect(e.providerStatus().IPPools).To(BeEmpty())
				g.Expect(at.pool(poolV4)).To(BeNil())
				if remote {
					g.Expect(e.policy(namespace, ControlPlanePolicy).Spec.Egress).To(BeEmpty(), "the control plane is let out to no such range")
				}
			})
		}
	}
}

func TestTheDNSServersOfTheInstance(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "resolv.conf")
	g.Expect(os.WriteFile(path, []byte("search x\nnameserver 10.9.0.10\nnameserver fe80::1%eth0\noptions ndots:5\n"), 0o600)).To(Succeed())
	g.Expect(resolverPrefixes(path)).To(Equal(prefixes("10.9.0.10/32", "fe80::1/128")))
	g.Expect(resolverPrefixes(path + "x")).To(BeEmpty())
	g.Expect(os.WriteFile(path, []byte("nameserver x\n"), 0o600)).To(Succeed())
	_, err := resolverPrefixes(path)
	g.Expect(err).To(MatchError(ContainSubstring(path)))
}

func TestPoolsThatOverlap(t *testing.T) {
	ours := func(cidr string) *unstructured.Unstructured {
		pool := calicoPool("shoot-machines-other-ipv4", cidr, nil)
		pool.SetLabels(poolLabels("other"))
		return pool
	}
	for name, test := range map[string]struct {
		other   *unstructured.Unstructured
		message string
	}{
		"are refused if they are the cluster's": {calicoPool("default", "10.0.0.0/8", nil), "overlaps 10.0.0.0/8 of IPPool default"},
		"are refused if they are the same":      {calicoPool("default", "10.0.0.0/16", nil), "overlaps 10.0.0.0/16 of IPPool default"},
		"are refused in part":                   {ours("10.0.0.0/17"), "overlaps 10.0.0.0/17 of IPPool shoot-machines-other-ipv4"},
		"are refused with no more of a name than an API server takes": {
			calicoPool(strings.Repeat("x", 1<<20), "10.0.0.0/16", nil), "of IPPool " + strings.Repeat("x", 253) + ". Machines get",
		},
		"are shared if they are of shoots": {ours("10.0.0.0/16"), ""},
		"are not those beside them":        {calicoPool("default", "10.1.0.0/16", nil), ""},
		"are not those of another family":  {calicoPool("default", "::/0", nil), ""},
		"are not those that say nothing":   {calicoPool("default", "", nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnvironment(t, false, true)
			g.Expect(e.Create(t.Context(), test.other)).To(Succeed())
			e.mustReconcile()
			g.Expect(e.infrastructure().Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
			if test.message == "" {
				g.Expect(e.pool(poolV4)).NotTo(BeNil())
				g.Expect(e.providerStatus().Message).To(BeEmpty())
			} else {
				g.Expect(e.pool(poolV4)).To(BeNil())
				g.Expect(e.providerStatus().Message).To(ContainSubstring(test.message))
				g.Expect(e.providerStatus().IPPools).To(BeEmpty())
			}
			e.delete()
			e.mustReconcile()
			g.Expect(e.pool(test.other.GetName())).NotTo(BeNil(), "it is somebody else's")
		})
	}
}

func TestAPoolThatTheClusterRefusesIsTold(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, false, true)
	e.fail = func(verb, kind string) error {
		if verb+" "+kind == "apply IPPool" {
			return invalid(poolV4)
		}
		return nil
	}
	e.mustReconcile()
	g.Expect(e.infrastructure().Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	g.Expect(e.providerStatus().Message).To(ContainSubstring("was refused"))
}

func TestAPoolIsLikeTheOthersOfTheCluster(t *testing.T) {
	for name, test := range map[string]struct {
		others      []*unstructured.Unstructured
		ipip, vxlan string
	}{
		"or as Calico has it":         {nil, "Always", "Never"},
		"with its overlay":            {[]*unstructured.Unstructured{calicoPool("default", "10.1.0.0/16", map[string]any{"vxlanMode": "CrossSubnet"})}, "Never", "CrossSubnet"},
		"without any":                 {[]*unstructured.Unstructured{calicoPool("default", "10.1.0.0/16", nil)}, "Never", "Never"},
		"but not of another family":   {[]*unstructured.Unstructured{calicoPool("default", "fd00::/56", map[string]any{"vxlanMode": "Always"})}, "Always", "Never"},
		"but not if that is disabled": {[]*unstructured.Unstructured{calicoPool("default", "10.1.0.0/16", map[string]any{"disabled": true})}, "Always", "Never"},
		"but not if no node uses it":  {[]*unstructured.Unstructured{calicoPool("default", "10.1.0.0/16", map[string]any{"nodeSelector": "!all()"})}, "Always", "Never"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnvironment(t, false, true)
			for _, other := range test.others {
				g.Expect(e.Create(t.Context(), other)).To(Succeed())
			}
			e.mustReconcile()
			g.Expect(e.pool(poolV4).Object["spec"]).To(And(HaveKeyWithValue("ipipMode", test.ipip), HaveKeyWithValue("vxlanMode", test.vxlan)))
		})
	}
	NewWithT(t).Expect(poolSpec(prefixes("fd00::/56")[0], nil)).To(And(HaveKeyWithValue("ipipMode", "Never"), HaveKeyWithValue("vxlanMode", "Never")))
}

func TestASmallRangeIsASingleBlock(t *testing.T) {
	g := NewWithT(t)
	g.Expect(poolSpec(prefixes("10.0.0.0/26")[0], nil)).NotTo(HaveKey("blockSize"))
	g.Expect(poolSpec(prefixes("10.0.0.0/28")[0], nil)).To(HaveKeyWithValue("blockSize", int64(28)))
	g.Expect(poolSpec(prefixes("fd00::/122")[0], nil)).NotTo(HaveKey("blockSize"))
	g.Expect(poolSpec(prefixes("fd00::/124")[0], nil)).To(HaveKeyWithValue("blockSize", int64(124)))
}

func TestAPoolGrowsWithTheRangeAndKeepsWhatElseItHas(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, false, true)
	e.mustReconcile()
	pool := e.pool(poolV4)
	g.Expect(unstructured.SetNestedField(pool.Object, "kept", "spec", "other")).To(Succeed())
	g.Expect(unstructured.SetNestedField(pool.Object, "all()", "spec", "nodeSelector")).To(Succeed())
	pool.SetLabels(nil)
	g.Expect(e.Update(t.Context(), pool)).To(Succeed())

	e.setShoot(func(s *gardencorev1beta1.Shoot) { s.Spec.Networking.Nodes = new("10.0.0.0/15") })
	e.ask("reconcile")
	e.mustReconcile()
	pool = e.pool(poolV4)
	g.Expect(pool.Object["spec"]).To(And(HaveKeyWithValue("cidr", "10.0.0.0/15"), HaveKeyWithValue("other", "kept"), HaveKeyWithValue("nodeSelector", "!all()")))
	g.Expect(pool.GetLabels()).To(Equal(poolLabels(namespace)))

	e.setShoot(func(s *gardencorev1beta1.Shoot) { s.Spec.Networking.Nodes = new("10.0.0.0/17") })
	e.ask("reconcile")
	e.mustReconcile()
	g.Expect(cidrOf(*e.pool(poolV4))).To(Equal("10.0.0.0/15"), "machines have addresses of it")
	g.Expect(e.providerStatus().IPPools[0].CIDR).To(Equal("10.0.0.0/15"))
}

func TestTheBlocksOfAPoolKeepTheirSize(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string
		size          types.GomegaMatcher
	}{
		"a range of a single block grows":      {before: "10.0.0.0/28", after: "10.0.0.0/24", size: HaveKeyWithValue("blockSize", BeNumerically("==", 28))},
		"a range shrinks to less than a block": {before: "10.0.0.0/24", after: "10.0.0.0/28", size: Not(HaveKey("blockSize"))},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnvironment(t, false, true)
			for _, nodes := range []string{test.before, test.after} {
				e.setShoot(func(s *gardencorev1beta1.Shoot) { s.Spec.Networking.Nodes = &nodes })
				e.ask("reconcile")
				e.mustReconcile()
			}
			g.Expect(e.pool(poolV4).Object["spec"]).To(And(HaveKeyWithValue("cidr", "10.0.0.0/24"), test.size))
		})
	}
}

func TestAPoolThatSomebodyElseHasMadeMeanwhileIsTakenOver(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, false, true)
	e.fail = func(verb, kind string) error {
		if verb+" "+kind == "apply IPPool" {
			e.fail = nil
			return e.Create(t.Context(), calicoPool(poolV4, "10.0.0.0/16", nil))
		}
		return nil
	}
	e.mustReconcile()
	g.Expect(e.pool(poolV4).GetLabels()).To(Equal(poolLabels(namespace)))
}
