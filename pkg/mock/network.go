// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
)

// Where addresses stand for something that isn't there, they are from the ranges for documentation (RFC 5737, RFC 3849), so
// that nobody is reached by mistake.
const (
	egressV4, egressV6 = "192.0.2.0", "2001:db8::"
	bastions           = "198.51.100.0"
	exposures          = "203.0.113.0"
)

// retryCluster is when an object is looked at again whose shoot is not in a Cluster yet. As gardenlet writes that first, it
// is most likely on its way to the cache.
const retryCluster = time.Second

// purpose is what a range of a shoot's network is for, and the range where nobody has chosen one: those of Gardener for IPv4,
// unique local ones for IPv6.
type purpose struct {
	name   string
	v4, v6 string
}

var (
	nodeRange    = purpose{"nodes", "10.250.0.0/16", "fd00:10:250::/64"}
	podRange     = purpose{"pods", "100.96.0.0/11", "fd00:100:96::/56"}
	serviceRange = purpose{"services", "100.64.0.0/13", "fd00:100:64::/108"}
)

// applyInfrastructure tells the ranges of the shoot, which gardenlet puts into the Shoot's status, one of each family. What
// the shoot's spec lacks comes from its status or is made up.
func applyInfrastructure(_ context.Context, _ *provider, o *operation, infra *extensionsv1alpha1.Infrastructure) error {
	shoot := o.Cluster.Shoot()
	if shoot == nil && isOfShoot(infra) {
		return noCluster(infra.Namespace)
	}
	var (
		spec   = &gardencorev1beta1.Networking{}
		status = &gardencorev1beta1.NetworkingStatus{}
	)
	if shoot != nil && shoot.Spec.Networking != nil {
		spec = shoot.Spec.Networking
	}
	if shoot != nil && shoot.Status.Networking != nil {
		status = shoot.Status.Networking
	}
	families := spec.IPFamilies
	if len(families) == 0 {
		families = []gardencorev1beta1.IPFamily{gardencorev1beta1.IPFamilyIPv4}
	}

	var errs [3]error
	networking := &extensionsv1alpha1.InfrastructureStatusNetworking{}
	networking.Nodes, errs[0] = nodeRange.choose(families, spec.Nodes, status.Nodes)
	networking.Pods, errs[1] = podRange.choose(families, spec.Pods, status.Pods)
	networking.Services, errs[2] = serviceRange.choose(families, spec.Services, status.Services)
	if err := errors.Join(errs[:]...); err != nil {
		return v1beta1helper.NewErrorWithCodes(fmt.Errorf("networking of the shoot: %w", err), gardencorev1beta1.ErrorConfigurationProblem)
	}

	infra.Status.Networking = networking
	infra.Status.EgressCIDRs = nil
	for _, family := range families {
		base := egressV4
		if family == gardencorev1beta1.IPFamilyIPv6 {
			base = egressV6
		}
		address := addressFor(base, infra.Namespace)
		infra.Status.EgressCIDRs = append(infra.Status.EgressCIDRs, netip.PrefixFrom(address, address.BitLen()).String())
	}
	return nil
}

// choose returns a range for each family.
func (p purpose) choose(families []gardencorev1beta1.IPFamily, spec *string, status []string) ([]string, error) {
	var known []netip.Prefix
	candidates := status
	if spec != nil && *spec != "" {
		candidates = append([]string{*spec}, status...)
	}
	for _, cidr := range candidates {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is no CIDR", p.name, cidr)
		}
		known = append(known, prefix.Masked())
	}

	var out []string
	for _, family := range families {
		isV4 := family != gardencorev1beta1.IPFamilyIPv6
		if i := slices.IndexFunc(known, func(prefix netip.Prefix) bool { return prefix.Addr().Is4() == isV4 }); i >= 0 {
			out = append(out, known[i].String())
		} else if isV4 {
			out = append(out, p.v4)
		} else {
			out = append(out, p.v6)
		}
	}
	return out, nil
}

// applyNetwork tells that the network has the families which the spec asks for. gardenlet waits for that when a shoot gets a
// second one.
func applyNetwork(_ context.Context, _ *provider, _ *operation, network *extensionsv1alpha1.Network) error {
	network.Status.IPFamilies = slices.Clone(network.Spec.IPFamilies)
	if len(network.Status.IPFamilies) == 0 {
		network.Status.IPFamilies = []extensionsv1alpha1.IPFamily{extensionsv1alpha1.IPFamilyIPv4}
	}
	return nil
}

// applyDNSRecord tells the zone: all but the first label of the name, unless the spec says another one.
func applyDNSRecord(_ context.Context, _ *provider, _ *operation, record *extensionsv1alpha1.DNSRecord) error {
	record.Status.Zone = record.Spec.Zone
	if record.Spec.Zone == nil || *record.Spec.Zone == "" {
		_, parent, _ := strings.Cut(record.Spec.Name, ".")
		record.Status.Zone = &parent
	}
	return nil
}

// applyBastion tells an address, without which gardenlet does not hand the Bastion on to the user.
func applyBastion(_ context.Context, _ *provider, _ *operation, bastion *extensionsv1alpha1.Bastion) error {
	bastion.Status.Ingress = &corev1.LoadBalancerIngress{IP: addressFor(bastions, bastion.Namespace+"/"+bastion.Name).String()}
	return nil
}

// applyExposure tells an address, to which gardenlet points the DNSRecord of the control plane.
func applyExposure(_ context.Context, _ *provider, _ *operation, exposure *extensionsv1alpha1.SelfHostedShootExposure) error {
	exposure.Status.Ingress = []corev1.LoadBalancerIngress{{IP: addressFor(exposures, exposure.Namespace+"/"+exposure.Name).String()}}
	return nil
}

// addressFor returns an address that is always the same for a name: one of the 254 hosts that follow base.
func addressFor(base, name string) netip.Addr {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	raw := netip.MustParseAddr(base).AsSlice()
	raw[len(raw)-1] = byte(1 + hash.Sum32()%254) // #nosec G115 -- at most 254
	address, _ := netip.AddrFromSlice(raw)
	return address
}

// isOfShoot reports whether there is to be a Cluster.
func isOfShoot(obj extensionsv1alpha1.Object) bool {
	class := obj.GetExtensionSpec().GetExtensionClass()
	return class == nil || *class == "" || *class == extensionsv1alpha1.ExtensionClassShoot
}

func noCluster(namespace string) error {
	return &reconcilerutils.RequeueAfterError{
		Cause:        fmt.Errorf("waiting for the Cluster %s with a shoot, which gardenlet writes", namespace),
		RequeueAfter: retryCluster,
	}
}
