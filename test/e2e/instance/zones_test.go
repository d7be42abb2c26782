// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
	"github.com/gardener/gardener-extension-provider-local/test/probe"
)

const (
	gatewayNamespace = "istio-ingress"
	gatewayName      = "istio-ingressgateway"
)

var (
	current = landscape.CurrentNetwork()
	// hostAddress is what the gateway has whose namespace is that of no zone, and zoneAddresses those of the zones.
	hostAddress   = current.Translate("172.18.255.1")
	zoneAddresses = []string{current.Translate("172.18.255.10"), current.Translate("172.18.255.11"), current.Translate("172.18.255.12")}
)

var _ = Describe("A seed with one zone", Ordered, Serial, func() {
	const shoot = "shoot--e2e--single"
	var service *corev1.Service

	BeforeAll(func(ctx SpecContext) {
		service = gateways(ctx, []string{gatewayNamespace}, []string{hostAddress})[0]
		createShoots(ctx, map[string][]string{shoot: {"0"}})
		deployAPIServer(ctx, shoot, service)
		deployIngressDomain(ctx, service)
	})

	It("has its gateway at the address of the host, and at the node port that others know", func(ctx SpecContext) {
		expectGateway(ctx, service, 30433)
	})

	It("serves the API server of a shoot to pods and to the host", func(ctx SpecContext) {
		for _, name := range apiServerNames(shoot) {
			expectServed(ctx, name, service)
		}
	})

	It("serves names of its ingress domain to pods and to the host", func(ctx SpecContext) {
		expectServed(ctx, "gu-single--e2e."+ingressZone, service)
	})
})

var _ = Describe("A seed with three zones", Ordered, Serial, func() {
	// The gateways of zones are known by address and by node port.
	namespaces := []string{gatewayNamespace + "--0", gatewayNamespace + "--1", gatewayNamespace + "--2", gatewayNamespace}
	addresses := append(slices.Clone(zoneAddresses), hostAddress)
	ports := []int32{30434, 30435, 30436, 30433}
	shoots := []string{"shoot--e2e--zone0", "shoot--e2e--zone1", "shoot--e2e--zone2", "shoot--e2e--zones"}
	var services []*corev1.Service

	BeforeAll(func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) { l.Deploy(ctx, "0") })
		l.Deploy(ctx, "0", "1", "2")
		services = gateways(ctx, namespaces, addresses)
		createShoots(ctx, map[string][]string{shoots[0]: {"0"}, shoots[1]: {"1"}, shoots[2]: {"2"}, shoots[3]: {"0", "1", "2"}})
		for i, shoot := range shoots {
			deployAPIServer(ctx, shoot, services[i])
		}
		deployIngressDomain(ctx, services[3])
	})

	It("has a gateway in each, with an address and a node port of its own", func(ctx SpecContext) {
		for i, service := range services {
			expectGateway(ctx, service, ports[i])
		}
	})

	It("serves each API server to pods and to the host by the gateway of its zone", func(ctx SpecContext) {
		for i := range 3 {
			for _, name := range apiServerNames(shoots[i]) {
				expectServed(ctx, name, services[i])
			}
		}
	})

	It("serves an API server that is in all of them, and the ingress domain, by the gateway of none", func(ctx SpecContext) {
		for _, name := range append(apiServerNames(shoots[3]), "gu-zones--e2e."+ingressZone) {
			expectServed(ctx, name, services[3])
		}
	})
})

// apiServerNames are the internal and the external name of a shoot's API server.
func apiServerNames(shootNamespace string) []string {
	project, shoot, _ := strings.Cut(strings.TrimPrefix(shootNamespace, "shoot--"), "--")
	domain := "." + shoot + "." + project
	return []string{"api" + domain + ".internal.local.gardener.cloud", "api" + domain + ".external.local.gardener.cloud"}
}

