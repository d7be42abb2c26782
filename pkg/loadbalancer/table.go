// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

const (
	// gatewayName is the name of the Service of each of Gardener's Istio ingress gateways.
	gatewayName = "istio-ingressgateway"
	// gatewayNamespace is the namespace of the gateway of a seed. That of a zone has zoneInfix and the zone behind it.
	gatewayNamespace = "istio-ingress"
	zoneInfix        = "--"
	// zoneHashLength is how much of the hash of a zone's name stands for it.
	zoneHashLength = 5
)

// Table are the well-known Services, whose addresses and node ports others know beforehand.
type Table struct {
	services map[types.NamespacedName]Entry
	// host is what gateways of zones without addresses have.
	host Entry
	// reserved are all addresses of the configuration outside of the pools.
	reserved []netip.Addr
	// fixed are all fixed node ports.
	fixed map[int32]struct{}
}

// Entry is what a well-known Service has. It is not to be changed.
type Entry struct {
	// Addresses are one address, or one of each family.
	Addresses []netip.Addr
	// IPMode reports whether kube-proxy takes in what is sent to them.
	IPMode corev1.LoadBalancerIPMode
	// NodePorts are its fixed node ports by its ports.
	NodePorts map[int32]int32
}

// NewTable returns the Table of a configuration that has its defaults. It fails if something is not an address.
func NewTable(config configv1alpha1.LoadBalancersConfiguration) (*Table, error) {
	t := &Table{services: map[types.NamespacedName]Entry{}, fixed: map[int32]struct{}{}}
	host, err := t.parse(config.HostAddresses)
	if err != nil {
		return nil, fmt.Errorf("host addresses: %w", err)
	}
	t.host = Entry{Addresses: host, IPMode: corev1.LoadBalancerIPModeProxy}

	for zone, addresses := range config.ZoneAddresses {
		parsed, err := t.parse(addresses)
		if err != nil {
			return nil, fmt.Errorf("addresses of zone %s: %w", zone, err)
		}
		if len(parsed) > 0 {
			t.services[types.NamespacedName{Namespace: GatewayNamespace(zone), Name: gatewayName}] = Entry{Addresses: parsed, IPMode: corev1.LoadBalancerIPModeVIP}
		}
	}

	for _, service := range config.Services {
		key := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
		entry, ok := t.services[key]
		if !ok {
			entry = t.host
		}
		own, err := t.parse(service.Addresses)
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", key, err)
		}
		if len(own) > 0 {
			entry.Addresses, entry.IPMode = own, corev1.LoadBalancerIPModeVIP
		}
		if service.IPMode != nil {
			entry.IPMode = *service.IPMode
		}
		entry.NodePorts = map[int32]int32{}
		for _, fixed := range service.NodePorts {
			entry.NodePorts[fixed.Port] = fixed.NodePort
			t.fixed[fixed.NodePort] = struct{}{}
		}
		t.services[key] = entry
	}
	return t, nil
}

// WellKnown returns what a Service has, and whether it is well-known at all.
func (t *Table) WellKnown(service types.NamespacedName) (Entry, bool) {
	if entry, ok := t.services[service]; ok {
		return entry, true
	}
	if service.Name == gatewayName && strings.HasPrefix(service.Namespace, gatewayNamespace+zoneInfix) {
		return t.host, true
	}
	return Entry{}, false
}

// IsFixed reports whether a node port is kept for a well-known Service.
func (t *Table) IsFixed(nodePort int32) bool {
	_, ok := t.fixed[nodePort]
	return ok
}

// Reserved returns the addresses that no Pool may give out: those of well-known Services, of zones and of the host.
func (t *Table) Reserved() []netip.Addr { return slices.Clone(t.reserved) }

func (t *Table) parse(values []string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, value := range values {
		address, err := netip.ParseAddr(value)
		if err != nil {
			return nil, err
		}
		out = append(out, address.Unmap())
	}
	t.reserved = append(t.reserved, out...)
	return out, nil
}

// GatewayNamespace returns the namespace that Gardener gives to the gateway of a zone: istio-ingress--<zone>, with the start
// of a hash where a namespace can't be named so. See GetIstioNamespaceForZone in Gardener's package pkg/component/shared,
// which brings all components of a seed with it.
func GatewayNamespace(zone string) string {
	if namespace := gatewayNamespace + zoneInfix + zone; len(namespace) <= validation.DNS1035LabelMaxLength && zone == strings.ToLower(zone) {
		return namespace
	}
	hash := sha256.Sum256([]byte(zone))
	return gatewayNamespace + zoneInfix + hex.EncodeToString(hash[:])[:zoneHashLength]
}
