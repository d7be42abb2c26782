// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var ipModes = []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy}

// +k8s:deepcopy-gen=false

// AddressRange is a range of addresses of one family.
type AddressRange struct {
	// First and Last belong to it.
	First, Last netip.Addr
}

// ParseAddressRange parses a CIDR, whose first and last addresses count like all others, or FIRST-LAST.
func ParseAddressRange(value string) (AddressRange, error) {
	first, last, isRange := strings.Cut(value, "-")
	if !isRange {
		prefix, err := netip.ParsePrefix(value)
		if err != nil || prefix.Addr().Is4In6() {
			return AddressRange{}, fmt.Errorf("%q is neither a CIDR nor FIRST-LAST", value)
		}
		prefix = prefix.Masked()
		return AddressRange{First: prefix.Addr(), Last: lastOf(prefix)}, nil
	}

	var (
		out  AddressRange
		errs [2]error
	)
	out.First, errs[0] = netip.ParseAddr(first)
	out.Last, errs[1] = netip.ParseAddr(last)
	switch {
	case errors.Join(errs[:]...) != nil || !isPlain(out.First) || !isPlain(out.Last):
		return AddressRange{}, fmt.Errorf("%q is neither a CIDR nor FIRST-LAST", value)
	case out.First.Is4() != out.Last.Is4() || out.Last.Less(out.First):
		return AddressRange{}, fmt.Errorf("%q must be of one family, the first address not after the last", value)
	}
	return out, nil
}

// ParseCIDRs parses ranges of addresses, and clears the bits of each address that are beyond its prefix.
func ParseCIDRs(cidrs []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil || prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("%q is no CIDR", cidr)
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}

func validateCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	for i, cidr := range cidrs {
		if _, err := ParseCIDRs(cidrs[i : i+1]); err != nil {
			allErrs = append(allErrs, field.Invalid(path.Index(i), cidr, "must be a range such as 192.168.0.0/16"))
		}
	}
	return allErrs
}

// isPlain reports whether an address is in the form in which Services have it.
func isPlain(address netip.Addr) bool { return address.Zone() == "" && !address.Is4In6() }

// Contains reports whether an address is in the range.
func (r AddressRange) Contains(address netip.Addr) bool {
	return address.Is4() == r.First.Is4() && !address.Less(r.First) && !r.Last.Less(address)
}

func lastOf(prefix netip.Prefix) netip.Addr {
	raw := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}

func validateLoadBalancers(loadBalancers *LoadBalancersConfiguration, path *field.Path) field.ErrorList {
	allErrs := validateAddresses(loadBalancers.HostAddresses, path.Child("hostAddresses"))
	for zone, addresses := range loadBalancers.ZoneAddresses {
		allErrs = append(allErrs, validateAddresses(addresses, path.Child("zoneAddresses").Key(zone))...)
	}
	for i, pool := range loadBalancers.Pools {
		if _, err := ParseAddressRange(pool); err != nil {
			allErrs = append(allErrs, field.Invalid(path.Child("pools").Index(i), pool, err.Error()))
		}
	}

	seen, nodePorts := map[ServiceReference]bool{}, map[int32]ServiceReference{}
	for i, service := range loadBalancers.Services {
		path := path.Child("services").Index(i)
		reference := ServiceReference{Namespace: service.Namespace, Name: service.Name}
		if seen[reference] {
			allErrs = append(allErrs, field.Duplicate(path, service.Namespace+"/"+service.Name))
		}
		seen[reference] = true

		allErrs = append(allErrs, validateReference(reference, path)...)
		allErrs = append(allErrs, validateAddresses(service.Addresses, path.Child("addresses"))...)
		if service.IPMode != nil && *service.IPMode != ipModes[0] && *service.IPMode != ipModes[1] {
			allErrs = append(allErrs, field.NotSupported(path.Child("ipMode"), *service.IPMode, ipModes))
		}
		for j, fixed := range service.NodePorts {
			allErrs = append(allErrs, validateNodePort(fixed, path.Child("nodePorts").Index(j))...)
			if slices.ContainsFunc(service.NodePorts[:j], func(other LoadBalancerNodePort) bool { return other.Port == fixed.Port }) {
				allErrs = append(allErrs, field.Duplicate(path.Child("nodePorts").Index(j).Child("port"), fixed.Port))
			}
			if _, taken := nodePorts[fixed.NodePort]; taken {
				allErrs = append(allErrs, field.Duplicate(path.Child("nodePorts").Index(j).Child("nodePort"), fixed.NodePort))
			}
			nodePorts[fixed.NodePort] = reference
		}
	}
	return allErrs
}

func validateNodePort(fixed LoadBalancerNodePort, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	for name, port := range map[string]int32{"port": fixed.Port, "nodePort": fixed.NodePort} {
		for _, msg := range validation.IsValidPortNum(int(port)) {
			allErrs = append(allErrs, field.Invalid(path.Child(name), port, msg))
		}
	}
	return allErrs
}

// validateAddresses refuses what is no address, and two of one family.
func validateAddresses(addresses []string, path *field.Path) field.ErrorList {
	var (
		allErrs  field.ErrorList
		families = map[bool]bool{}
	)
	for i, value := range addresses {
		address, err := netip.ParseAddr(value)
		switch {
		case err != nil || !isPlain(address):
			allErrs = append(allErrs, field.Invalid(path.Index(i), value, "must be an IP address"))
		case families[address.Is4()]:
			allErrs = append(allErrs, field.Invalid(path.Index(i), value, "there is another address of its family"))
		default:
			families[address.Is4()] = true
		}
	}
	return allErrs
}

func validateIngress(ingress *IngressConfiguration, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	for i, gateway := range ingress.Gateways {
		allErrs = append(allErrs, validateReference(gateway, path.Child("gateways").Index(i))...)
	}
	return allErrs
}

func validateReference(reference ServiceReference, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	for _, msg := range validation.IsDNS1123Label(reference.Namespace) {
		allErrs = append(allErrs, field.Invalid(path.Child("namespace"), reference.Namespace, msg))
	}
	for _, msg := range validation.IsDNS1035Label(reference.Name) {
		allErrs = append(allErrs, field.Invalid(path.Child("name"), reference.Name, msg))
	}
	return allErrs
}
