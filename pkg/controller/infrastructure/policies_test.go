// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager/fake"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

var update = flag.Bool("update", false, "write the golden files anew")

func prefixes(cidrs ...string) []netip.Prefix {
	out, err := configv1alpha1.ParseCIDRs(cidrs)
	if err != nil {
		panic(err)
	}
	return out
}

// inSeed has machines in a seed of one family.
func inSeed() reach {
	return reach{
		namespace: namespace, machines: namespace,
		nodes:            prefixes("10.0.0.0/16"),
		seed:             &seedRanges{nodes: prefixes("172.18.0.0/24"), pods: prefixes("10.1.0.0/16"), services: prefixes("10.2.0.0/16")},
		ranges:           ranges{loadBalancers: prefixes("172.18.255.1/32", "172.18.255.128/25")},
		coreDNSNamespace: "gardener-extension-provider-local-coredns",
	}
}

// inSeedV6 has addresses in the seed that are public ones.
func inSeedV6() reach {
	r := inSeed()
	r.nodes = prefixes("fd00:10:1:100::/56")
	r.seed = &seedRanges{nodes: prefixes("2001:db8::/64"), pods: prefixes("2001:db8:1::/56"), services: prefixes("fd00:10:2::/112")}
	r.loadBalancers = prefixes("fd00:ff::1/128", "fd00:ff::1:0/120")
	return r
}

func inSeedDual() reach {
	r := inSeed()
	r.nodes = prefixes("10.0.0.0/16", "fd00:10:1:100::/56")
	r.loadBalancers = append(r.loadBalancers, prefixes("fd00:ff::1/128", "fd00:ff::1:0/120")...)
	r.egress = prefixes("192.168.7.0/24", "fd00:7::/64")
	r.seed.blocked = prefixes("172.18.0.5/32", "198.51.100.0/24")
	return r
}

// elsewhere has machines in another cluster than the seed.
func elsewhere() reach {
	r := inSeed()
	r.machines, r.remote = "infra-"+namespace, true
	r.servers = prefixes("172.18.0.0/28", "10.64.0.0/16")
	return r
}

func withoutSeed() reach {
	r := elsewhere()
	r.namespace, r.machines, r.seed, r.nodes = "kube-system", "infra-kube-system", nil, nil
	return r
}

func TestThePoliciesAreThoseOfTheGoldenFiles(t *testing.T) {
	for name, reach := range map[string]reach{
		"seed-ipv4": inSeed(), "seed-ipv6": inSeedV6(), "seed-dual-stack": inSeedDual(), "elsewhere": elsewhere(), "without-seed": withoutSeed(),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var parts [][]byte
			for _, policy := range reach.policies() {
				part, err := yaml.Marshal(policy)
				g.Expect(err).NotTo(HaveOccurred())
				parts = append(parts, part)
			}
			content, path := bytes.Join(parts, []byte("---\n")), filepath.Join("testdata", name+".yaml")
			if *update {
				g.Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
			}
			expected, err := os.ReadFile(path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(content)).To(Equal(string(expected)), "refresh with -update if this is intended")
		})
	}
}

// party is one end of a connection: a pod, or an address without one.
type party struct {
	namespace       string
	namespaceLabels map[string]string
	labels          map[string]string
	address         string
}

func pod(namespace, address string, labels map[string]string, role string) party {
	return party{namespace: namespace, address: address, labels: labels, namespaceLabels: map[string]string{
		"kubernetes.io/metadata.name": namespace, "gardener.cloud/role": role,
	}}
}

// allows tells what Kubernetes' rules for NetworkPolicies say of a connection.
func allows(policies []*networkingv1.NetworkPolicy, from, to party, protocol corev1.Protocol, port int32) bool {
	leaves, arrives := true, true
	for _, direction := range []networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress} {
		self, peer, allowed := from, to, &leaves
		if direction == networkingv1.PolicyTypeIngress {
			self, peer, allowed = to, from, &arrives
		}
		var selected, matched bool
		for _, policy := range policies {
			if self.labels == nil || policy.Namespace != self.namespace || !matches(policy.Spec.PodSelector, self.labels) || !slices.Contains(policy.Spec.PolicyTypes, direction) {
				continue
			}
			selected = true
			if direction == networkingv1.PolicyTypeEgress {
				matched = matched || slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
					return hasPort(rule.Ports, protocol, port) && hasPeer(policy.Namespace, rule.To, peer)
				})
			} else {
				matched = matched || slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
					return hasPort(rule.Ports, protocol, port) && hasPeer(policy.Namespace, rule.From, peer)
				})
			}
		}
		*allowed = !selected || matched
	}
	return leaves && arrives
}

