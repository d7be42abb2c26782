// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol

func ranges(t testing.TB, values ...string) []netipx.IPRange {
	t.Helper()
	var out []netipx.IPRange
	for _, value := range values {
		r, err := configv1alpha1.ParseAddressRange(value)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		out = append(out, r)
	}
	return out
}

func owner(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

func address(value string) netip.Addr { return netip.MustParseAddr(value) }

func TestPoolGivesTheLowestFreeAddress(t *testing.T) {
	for name, test := range map[string]struct {
		ranges   []string
		reserved []string
		family   corev1.IPFamily
		expected string
	}{
		"of a CIDR, with its first and last":               {[]string{"10.0.0.4/30"}, nil, v4, "10.0.0.4 10.0.0.5 10.0.0.6 10.0.0.7"},
		"of a range":                                       {[]string{"10.0.0.9-10.0.0.11"}, nil, v4, "10.0.0.9 10.0.0.10 10.0.0.11"},
		"of several ranges by address, not by their order": {[]string{"10.0.1.0/32", "10.0.0.0/31"}, nil, v4, "10.0.0.0 10.0.0.1 10.0.1.0"},
		"once if ranges overlap":                           {[]string{"10.0.0.0/31", "10.0.0.1-10.0.0.2", "10.0.0.0/32"}, nil, v4, "10.0.0.0 10.0.0.1 10.0.0.2"},
		"once if a range is in another":                    {[]string{"10.0.0.0/30", "10.0.0.1/32"}, nil, v4, "10.0.0.0 10.0.0.1 10.0.0.2 10.0.0.3"},
		"that is not reserved":                             {[]string{"10.0.0.0/30"}, []string{"10.0.0.0", "10.0.0.2", "10.9.0.0"}, v4, "10.0.0.1 10.0.0.3"},
		"but none if all are reserved":                     {[]string{"10.0.0.0/31"}, []string{"10.0.0.1", "10.0.0.0"}, v4, ""},
		"of the family":                                    {[]string{"10.0.0.0/30", "fd00::/127"}, nil, v6, "fd00:: fd00::1"},
		"up to the very last IPv4 address":                 {[]string{"255.255.255.254/31"}, nil, v4, "255.255.255.254 255.255.255.255"},
		"up to the very last IPv6 address": {
			[]string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127", "::/128"}, nil, v6,
			":: ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var reserved []netip.Addr
			for _, value := range test.reserved {
				reserved = append(reserved, address(value))
			}
			pool := loadbalancer.NewPool(ranges(t, test.ranges...), reserved...)
			var out []string
			for i := 0; ; i++ {
				got, err := pool.Allocate(owner(fmt.Sprint(i)), test.family)
				if err != nil {
					if test.expected == "" {
						g.Expect(err).To(MatchError(loadbalancer.ReasonFamily))
					} else {
						g.Expect(err).To(MatchError(loadbalancer.ReasonExhausted))
					}
					break
				}
				out = append(out, got.String())
			}
			g.Expect(strings.Join(out, " ")).To(Equal(test.expected))
		})
	}
}

func TestPoolGivesOneAddressToOneOwner(t *testing.T) {
	g := NewWithT(t)
	pool := loadbalancer.NewPool(ranges(t, "10.0.0.0/30", "fd00::/64"), address("10.0.0.3"))

	g.Expect(pool.Claim(owner("a"), address("10.0.0.1"))).To(Succeed())
	g.Expect(pool.Claim(owner("a"), address("10.0.0.1"))).To(Succeed(), "it has it already")
	g.Expect(pool.Allocate(owner("a"), v4)).To(Equal(address("10.0.0.1")), "it has one already")
	g.Expect(pool.Allocate(owner("a"), v6)).To(Equal(address("fd00::")))
	g.Expect(pool.Held(owner("a"))).To(Equal([]netip.Addr{address("10.0.0.1"), address("fd00::")}))

	g.Expect(pool.Claim(owner("b"), address("10.0.0.1"))).To(MatchError(loadbalancer.ReasonInUse))
	g.Expect(pool.Claim(owner("b"), address("10.0.0.3"))).To(MatchError(loadbalancer.ReasonNotInPool), "reserved")
	g.Expect(pool.Claim(owner("b"), address("10.0.1.0"))).To(MatchError(loadbalancer.ReasonNotInPool))
	g.Expect(pool.Claim(owner("b"), address("fd01::"))).To(MatchError(loadbalancer.ReasonNotInPool))
	g.Expect(pool.Held(owner("b"))).To(BeEmpty())
	g.Expect(pool.Allocate(owner("b"), v4)).To(Equal(address("10.0.0.0")))
	g.Expect(pool.Allocate(owner("c"), v4)).To(Equal(address("10.0.0.2")))
}

func TestPoolNamesThoseWhoWaitWhenSomethingIsFreed(t *testing.T) {
	g := NewWithT(t)
	pool := loadbalancer.NewPool(ranges(t, "10.0.0.0/31"))
	for _, name := range []string{"a", "b"} {
		g.Expect(pool.Allocate(owner(name), v4)).Error().NotTo(HaveOccurred())
	}
	for _, name := range []string{"z", "c", "gone", "c"} {
		g.Expect(pool.Allocate(owner(name), v4)).Error().To(MatchError(loadbalancer.ReasonExhausted))
	}
	g.Expect(pool.Claim(owner("asks"), address("10.0.0.0"))).To(MatchError(loadbalancer.ReasonInUse))
	g.Expect(pool.Allocate(owner("other family"), v6)).Error().To(MatchError(loadbalancer.ReasonFamily))

	g.Expect(pool.Release(owner("gone"))).To(BeEmpty(), "it had nothing")
	g.Expect(pool.Keep(owner("a"), address("10.0.0.0"))).To(BeEmpty(), "it keeps what it had")
	g.Expect(pool.Release(owner("a"))).To(Equal([]types.NamespacedName{owner("z"), owner("c"), owner("asks")}))
	g.Expect(pool.Allocate(owner("c"), v4)).To(Equal(address("10.0.0.0")))
	g.Expect(pool.Release(owner("b"))).To(BeEmpty(), "who did not ask again does not wait")
}

