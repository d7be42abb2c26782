// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	"github.com/gardener/gardener/pkg/controller/networkpolicy"

	"github.com/gardener/gardener-extension-provider-local/pkg/apis/local/validation"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

const (
	// MachinesPolicy is the name of the NetworkPolicy for machines, in their namespace.
	MachinesPolicy = "provider-local-machines"
	// ControlPlanePolicy is the name of the NetworkPolicy that lets control plane components reach machines, in the shoot's
	// namespace of the seed.
	ControlPlanePolicy = "provider-local-control-plane-to-machines"

	// ServersPolicy and what follows it is the name of the NetworkPolicies that let what serves machines reach the cluster which
	// they are in, in the shoot's namespace of the seed.
	ServersPolicy = "provider-local-to-machine-cluster-"

	kubeProxyHealthPort = 10256
	nodePortFirst       = 30000
	nodePortLast        = 32767
)

// reach is what the NetworkPolicies of a shoot depend on.
type reach struct {
	// namespace is that of the shoot in the seed, and machines that of its machines.
	namespace, machines string
	// remote tells that the machines are not in the seed, so that labels select nothing on the other side.
	remote bool
	// nodes are the ranges of the shoot's nodes.
	nodes []netip.Prefix
	// seed is where the control plane is; nil if there is none.
	seed *seedRanges
	ranges
	// coreDNSNamespace is empty if machines do not ask our CoreDNS.
	coreDNSNamespace string
}

// clients are the pods in the control plane of a shoot that ask the API server of the machines' cluster, by a name for each.
func clients() map[string]map[string]string {
	return map[string]map[string]string{
		v1beta1constants.DeploymentNameMachineControllerManager: {v1beta1constants.LabelApp: v1beta1constants.LabelKubernetes, v1beta1constants.LabelRole: "machine-controller-manager"},
		"cloud-controller": {"app.kubernetes.io/name": "cloud-controller"},
	}
}

// refusal returns why machines must not have their addresses from a range, and "" if they may. The admission refuses such a
// range as well, but need not be there, and does not know all that the seed uses: what is for that would be sent to a
// machine. Where machines are elsewhere, the ranges of the seed mean nothing.
func (r reach) refusal(nodes netip.Prefix) string {
	if err := validation.NodeRange(nodes, r.allowed); err != nil {
		return err.Error()
	}
	if r.remote {
		return ""
	}
	seed := ptr.Deref(r.seed, seedRanges{})
	used := slices.Concat(seed.nodes, seed.pods, seed.services, seed.blocked, r.loadBalancers, r.egress, r.resolvers)
	if i := slices.IndexFunc(used, nodes.Overlaps); i >= 0 {
		return fmt.Sprintf("overlaps %s, which the seed uses for its nodes, pods, Services, load balancers or DNS servers, or which machines.egressCIDRs or "+
			"the Seed's blockCIDRs have", used[i])
	}
	return ""
}

// policies returns all NetworkPolicies of a shoot. None of them selects a pod that is neither a machine nor one of
// Gardener's control plane, which in a shoot's namespace of a seed have Gardener's deny-all anyway: theirs only adds. There are
// none for a control plane that is not in a seed, where no policy but these would select its pods.
func (r reach) policies() []*networkingv1.NetworkPolicy {
	out := []*networkingv1.NetworkPolicy{r.machinesPolicy()}
	if r.seed == nil {
		return out
	}
	return append(append(out, r.controlPlanePolicy()), r.serverPolicies()...)
}

func (r reach) machinesPolicy() *networkingv1.NetworkPolicy {
	return newPolicy(r.machines, MachinesPolicy, "Lets machines of a shoot reach each other, and what machines in any data center reach; lets "+
		"the control plane of the shoot reach them at all ports, its bastions at SSH, and everybody at node ports.",
		networkingv1.NetworkPolicySpec{
			PodSelector: machines(),
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     r.ingress(),
			Egress:      r.egressRules(),
		})
}

func (r reach) ingress() []networkingv1.NetworkPolicyIngressRule {
	out := []networkingv1.NetworkPolicyIngressRule{{From: pods(machines())}}
	switch {
	case !r.remote:
		out = append(out, networkingv1.NetworkPolicyIngressRule{From: pods(controlPlane())})
	case r.seed != nil:
		if from := blocksExcept(minimal(slices.Concat(r.seed.pods, r.seed.nodes)), nil); len(from) > 0 {
			out = append(out, networkingv1.NetworkPolicyIngressRule{From: from})
		}
	}
	return append(out,
		networkingv1.NetworkPolicyIngressRule{
			From:  pods(metav1.LabelSelector{MatchLabels: map[string]string{machine.LabelApp: machine.AppBastion}}),
			Ports: []networkingv1.NetworkPolicyPort{machine.PolicyPort(corev1.ProtocolTCP, machine.SSHPort)},
		},
		// What load balancers send comes from clients or, if a node forwards it to another, from an address of the node. That
		// one may be the end of an overlay's tunnel, which is in the range of the pods, so that range is not left out.
		networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{
			portRange(corev1.ProtocolTCP, nodePortFirst, nodePortLast),
			portRange(corev1.ProtocolUDP, nodePortFirst, nodePortLast),
			portRange(corev1.ProtocolSCTP, nodePortFirst, nodePortLast),
			machine.PolicyPort(corev1.ProtocolTCP, kubeProxyHealthPort),
		}},
	)
}