// deployAPIServer makes the DNSRecords of a shoot's API server, with the address of its gateway.
func deployAPIServer(ctx context.Context, shootNamespace string, service *corev1.Service) {
	GinkgoHelper()
	_, shoot, _ := strings.Cut(strings.TrimPrefix(shootNamespace, "shoot--"), "--")
	names := apiServerNames(shootNamespace)
	deployRecord(ctx, shootNamespace, shoot+"-internal", names[0], addressOf(service))
	deployRecord(ctx, shootNamespace, shoot+"-external", names[1], addressOf(service))
}

// deployIngressDomain makes the DNSRecord of all Ingresses in the seed. gardenlet gives it the address of the gateway that is
// before the Ingress controller.
func deployIngressDomain(ctx context.Context, service *corev1.Service) {
	GinkgoHelper()
	deployRecord(ctx, gardenNamespace, "seed-ingress", "*."+ingressZone, addressOf(service))
}

// expectGateway expects that a gateway answers where it is expected without any name: at its address, from pods and from the
// host, and at its node port.
func expectGateway(ctx context.Context, service *corev1.Service, nodePort int32) {
	GinkgoHelper()
	Eventually(get(ctx, service)).Should(WithTransform(nodePorts, HaveKeyWithValue(int32(443), nodePort)))
	Expect(service.Status.LoadBalancer.Ingress).To(ConsistOf(HaveField("IPMode", HaveValue(Equal(corev1.LoadBalancerIPModeVIP)))))
	address := net.JoinHostPort(addressOf(service), "443")
	onNode := net.JoinHostPort(nodeAddress(ctx), strconv.Itoa(int(nodePort)))
	Eventually(func(g Gomega) {
		g.Expect(probe.Fetch(ctx, "https://"+address, "")).To(isAnsweredBy(service), "the host, by the address")
		g.Expect(probe.Fetch(ctx, "https://"+onNode, "")).To(isAnsweredBy(service), "the host, by the node port")
		g.Expect(podFetches(ctx, "https://"+address, "")).To(isAnsweredBy(service), "a pod")
	}).Should(Succeed(), "kube-proxy takes over what is new in a moment")
}

// expectServed expects that a name, whose record has succeeded, leads to a gateway at once, whoever asks.
func expectServed(ctx context.Context, name string, service *corev1.Service) {
	GinkgoHelper()
	By(name)
	external, internal := addressOf(service), service.Spec.ClusterIP
	coreDNS := coreDNSAddress(ctx)
	Expect(podResolves(ctx, "udp", coreDNS, name)).To(ConsistOf(internal), "a pod that asks CoreDNS")
	Eventually(func() ([]string, error) { return podResolves(ctx, "", "", name) }).Should(ConsistOf(internal),
		"a pod that asks the cluster's DNS, which may remember what was before for a few seconds")
	Expect(matchers.Resolve(ctx, "tcp", coreDNS, name, dns.TypeA)).To(ConsistOf(external), "the host that asks CoreDNS by TCP")
	for _, server := range []string{landscape.HostDNS(), hostDNSAddress(ctx)} {
		for _, network := range []string{"udp", "tcp"} {
			Expect(matchers.Resolve(ctx, network, server, name, dns.TypeA)).To(ConsistOf(external), "the host that asks %s by %s", server, network)
		}
	}

	url := "https://" + name + "/"
	fromOutside := net.JoinHostPort(external, "443")
	Eventually(func(g Gomega) {
		g.Expect(podFetches(ctx, url, "")).To(And(isAnsweredBy(service), HaveField("ServerName", name)), "a pod")
		g.Expect(podFetches(ctx, url, fromOutside)).To(isAnsweredBy(service), "a pod that knows the address of the host")
		g.Expect(probe.Fetch(ctx, url, fromOutside)).To(And(isAnsweredBy(service), HaveField("ServerName", name)), "the host")
	}).Should(Succeed(), "kube-proxy takes over what is new in a moment")
}

// isAnsweredBy matches what the stand-in behind a Service says.
func isAnsweredBy(service *corev1.Service) OmegaMatcher {
	return HaveField("Name", service.Namespace+"/"+service.Name)
}