func matches(selector metav1.LabelSelector, set map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		panic(err)
	}
	return parsed.Matches(labels.Set(set))
}

func hasPort(ports []networkingv1.NetworkPolicyPort, protocol corev1.Protocol, number int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		last := p.Port.IntVal
		if p.EndPort != nil {
			last = *p.EndPort
		}
		return *p.Protocol == protocol && p.Port.IntVal <= number && number <= last
	})
}

func hasPeer(namespace string, peers []networkingv1.NetworkPolicyPeer, other party) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if block := peer.IPBlock; block != nil {
			address := netip.MustParseAddr(other.address)
			within := func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(address) }
			return within(block.CIDR) && !slices.ContainsFunc(block.Except, within)
		}
		if other.labels == nil || peer.NamespaceSelector == nil && other.namespace != namespace {
			return false
		}
		return (peer.NamespaceSelector == nil || matches(*peer.NamespaceSelector, other.namespaceLabels)) &&
			(peer.PodSelector == nil || matches(*peer.PodSelector, other.labels))
	})
}

// denyAll is what Gardener has in each namespace of a shoot.
func denyAll() *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	}}
}

func TestInASeedMachinesReachAndAreReachedByWhatTheyHaveTo(t *testing.T) {
	const other = "shoot--local--bar"
	policies := append(inSeedDual().policies(), denyAll())

	var (
		machineA   = pod(namespace, "10.0.0.2", machine.Labels("a"), "shoot")
		machineB   = pod(namespace, "10.0.0.3", machine.Labels("b"), "shoot")
		foreign    = pod(other, "10.0.0.4", machine.Labels("c"), "shoot")
		apiserver  = pod(namespace, "10.1.0.2", map[string]string{"app": "kubernetes", "gardener.cloud/role": "controlplane"}, "shoot")
		etcd       = pod(namespace, "10.1.0.3", map[string]string{"gardener.cloud/role": "controlplane"}, "shoot")
		prometheus = pod(namespace, "10.1.0.4", map[string]string{"gardener.cloud/role": "monitoring"}, "shoot")
		bastion    = pod(namespace, "10.1.0.5", map[string]string{"app": "bastion"}, "shoot")
		stranger   = pod(namespace, "10.1.0.6", map[string]string{"app": "other"}, "shoot")
		theirs     = pod(other, "10.1.0.7", map[string]string{"gardener.cloud/role": "controlplane"}, "shoot")
		gateway    = pod("istio-ingress", "10.1.0.8", map[string]string{"app": "istio-ingressgateway"}, "istio-ingress")
		exposure   = party{namespace: "istio-ingress-handler-x", address: "10.1.0.9", labels: map[string]string{"app": "x"},
			namespaceLabels: map[string]string{"handler.exposureclass.gardener.cloud/name": "x", "gardener.cloud/role": "exposureclass-handler"}}
		coreDNS   = pod("gardener-extension-provider-local-coredns", "10.1.0.10", map[string]string{"app": "coredns"}, "")
		garden    = pod("garden", "10.1.0.11", map[string]string{"app": "prometheus"}, "garden")
		node      = party{address: "172.18.0.2"}
		tunnel    = party{address: "10.1.0.0"}
		balancer  = party{address: "172.18.255.130"}
		registry  = party{address: "172.18.255.1"}
		blocked   = party{address: "172.18.0.5"}
		internet  = party{address: "192.0.2.1"}
		internet6 = party{address: "2600::1"}
		refused   = party{address: "198.51.100.7"}
		metadata  = party{address: "169.254.169.254"}
		private   = party{address: "192.168.1.1"}
		mirror    = party{address: "192.168.7.9"}
		mirror6   = party{address: "fd00:7::9"}
		service   = party{address: "10.2.0.1"}
	)
	const tcp, udp, sctp = corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP

	for name, test := range map[string]struct {
		from, to party
		protocol corev1.Protocol
		port     int32
		allowed  bool
	}{
		"machines reach each other":                         {machineA, machineB, tcp, 10250, true},
		"machines reach each other by any protocol":         {machineA, machineB, udp, 4789, true},
		"machines of other shoots are out of reach":         {machineA, foreign, tcp, 10250, false},
		"machines of other shoots do not get in":            {foreign, machineA, tcp, 10250, false},
		"kube-apiserver reaches kubelets":                   {apiserver, machineA, tcp, 10250, true},
		"prometheus reaches exporters":                      {prometheus, machineA, tcp, 16909, true},
		"a control plane of another shoot does not":         {theirs, machineA, tcp, 10250, false},
		"nor does another pod of the namespace":             {stranger, machineA, tcp, 10250, false},
		"machines do not reach etcd":                        {machineA, etcd, tcp, 2379, false},
		"control planes do not reach each other by this":    {apiserver, etcd, tcp, 2379, false},
		"control planes do not reach the internet by this":  {apiserver, internet, tcp, 443, false},
		"garden's pods do not reach kubelets":               {garden, machineA, tcp, 10250, false},
		"machines do not reach garden's pods":               {machineA, garden, tcp, 9090, false},
		"clients reach node ports by TCP":                   {internet, machineA, tcp, 30000, true},
		"clients reach node ports by UDP":                   {internet6, machineA, udp, 32767, true},
		"clients reach node ports by SCTP":                  {internet, machineA, sctp, 30001, true},
		"clients reach nothing else":                        {internet, machineA, tcp, 29999, false},
		"nodes reach node ports":                            {node, machineA, tcp, 31000, true},
		"tunnels of nodes reach node ports":                 {tunnel, machineA, tcp, 31000, true},
		"nodes ask whether kube-proxy is healthy":           {node, machineA, tcp, 10256, true},
		"nodes do not reach kubelets":                       {node, machineA, tcp, 10250, false},
		"machines reach istio's gateways at their own port": {machineA, gateway, tcp, 9443, true},
		"machines reach gateways of exposure classes":       {machineA, exposure, tcp, 8132, true},
		"machines ask CoreDNS by UDP":                       {machineA, coreDNS, udp, 9053, true},
		"machines ask CoreDNS by TCP":                       {machineA, coreDNS, tcp, 9054, true},
		"machines do not reach CoreDNS otherwise":           {machineA, coreDNS, tcp, 9153, false},
		"machines reach the seed's nodes":                   {machineA, node, tcp, 443, true},
		"machines reach addresses of load balancers":        {machineA, balancer, tcp, 443, true},
		"machines reach the registry":                       {machineA, registry, tcp, 5001, true},
		"machines do not reach what the operator blocks":    {machineA, blocked, tcp, 443, false},
		"machines reach the internet":                       {machineA, internet, tcp, 443, true},
		"machines reach the internet by IPv6":               {machineA, internet6, tcp, 443, true},
		"machines do not reach blocked public addresses":    {machineA, refused, tcp, 443, false},
		"machines do not reach metadata":                    {machineA, metadata, tcp, 80, false},
		"machines do not reach other private networks":      {machineA, private, tcp, 443, false},
		"machines do not reach Services of the seed":        {machineA, service, tcp, 443, false},
		"machines reach what is configured":                 {machineA, mirror, tcp, 443, true},
		"machines reach what is configured for IPv6":        {machineA, mirror6, tcp, 443, true},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(allows(policies, test.from, test.to, test.protocol, test.port)).To(Equal(test.allowed))
		})
	}

	t.Run("bastions get in by SSH and nothing else", func(t *testing.T) {
		g := NewWithT(t)
		// What a bastion may send is up to the controller for Bastions.
		g.Expect(allows(inSeedDual().policies(), bastion, machineA, tcp, 22)).To(BeTrue())
		g.Expect(allows(inSeedDual().policies(), bastion, machineA, tcp, 10250)).To(BeFalse())
	})
	t.Run("pods that are neither machines nor of the control plane are not selected", func(t *testing.T) {
		NewWithT(t).Expect(allows(inSeedDual().policies(), stranger, internet, tcp, 443)).To(BeTrue())
	})
}