func (r reach) egressRules() []networkingv1.NetworkPolicyEgressRule {
	out := []networkingv1.NetworkPolicyEgressRule{{To: pods(machines())}}
	if r.remote {
		// Which servers the nodes of a cluster ask that only its user knows, nobody tells.
		out = append(out, networkingv1.NetworkPolicyEgressRule{Ports: dnsPorts(53)})
	} else {
		out = append(out, networkingv1.NetworkPolicyEgressRule{To: gateways()})
		if r.coreDNSNamespace != "" {
			out = append(out, networkingv1.NetworkPolicyEgressRule{
				To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{corev1.LabelMetadataName: r.coreDNSNamespace},
				}}},
				Ports: dnsPorts(53, 9053, 9054),
			})
		}
	}

	seed := ptr.Deref(r.seed, seedRanges{})
	known := append(blocksExcept(minimal(slices.Concat(seed.nodes, r.loadBalancers)), seed.blocked), blocksExcept(r.egress, nil)...)
	// In IPv6 the ranges of a cluster may be public addresses.
	internal := slices.Concat(privateRanges(), seed.nodes, seed.pods, seed.services, seed.blocked)
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	return slices.Concat(out, rule(known), rule(blocksExcept(everything, internal)))
}

// controlPlanePolicy lets nothing through if there is nothing by which it could tell the machines.
func (r reach) controlPlanePolicy() *networkingv1.NetworkPolicy {
	to := pods(machines())
	if r.remote {
		// It is up to a user which private range that is, and Gardener lets it overlap those of the seed.
		to = blocksExcept(slices.DeleteFunc(slices.Clone(r.nodes), func(nodes netip.Prefix) bool { return r.refusal(nodes) != "" }),
			slices.Concat(r.seed.nodes, r.seed.pods, r.seed.services, r.seed.blocked, r.loadBalancers, r.resolvers))
	}
	return newPolicy(r.namespace, ControlPlanePolicy, "Lets the components of the shoot's control plane reach its machines.", networkingv1.NetworkPolicySpec{
		PodSelector: controlPlane(),
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		Egress:      rule(to),
	})
}

// serverPolicies are for clusters that Gardener's policies leave out, as those in the network of the seed's nodes. A user says by
// a kubeconfig where the server is, so they open only what the operator has listed. They let nothing through if there is nothing.
func (r reach) serverPolicies() []*networkingv1.NetworkPolicy {
	if !r.remote {
		return nil
	}
	to := blocksExcept(r.servers, r.seed.blocked)
	var out []*networkingv1.NetworkPolicy
	for _, name := range slices.Sorted(maps.Keys(clients())) {
		out = append(out, newPolicy(r.namespace, ServersPolicy+name, "Lets "+name+" reach the API server of the cluster in which the machines are.", networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: clients()[name]},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      rule(to, portRange(corev1.ProtocolTCP, 1, 65535)),
		}))
	}
	return out
}

// rule has no rule for nothing: that would let everything through. A policy without rules stays, as it takes the place of one with.
func rule(to []networkingv1.NetworkPolicyPeer, ports ...networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyEgressRule {
	if len(to) == 0 {
		return nil
	}
	return []networkingv1.NetworkPolicyEgressRule{{To: to, Ports: ports}}
}

func newPolicy(namespace, name, description string, spec networkingv1.NetworkPolicySpec) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   namespace,
			Name:        name,
			Labels:      map[string]string{labelManagedBy: managedBy},
			Annotations: map[string]string{v1beta1constants.GardenerDescription: description},
		},
		Spec: spec,
	}
}

func machines() metav1.LabelSelector { return metav1.LabelSelector{MatchLabels: machine.Selector()} }

// controlPlane selects what Gardener runs for a shoot: what serves it, and what watches it.
func controlPlane() metav1.LabelSelector {
	return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key:      v1beta1constants.GardenRole,
		Operator: metav1.LabelSelectorOpIn,
		Values:   []string{v1beta1constants.GardenRoleControlPlane, v1beta1constants.GardenRoleMonitoring, v1beta1constants.GardenRoleObservability},
	}}}
}

// gateways are istio's, which take in all that is for an API server, a VPN or an ingress of Gardener: those of the garden,
// of the seed, of its zones, and of its exposure classes.
func gateways() []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1beta1constants.GardenRole: v1beta1constants.GardenRoleIstioIngress}}},
		{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: v1beta1constants.LabelExposureClassHandlerName, Operator: metav1.LabelSelectorOpExists},
		}}},
	}
}

func pods(selector metav1.LabelSelector) []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{PodSelector: &selector}}
}

// blocksExcept leaves out what is wholly excepted. Exceptions from a block have to be part of it.
func blocksExcept(prefixes, except []netip.Prefix) []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	except = minimal(except)
	for _, prefix := range prefixes {
		if slices.ContainsFunc(except, func(e netip.Prefix) bool { return covers(e, prefix) }) {
			continue
		}
		block := &networkingv1.IPBlock{CIDR: prefix.String()}
		for _, e := range except {
			if covers(prefix, e) {
				block.Except = append(block.Except, e.String())
			}
		}
		out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: block})
	}
	return out
}

// privateRanges are those that Gardener calls private, and the link-local ones, in which data centers have their metadata.
func privateRanges() []netip.Prefix {
	out := []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}
	for _, block := range slices.Concat(networkpolicy.AllPrivateNetworkBlocksV4(), networkpolicy.AllPrivateNetworkBlocksV6()) {
		out = append(out, netip.MustParsePrefix(block.String()))
	}
	return out
}

func dnsPorts(numbers ...int32) []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort
	for _, number := range numbers {
		out = append(out, machine.PolicyPort(corev1.ProtocolUDP, number), machine.PolicyPort(corev1.ProtocolTCP, number))
	}
	return out
}

func portRange(protocol corev1.Protocol, first, last int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(first)), EndPort: &last}
}
