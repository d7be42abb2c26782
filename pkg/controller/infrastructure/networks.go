// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/miekg/dns"
	"k8s.io/utils/ptr"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// networks are the ranges of a shoot, for each purpose at most one of each family, in the order of the shoot's families.
type networks struct {
	families              []gardencorev1beta1.IPFamily
	nodes, pods, services []netip.Prefix
}

// networksOf returns the ranges of a shoot. A shoot's spec has a single range for each purpose; one of another family,
// which a shoot of two families has, is found in its status. What is in the spec takes precedence, as the status may be
// from before it was changed. An error names the field whose range is none.
func networksOf(shoot *gardencorev1beta1.Shoot) (networks, error) {
	spec := shoot.Spec.Networking
	if spec == nil {
		return networks{}, nil
	}
	status := ptr.Deref(shoot.Status.Networking, gardencorev1beta1.NetworkingStatus{})
	out := networks{families: spec.IPFamilies}
	if len(out.families) == 0 {
		out.families = []gardencorev1beta1.IPFamily{gardencorev1beta1.IPFamilyIPv4}
	}
	var errs [3]error
	out.nodes, errs[0] = out.parse("nodes", spec.Nodes, status.Nodes)
	out.pods, errs[1] = out.parse("pods", spec.Pods, status.Pods)
	out.services, errs[2] = out.parse("services", spec.Services, status.Services)
	return out, errors.Join(errs[:]...)
}

// parse returns the first range of each family.
func (n networks) parse(field string, spec *string, status []string) ([]netip.Prefix, error) {
	prefixes, err := parseCIDRs(append([]string{ptr.Deref(spec, "")}, status...)...)
	if err != nil {
		return nil, fmt.Errorf("networking.%s of the shoot: %w", field, err)
	}
	var out []netip.Prefix
	for _, family := range n.families {
		if i := slices.IndexFunc(prefixes, func(p netip.Prefix) bool { return familyOf(p) == family }); i >= 0 {
			out = append(out, prefixes[i])
		}
	}
	return out, nil
}

// parseCIDRs leaves out those that are empty.
func parseCIDRs(cidrs ...string) ([]netip.Prefix, error) {
	return configv1alpha1.ParseCIDRs(slices.DeleteFunc(slices.Clone(cidrs), func(cidr string) bool { return cidr == "" }))
}

// status is what Gardener is told of the ranges.
func (n networks) status() *extensionsv1alpha1.InfrastructureStatusNetworking {
	return &extensionsv1alpha1.InfrastructureStatusNetworking{Nodes: toStrings(n.nodes), Pods: toStrings(n.pods), Services: toStrings(n.services)}
}

func familyOf(prefix netip.Prefix) gardencorev1beta1.IPFamily {
	if prefix.Addr().Is4() {
		return gardencorev1beta1.IPFamilyIPv4
	}
	return gardencorev1beta1.IPFamilyIPv6
}

func toStrings(prefixes []netip.Prefix) []string {
	var out []string
	for _, prefix := range prefixes {
		out = append(out, prefix.String())
	}
	return out
}

// minimal leaves out what is part of something else, and sorts the rest. In this order, a range comes right before its parts.
func minimal(prefixes []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, prefix := range slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare) {
		if len(out) == 0 || !covers(out[len(out)-1], prefix) {
			out = append(out, prefix)
		}
	}
	return out
}

// covers reports whether all addresses of b are in a.
func covers(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }

// seedRanges are the ranges of a seed, and what its operator has blocked.
type seedRanges struct {
	nodes, pods, services, blocked []netip.Prefix
}

func seedRangesOf(seed *gardencorev1beta1.Seed) (*seedRanges, error) {
	if seed == nil {
		return nil, nil
	}
	networks, out, errs := seed.Spec.Networks, &seedRanges{}, [4]error{}
	out.nodes, errs[0] = parseCIDRs(ptr.Deref(networks.Nodes, ""))
	out.pods, errs[1] = parseCIDRs(networks.Pods)
	out.services, errs[2] = parseCIDRs(networks.Services)
	out.blocked, errs[3] = parseCIDRs(networks.BlockCIDRs...)
	return out, errors.Join(errs[:]...)
}

// ranges are those of the instance's configuration and surroundings.
type ranges struct {
	// loadBalancers and egress are what machines may reach by the configuration.
	loadBalancers, egress []netip.Prefix
	// resolvers are the DNS servers that the instance asks.
	resolvers []netip.Prefix
	// servers are those in which the operator allows API servers of machines' clusters.
	servers []netip.Prefix
	// allowed are ranges that nodes may have besides private ones.
	allowed []netip.Prefix
}

func newRanges(opts Options) (ranges, error) {
	var (
		out  ranges
		errs [5]error
	)
	out.egress, errs[0] = configv1alpha1.ParseCIDRs(opts.EgressCIDRs)
	out.allowed, errs[1] = configv1alpha1.ParseCIDRs(opts.NodeCIDRs)
	out.loadBalancers, errs[2] = loadBalancerPrefixes(opts.LoadBalancers)
	out.resolvers, errs[3] = resolverPrefixes(cmp.Or(opts.ResolvConf, "/etc/resolv.conf"))
	out.servers, errs[4] = configv1alpha1.ParseCIDRs(opts.AllowedCIDRs)
	return out, errors.Join(errs[:]...)
}

// resolverPrefixes are the addresses of the DNS servers in a resolv.conf(5). Without the file there are none.
func resolverPrefixes(path string) ([]netip.Prefix, error) {
	config, err := dns.ClientConfigFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for _, server := range config.Servers {
		address, err := netip.ParseAddr(server)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		address = address.WithZone("").Unmap()
		out = append(out, netip.PrefixFrom(address, address.BitLen()))
	}
	return out, nil
}

// loadBalancerPrefixes are all addresses that a Service of the seed may get.
func loadBalancerPrefixes(config configv1alpha1.LoadBalancersConfiguration) ([]netip.Prefix, error) {
	addresses := slices.Clone(config.HostAddresses)
	for _, zone := range config.ZoneAddresses {
		addresses = append(addresses, zone...)
	}
	for _, service := range config.Services {
		addresses = append(addresses, service.Addresses...)
	}

	ranges := slices.Clone(config.Pools)
	for _, address := range addresses {
		ranges = append(ranges, address+"-"+address)
	}
	var out []netip.Prefix
	for _, addresses := range ranges {
		parsed, err := configv1alpha1.ParseAddressRange(addresses)
		if err != nil {
			return nil, err
		}
		out = append(out, parsed.Prefixes()...)
	}
	return minimal(out), nil
}