func TestElsewhereMachinesAreReachedFromTheSeed(t *testing.T) {
	policies := append(elsewhere().policies(), denyAll())
	var (
		machineA = pod("infra-"+namespace, "10.0.0.2", machine.Labels("a"), "infra")
		machineB = pod("infra-"+namespace, "10.0.0.3", machine.Labels("b"), "infra")
		other    = pod("infra-shoot--local--bar", "10.9.0.4", machine.Labels("c"), "infra")
		// In the other cluster the pods of the seed are addresses, and the other way round.
		apiserver = pod(namespace, "10.1.0.2", map[string]string{"gardener.cloud/role": "controlplane"}, "shoot")
		seedPod   = party{address: "10.1.0.2"}
		address   = party{address: "10.0.0.2"}
		resolver  = party{address: "10.96.0.10"}
		internet  = party{address: "192.0.2.1"}
		mcm       = pod(namespace, "10.1.0.3", gardenersPodLabels(t), "shoot")
		cloud     = pod(namespace, "10.1.0.4", map[string]string{"app.kubernetes.io/name": "cloud-controller", "gardener.cloud/role": "controlplane"}, "shoot")
		server    = party{address: "172.18.0.2"}
		node      = party{address: "172.18.0.200"}
	)
	const tcp, udp = corev1.ProtocolTCP, corev1.ProtocolUDP
	for name, test := range map[string]struct {
		from, to party
		protocol corev1.Protocol
		port     int32
		allowed  bool
	}{
		"machines reach each other":               {machineA, machineB, tcp, 10250, true},
		"other shoots' machines do not get in":    {other, machineA, tcp, 10250, false},
		"kube-apiserver may send to machines":     {apiserver, address, tcp, 10250, true},
		"what comes from the seed gets in":        {seedPod, machineA, tcp, 10250, true},
		"what comes from elsewhere does not":      {internet, machineA, tcp, 10250, false},
		"machines resolve names":                  {machineA, resolver, udp, 53, true},
		"machines reach nothing else of there":    {machineA, resolver, tcp, 443, false},
		"machines reach load balancers of a seed": {machineA, party{address: "172.18.255.1"}, tcp, 443, true},
		"machines reach the internet":             {machineA, internet, tcp, 443, true},
		"the driver reaches an allowed server":    {mcm, server, tcp, 6443, true},
		"the driver reaches another one":          {mcm, party{address: "10.64.1.1"}, tcp, 443, true},
		"the driver reaches no other address":     {mcm, node, tcp, 6443, false},
		"the driver reaches a server by TCP only": {mcm, server, udp, 53, false},
		"cloud-controller reaches the server":     {cloud, server, tcp, 6443, true},
		"cloud-controller reaches nothing else":   {cloud, node, tcp, 6443, false},
		"other components do not reach it":        {apiserver, server, tcp, 6443, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(allows(policies, test.from, test.to, test.protocol, test.port)).To(Equal(test.allowed))
		})
	}

	t.Run("what the operator blocks stays blocked", func(t *testing.T) {
		r := elsewhere()
		r.seed.blocked = prefixes("172.18.0.2/32", "10.64.0.0/16")
		NewWithT(t).Expect(allows(append(r.policies(), denyAll()), mcm, server, tcp, 6443)).To(BeFalse())
		r.seed.blocked = prefixes("172.16.0.0/12", "10.0.0.0/8")
		NewWithT(t).Expect(r.serverPolicies()).To(And(HaveLen(2), HaveEach(HaveField("Spec.Egress", BeEmpty()))), "one that was opened before closes; an empty list would be everywhere")
	})
	t.Run("nothing is opened for machines in the seed, or without a list", func(t *testing.T) {
		r := elsewhere()
		r.servers = nil
		NewWithT(t).Expect(r.serverPolicies()).To(HaveEach(HaveField("Spec.Egress", BeEmpty())))
		r = inSeed()
		r.servers = prefixes("172.18.0.0/28")
		NewWithT(t).Expect(r.serverPolicies()).To(BeEmpty())
	})
}

