// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var dnsProviders = []DNSProvider{DNSProviderCoreDNS, DNSProviderRFC2136}

func validateDNS(dns *DNSConfiguration, path *field.Path) field.ErrorList {
	allErrs := validateZones(dns.Zones, path.Child("zones"))
	allErrs = append(allErrs, validateZones(dns.ReservedDomains, path.Child("reservedDomains"))...)
	if *dns.DefaultTTL <= 0 || *dns.DefaultTTL > math.MaxInt32 {
		allErrs = append(allErrs, field.Invalid(path.Child("defaultTTL"), *dns.DefaultTTL, fmt.Sprintf("must be between 1 and %d", math.MaxInt32)))
	}
	if !sets.New(dnsProviders...).Has(dns.Provider) {
		allErrs = append(allErrs, field.NotSupported(path.Child("provider"), dns.Provider, dnsProviders))
	}
	allErrs = append(allErrs, validateRFC2136(&dns.RFC2136, path.Child("rfc2136"))...)
	return append(allErrs, validateCoreDNS(&dns.CoreDNS, path.Child("coreDNS"))...)
}

func validateZones(zones []string, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	for i, zone := range zones {
		// CoreDNS does not start if it is to serve a zone twice.
		if slices.Contains(zones[:i], zone) {
			allErrs = append(allErrs, field.Duplicate(path.Index(i), zone))
		}
		for _, msg := range validation.IsDNS1123Subdomain(zone) {
			allErrs = append(allErrs, field.Invalid(path.Index(i), zone, msg))
		}
	}
	return allErrs
}

func validateRFC2136(rfc2136 *RFC2136Configuration, path *field.Path) field.ErrorList {
	allErrs := validateZones(rfc2136.Zones, path.Child("zones"))
	if rfc2136.Server != "" && !isHost(rfc2136.Server) {
		allErrs = append(allErrs, field.Invalid(path.Child("server"), rfc2136.Server, "must be HOST[:PORT]"))
	}
	for i, server := range rfc2136.AllowedServers {
		if _, _, err := ParseAllowedServer(server); err != nil {
			allErrs = append(allErrs, field.Invalid(path.Child("allowedServers").Index(i), server, err.Error()))
		}
	}
	if rfc2136.Timeout.Duration <= 0 {
		allErrs = append(allErrs, field.Invalid(path.Child("timeout"), rfc2136.Timeout.Duration.String(), "must be greater than 0"))
	}
	return allErrs
}

func validateCoreDNS(coreDNS *CoreDNSConfiguration, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	for _, msg := range validation.IsDNS1123Label(coreDNS.Namespace) {
		allErrs = append(allErrs, field.Invalid(path.Child("namespace"), coreDNS.Namespace, msg))
	}
	for _, msg := range validation.IsDNS1123Subdomain(coreDNS.ClusterDomain) {
		allErrs = append(allErrs, field.Invalid(path.Child("clusterDomain"), coreDNS.ClusterDomain, msg))
	}
	if *coreDNS.Deploy && coreDNS.Image == "" {
		allErrs = append(allErrs, field.Required(path.Child("image"), "needed as long as deploy is true"))
	}
	if *coreDNS.Replicas < 1 {
		allErrs = append(allErrs, field.Invalid(path.Child("replicas"), *coreDNS.Replicas, "must be at least 1"))
	}
	if coreDNS.ClusterIP != "" {
		if _, err := netip.ParseAddr(coreDNS.ClusterIP); err != nil {
			allErrs = append(allErrs, field.Invalid(path.Child("clusterIP"), coreDNS.ClusterIP, "must be an IP address"))
		}
	}
	if coreDNS.ServiceNetwork != "" {
		if _, err := netip.ParsePrefix(coreDNS.ServiceNetwork); err != nil {
			allErrs = append(allErrs, field.Invalid(path.Child("serviceNetwork"), coreDNS.ServiceNetwork, "must be a CIDR"))
		}
	}
	for i, network := range coreDNS.ClientNetworks {
		if _, err := netip.ParsePrefix(network); err != nil {
			allErrs = append(allErrs, field.Invalid(path.Child("clientNetworks").Index(i), network, "must be a CIDR"))
		}
	}
	for i, server := range coreDNS.Servers {
		if _, _, err := net.SplitHostPort(server); err != nil {
			allErrs = append(allErrs, field.Invalid(path.Child("servers").Index(i), server, "must be host:port"))
		}
	}
	if coreDNS.BatchWindow.Duration < 0 {
		allErrs = append(allErrs, field.Invalid(path.Child("batchWindow"), coreDNS.BatchWindow.Duration.String(), "must not be negative"))
	}
	if coreDNS.ConfirmTimeout.Duration <= 0 {
		allErrs = append(allErrs, field.Invalid(path.Child("confirmTimeout"), coreDNS.ConfirmTimeout.Duration.String(), "must be greater than 0"))
	}
	return allErrs
}
