// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// answer is what the DNSRecords of one type have as values.
type answer struct {
	recordType extensionsv1alpha1.DNSRecordType
	values     []string
}

// answersFor returns what the hosts of an Ingress lead to: the addresses in its own status, or else those of the first
// gateway that has any; nothing if there is no address yet.
func (r *reconciler) answersFor(ctx context.Context, ingress *networkingv1.Ingress) ([]answer, error) {
	if own := answersOfIngress(ingress); len(own) > 0 {
		return own, nil
	}
	for _, key := range r.gateways {
		service := &corev1.Service{}
		if err := r.reader.Get(ctx, key, service); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("reading Service %s: %w", key, err)
		}
		if found := answersOfService(service); len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

func answersOfIngress(ingress *networkingv1.Ingress) []answer {
	var ips, hostnames []string
	for _, point := range ingress.Status.LoadBalancer.Ingress {
		ips, hostnames = append(ips, point.IP), append(hostnames, point.Hostname)
	}
	return answers(ips, hostnames)
}

func answersOfService(service *corev1.Service) []answer {
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.DeletionTimestamp != nil {
		return nil
	}
	var ips, hostnames []string
	for _, point := range service.Status.LoadBalancer.Ingress {
		ips, hostnames = append(ips, point.IP), append(hostnames, point.Hostname)
	}
	return answers(ips, hostnames)
}

// answers sorts addresses by their family. A name can't have an address and be an alias (RFC 1034, section 3.6.2), nor be
// an alias of several names, so one host name counts if there are no addresses.
func answers(ips, hostnames []string) []answer {
	var ipv4, ipv6 []string
	for _, ip := range ips {
		address, err := netip.ParseAddr(ip)
		switch {
		case err != nil:
		case address.Unmap().Is4():
			ipv4 = append(ipv4, address.Unmap().String())
		default:
			ipv6 = append(ipv6, address.WithZone("").String())
		}
	}

	var out []answer
	for _, family := range []answer{{extensionsv1alpha1.DNSRecordTypeA, ipv4}, {extensionsv1alpha1.DNSRecordTypeAAAA, ipv6}} {
		if len(family.values) > 0 {
			slices.Sort(family.values)
			family.values = slices.Compact(family.values)
			out = append(out, family)
		}
	}
	if len(out) > 0 {
		return out
	}

	var names []string
	for _, hostname := range hostnames {
		if hostname != "" {
			names = append(names, strings.ToLower(strings.TrimSuffix(hostname, ".")))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []answer{{extensionsv1alpha1.DNSRecordTypeCNAME, []string{slices.Min(names)}}}
}

// equalAnswers reports whether hosts lead to the same.
func equalAnswers(a, b []answer) bool {
	return slices.EqualFunc(a, b, func(a, b answer) bool {
		return a.recordType == b.recordType && slices.Equal(a.values, b.values)
	})
}