// gardenersPodLabels are those of the pods of machine-controller-manager.
func gardenersPodLabels(t *testing.T) map[string]string {
	t.Helper()
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(kubernetes.SeedScheme).WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "generic-token-kubeconfig"}},
	).Build()
	g.Expect(machinecontrollermanager.New(c, namespace, secretsmanager.New(c, namespace), machinecontrollermanager.Values{Image: "mcm", Replicas: 1}).Deploy(t.Context())).To(Succeed())
	deployment := &appsv1.Deployment{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "machine-controller-manager"}, deployment)).To(Succeed())
	return deployment.Spec.Template.Labels
}

func TestElsewhereTheRangeOfNodesOpensNothingThatTheOperatorBlocks(t *testing.T) {
	g := NewWithT(t)
	r := elsewhere()
	r.nodes, r.seed.blocked, r.servers = prefixes("10.0.0.0/16"), prefixes("10.0.7.0/24"), nil
	apiserver := pod(namespace, "10.1.0.2", map[string]string{"gardener.cloud/role": "controlplane"}, "shoot")
	policies := append(r.policies(), denyAll())
	g.Expect(allows(policies, apiserver, party{address: "10.0.0.2"}, corev1.ProtocolTCP, 443)).To(BeTrue())
	g.Expect(allows(policies, apiserver, party{address: "10.0.7.2"}, corev1.ProtocolTCP, 443)).To(BeFalse())

	r.nodes = prefixes("10.0.7.0/25")
	g.Expect(r.policies()[1:]).To(HaveEach(HaveField("Spec.Egress", BeEmpty())))

	// Gardener lets the nodes of a shoot have addresses of the seed.
	r.nodes, r.seed.blocked = prefixes("10.0.0.0/12"), nil
	policies = append(r.policies(), denyAll())
	g.Expect(allows(policies, apiserver, party{address: "10.0.7.2"}, corev1.ProtocolTCP, 443)).To(BeTrue())
	for _, address := range []string{"10.1.77.7", "10.2.0.1"} {
		g.Expect(allows(policies, apiserver, party{address: address}, corev1.ProtocolTCP, 443)).To(BeFalse(), address)
	}
	r.nodes = prefixes("10.1.0.0/17")
	g.Expect(allows(append(r.policies(), denyAll()), apiserver, party{address: "10.1.77.7"}, corev1.ProtocolTCP, 443)).To(BeFalse())
}