func TestPoolGivesAllOrNothing(t *testing.T) {
	g := NewWithT(t)
	pool := loadbalancer.NewPool(ranges(t, "10.0.0.0/32", "fd00::/127"))
	both := []loadbalancer.Request{{Family: v4}, {Family: v6}}

	answers := pool.Ask(owner("a"), true, both...)
	g.Expect(answers).To(Equal([]loadbalancer.Answer{{Address: address("10.0.0.0")}, {Address: address("fd00::")}}))
	g.Expect(pool.Ask(owner("b"), true, both...)).To(Equal([]loadbalancer.Answer{{Reason: loadbalancer.ReasonExhausted}, {}}))
	g.Expect(pool.Held(owner("b"))).To(BeEmpty(), "the other could wait for the other half for ever")
	g.Expect(pool.Ask(owner("c"), false, both...)).To(Equal([]loadbalancer.Answer{{Reason: loadbalancer.ReasonExhausted}, {Address: address("fd00::1")}}))
	g.Expect(pool.Release(owner("a"))).To(Equal([]types.NamespacedName{owner("b"), owner("c")}))
}

func TestPoolIsForSeveralGoroutines(t *testing.T) {
	g := NewWithT(t)
	pool := loadbalancer.NewPool(ranges(t, "10.0.0.0/24"))
	var (
		wg  sync.WaitGroup
		got = make(chan netip.Addr, 256)
	)
	for worker := range 8 {
		wg.Go(func() {
			for i := range 32 {
				if address, err := pool.Allocate(owner(fmt.Sprintf("%d-%d", worker, i)), v4); err == nil {
					got <- address
				}
			}
		})
	}
	wg.Wait()
	close(got)
	seen := map[netip.Addr]bool{}
	for address := range got {
		seen[address] = true
	}
	g.Expect(seen).To(HaveLen(256))
}

// FuzzPool compares the pool with one that is too simple to be wrong.
func FuzzPool(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 64, 65, 128, 129, 192, 193})
	f.Add([]byte("allocate, claim, keep, release"))
	f.Fuzz(func(t *testing.T, steps []byte) {
		g := NewWithT(t)
		pool := loadbalancer.NewPool(ranges(t, "10.0.0.2-10.0.0.6", "10.0.0.5-10.0.0.9", "10.0.0.12/31"), address("10.0.0.4"))
		var all []netip.Addr
		for _, last := range []byte{2, 3, 5, 6, 7, 8, 9, 12, 13} {
			all = append(all, netip.AddrFrom4([4]byte{10, 0, 0, last}))
		}
		owners := map[netip.Addr]string{}
		heldBy := func(name string) (out []netip.Addr) {
			for _, address := range all {
				if owners[address] == name {
					out = append(out, address)
				}
			}
			return out
		}

		for _, step := range steps {
			// Two bits for what is done, three for who does it, three for an address.
			name, wanted := fmt.Sprint(step>>3&7), all[step&7]
			switch step >> 6 {
			case 0:
				got, err := pool.Allocate(owner(name), v4)
				candidates := append(heldBy(name), heldBy("")...)
				if len(candidates) == 0 {
					g.Expect(err).To(MatchError(loadbalancer.ReasonExhausted))
					continue
				}
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got).To(Equal(candidates[0]))
				owners[got] = name
			case 1:
				err := pool.Claim(owner(name), wanted)
				g.Expect(err == nil).To(Equal(owners[wanted] == "" || owners[wanted] == name))
				if err == nil {
					owners[wanted] = name
				}
			case 2:
				pool.Keep(owner(name), wanted)
				for _, address := range heldBy(name) {
					if address != wanted {
						delete(owners, address)
					}
				}
			case 3:
				pool.Release(owner(name))
				for _, address := range heldBy(name) {
					delete(owners, address)
				}
			}
			g.Expect(pool.Held(owner(name))).To(Equal(heldBy(name)))
		}

		for i := range 8 {
			pool.Release(owner(fmt.Sprint(i)))
		}
		for i, expected := range all {
			g.Expect(pool.Allocate(owner(fmt.Sprintf("after-%d", i)), v4)).To(Equal(expected), "all are free again")
		}
	})
}

// BenchmarkPool allocates 10,000 addresses and frees them, every other one first, which is the worst for the free list.
func BenchmarkPool(b *testing.B) {
	const count = 10_000
	owners := make([]types.NamespacedName, count)
	for i := range owners {
		owners[i] = owner(fmt.Sprint(i))
	}
	parsed := ranges(b, "10.0.0.0/16", "fd00::/8")
	for _, family := range []corev1.IPFamily{v4, v6} {
		b.Run(string(family), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pool := loadbalancer.NewPool(parsed)
				for _, owner := range owners {
					if _, err := pool.Allocate(owner, family); err != nil {
						b.Fatal(err)
					}
				}
				for _, first := range []int{0, 1} {
					for i := first; i < count; i += 2 {
						pool.Release(owners[i])
					}
				}
			}
		})
	}
}