func TestAddressesOfASeedThatArePublicAreNotTheInternet(t *testing.T) {
	g := NewWithT(t)
	r := inSeedV6()
	machineA := pod(namespace, "fd00:10:1:100::2", machine.Labels("a"), "shoot")
	g.Expect(allows(r.policies(), machineA, party{address: "2600::1"}, corev1.ProtocolTCP, 443)).To(BeTrue())
	g.Expect(allows(r.policies(), machineA, party{address: "2001:db8:1::1"}, corev1.ProtocolTCP, 443)).To(BeFalse(), "a pod")
	g.Expect(allows(r.policies(), machineA, party{address: "2001:db8::1"}, corev1.ProtocolTCP, 443)).To(BeTrue(), "a node")
}

func TestWithoutASeedThereIsNoPolicyBesideTheMachines(t *testing.T) {
	g := NewWithT(t)
	for _, policy := range withoutSeed().policies() {
		g.Expect(policy.Namespace).To(Equal("infra-kube-system"))
	}
	r := elsewhere()
	r.nodes, r.servers = nil, nil
	g.Expect(r.policies()[1:]).To(HaveEach(HaveField("Spec.Egress", BeEmpty())), "a control plane may reach nothing if it is not known where the machines are")
}

func TestTheRangesOfASeed(t *testing.T) {
	g := NewWithT(t)
	g.Expect(seedRangesOf(nil)).To(BeNil())

	seed := &gardencorev1beta1.Seed{Spec: gardencorev1beta1.SeedSpec{Networks: gardencorev1beta1.SeedNetworks{
		Nodes: new("172.18.0.0/24"), Pods: "10.1.0.0/16", Services: "10.2.0.0/16", BlockCIDRs: []string{"169.254.169.254/32"},
	}}}
	g.Expect(seedRangesOf(seed)).To(Equal(&seedRanges{
		nodes: prefixes("172.18.0.0/24"), pods: prefixes("10.1.0.0/16"), services: prefixes("10.2.0.0/16"), blocked: prefixes("169.254.169.254/32"),
	}))
	seed.Spec.Networks.Nodes = nil
	ranges, err := seedRangesOf(seed)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ranges.nodes).To(BeEmpty())
	seed.Spec.Networks.Pods = "nonsense"
	_, err = seedRangesOf(seed)
	g.Expect(err).To(MatchError(`"nonsense" is no CIDR`))
}
