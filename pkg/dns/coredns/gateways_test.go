// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

func TestFindReturnsTheGatewayThatServesAllOfAName(t *testing.T) {
	dual := service("istio-ingress", "dual", "172.18.255.1", "10.4.0.1", "fd00::1")
	dual.Status.LoadBalancer.Ingress = append(dual.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: "2001:DB8:0::1"}, corev1.LoadBalancerIngress{Hostname: "LB.example.org"})
	single := service("istio-ingress", "single", "172.18.255.2", "10.4.0.2")
	single.Status.LoadBalancer.Ingress = append(single.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: "2001:db8::2"})
	mapped := service("istio-ingress", "mapped", "::ffff:172.18.255.6", "10.4.0.6")
	later := service("z", "same-address", "172.18.255.2", "10.4.0.3")
	headless := service("istio-ingress", "headless", "172.18.255.4", "None")
	clusterIP := service("istio-ingress", "cluster-ip", "172.18.255.5", "10.4.0.5")
	clusterIP.Spec.Type = corev1.ServiceTypeClusterIP

	found := newGateways(seedGateways)
	for _, s := range []*corev1.Service{later, dual, single, mapped, headless, clusterIP} {
		found.set(gatewayOf(s))
	}

	a := func(values ...string) dns.Record { return dns.Record{Type: "A", Values: values} }
	aaaa := func(values ...string) dns.Record { return dns.Record{Type: "AAAA", Values: values} }
	for _, test := range []struct {
		name     string
		records  []dns.Record
		expected string
	}{
		{"one address", []dns.Record{a("172.18.255.1")}, "dual"},
		{"both families", []dns.Record{a("172.18.255.1"), aaaa("2001:db8::1")}, "dual"},
		{"a host name", []dns.Record{{Type: "CNAME", Values: []string{"lb.example.org"}}}, "dual"},
		{"an IPv4 address in the form of IPv6", []dns.Record{a("172.18.255.6")}, "mapped"},
		{"two that share an address", []dns.Record{a("172.18.255.2")}, "single"},
		{"no address of the family in the cluster", []dns.Record{aaaa("2001:db8::2")}, ""},
		{"one address of another gateway", []dns.Record{a("172.18.255.1", "172.18.255.2")}, ""},
		{"one address of none", []dns.Record{a("172.18.255.1", "192.0.2.1")}, ""},
		{"text beside", []dns.Record{a("172.18.255.1"), {Type: "TXT", Values: []string{"x"}}}, ""},
		{"a headless Service", []dns.Record{a("172.18.255.4")}, ""},
		{"a Service of another type", []dns.Record{a("172.18.255.5")}, ""},
		{"nothing", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			result, ok := found.find(test.records)
			g.Expect(ok).To(Equal(test.expected != ""))
			g.Expect(result.service.Name).To(Equal(test.expected))
		})
	}
}

func TestGatewaysTellWhichAddressesChanged(t *testing.T) {
	g := NewWithT(t)
	found := newGateways(seedGateways)
	s := service("istio-ingress", "gateway", "172.18.255.1", "10.4.0.1")
	g.Expect(found.set(gatewayOf(s))).To(ConsistOf("172.18.255.1"))
	g.Expect(found.set(gatewayOf(s))).To(BeEmpty(), "nothing changed")
	s.Status.LoadBalancer.Ingress[0].IP = "172.18.255.2"
	g.Expect(found.set(gatewayOf(s))).To(ConsistOf("172.18.255.1", "172.18.255.2"))
	s.Spec.ClusterIPs = []string{"10.4.0.9"}
	g.Expect(found.set(gatewayOf(s))).To(ConsistOf("172.18.255.2"))
	s.DeletionTimestamp = new(metav1.Now())
	g.Expect(found.set(gatewayOf(s))).To(ConsistOf("172.18.255.2"))
	g.Expect(found.services).To(BeEmpty())
}

func TestTheCacheKeepsOfAServiceWhatMakesItAGateway(t *testing.T) {
	g := NewWithT(t)
	s := service("istio-ingress", "gateway", "172.18.255.1", "10.4.0.1")
	s.Annotations = map[string]string{"large": "annotation", loadbalancer.AnnotationInstance: "namespace"}
	s.Labels, s.Spec.Selector = map[string]string{"large": "label"}, map[string]string{"app": "gateway"}
	stripped, err := stripService(s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(gatewayOf(stripped.(*corev1.Service))).To(Equal(gatewayOf(s)))
	g.Expect(stripped).To(And(HaveField("Annotations", HaveLen(1)), HaveField("Labels", BeEmpty()), HaveField("Spec.Selector", BeEmpty())))
}

// inZones is the Namespace of a control plane.
func inZones(name, zones string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{resourcesv1alpha1.HighAvailabilityConfigZones: zones}}}
}

// ofShoot is a record in the namespace of a shoot's control plane.
func ofShoot(shoot, name string, values ...string) dns.Record {
	out := record("record", name, "A", values...)
	out.Owner.Namespace = shoot
	return out
}

// seedClasses makes a Provider one of a seed.
func seedClasses(g Gomega) func(*Options) {
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"seed", "shoot"}, "seed", "shoot")
	g.Expect(err).NotTo(HaveOccurred())
	return func(o *Options) { o.Place, o.Classes = "seed", classes }
}

// listing are informers that tell of objects when they are asked for, as real ones do at a start.
type listing struct {
	*cluster
	objects []client.Object
}

func (l listing) GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := l.cluster.GetInformer(ctx, object, options...)
	if err != nil {
		return nil, err
	}
	out := listed{Informer: informer}
	for _, known := range l.objects {
		if fmt.Sprintf("%T", known) == fmt.Sprintf("%T", object) {
			out.objects = append(out.objects, known)
		}
	}
	return out, nil
}

type listed struct {
	cache.Informer
	objects []client.Object
}

func (l listed) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	for _, object := range l.objects {
		handler.OnAdd(object, true)
	}
	return l.Informer.AddEventHandler(handler)
}

func TestSingleZone(t *testing.T) {
	for _, test := range []struct{ name, zones, expected string }{
		{"no annotation", "", ""},
		{"one zone", "1", "1"},
		{"one zone, given twice and with commas around", ",1,1,", "1"},
		{"several zones", "0,1", ""},
		{"several zones, one of them again", "0,1,0", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			NewWithT(t).Expect(singleZone(inZones("shoot", test.zones))).To(Equal(test.expected))
		})
	}
	NewWithT(t).Expect(singleZone(&corev1.Namespace{})).To(BeEmpty())
}

func TestFindTellsGatewaysThatShareAnAddressApart(t *testing.T) {
	const address = "172.18.255.1"
	gateway := types.NamespacedName{Namespace: "istio-ingress", Name: "istio-ingressgateway"}
	zone1 := types.NamespacedName{Namespace: "istio-ingress--1", Name: "istio-ingressgateway"}
	nginx := types.NamespacedName{Namespace: "garden", Name: "nginx-ingress-controller"}
	another := types.NamespacedName{Namespace: "another", Name: "gateway"}
	all := []types.NamespacedName{another, nginx, gateway, zone1}

	ingress := ofShoot("shoot--zone-1", "plain.ingress.local.gardener.cloud", address)
	ingress.Ingress = true

	for _, test := range []struct {
		name     string
		record   dns.Record
		among    []types.NamespacedName
		expected types.NamespacedName
	}{
		{"the zone of a control plane in one zone", ofShoot("shoot--zone-1", "api.a.local.gardener.cloud", address), all, zone1},
		{"a zone without a gateway", ofShoot("shoot--zone-2", "api.a.local.gardener.cloud", address), all, gateway},
		{"a control plane in several zones", ofShoot("shoot--ha", "api.a.local.gardener.cloud", address), all, gateway},
		{"a namespace without zones", ofShoot("garden", "api.a.local.gardener.cloud", address), all, gateway},
		{"a wildcard", ofShoot("garden", "*.ingress.local.gardener.cloud", address), all, nginx},
		{"a wildcard without an Ingress controller at this address", ofShoot("garden", "*.ingress.local.gardener.cloud", address), []types.NamespacedName{another, gateway, zone1}, gateway},
		{"an Ingress", ingress, all, nginx},
		{"an Ingress without an Ingress controller at this address", ingress, []types.NamespacedName{another, gateway, zone1}, zone1},
		{"none that is known", ofShoot("garden", "api.a.local.gardener.cloud", address), []types.NamespacedName{{Namespace: "z", Name: "gateway"}, another}, another},
		{"two in the zone's namespace", ofShoot("shoot--zone-1", "api.a.local.gardener.cloud", address), []types.NamespacedName{{Namespace: "istio-ingress--1", Name: "z"}, zone1}, zone1},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			found := newGateways(seedGateways)
			for namespace, zones := range map[string]string{"shoot--zone-1": "1", "shoot--zone-2": "2", "shoot--ha": "0,1,2"} {
				found.setZone(namespace, singleZone(inZones(namespace, zones)))
			}
			for _, key := range test.among {
				found.set(gatewayOf(service(key.Namespace, key.Name, address, "10.4.0.1")))
			}
			result, ok := found.find([]dns.Record{test.record})
			g.Expect(ok).To(BeTrue())
			g.Expect(result.service).To(Equal(test.expected))
		})
	}
}

func TestADistinctAddressCountsMoreThanAZone(t *testing.T) {
	g := NewWithT(t)
	found := newGateways(seedGateways)
	found.setZone("shoot--zone-1", "1")
	found.set(gatewayOf(service("istio-ingress--1", "istio-ingressgateway", "172.18.255.11", "10.4.0.11")))
	found.set(gatewayOf(service("istio-ingress", "istio-ingressgateway", "172.18.255.1", "10.4.0.10")))
	result, ok := found.find([]dns.Record{ofShoot("shoot--zone-1", "api.a.local.gardener.cloud", "172.18.255.1")})
	g.Expect(ok).To(BeTrue())
	g.Expect(result.service.Namespace).To(Equal("istio-ingress"))
}

func TestAGardensRecordsPreferItsOwnGateway(t *testing.T) {
	g := NewWithT(t)
	c := newCluster()
	p := newProvider(t, c)
	g.Eventually(p.started).Should(BeClosed())
	for _, namespace := range []string{"istio-ingress", "virtual-garden-istio-ingress"} {
		c.tell(service(namespace, "istio-ingressgateway", gatewayIP, "10.4.0.10"), false)
	}
	result, ok := p.gateways.find([]dns.Record{record("api", "api.virtual-garden.local.gardener.cloud", "A", gatewayIP)})
	g.Expect(ok).To(BeTrue())
	g.Expect(result.service.Namespace).To(Equal("virtual-garden-istio-ingress"))
}

func TestRecordsFollowTheZoneOfTheirNamespace(t *testing.T) {
	g := NewWithT(t)
	all := service("istio-ingress", "istio-ingressgateway", gatewayIP, "10.4.0.10")
	zone1 := service("istio-ingress--1", "istio-ingressgateway", gatewayIP, "10.4.0.11")
	zone2 := service("istio-ingress--2", "istio-ingressgateway", gatewayIP, "10.4.0.12")
	c := newCluster(all, zone1, zone2)
	p := newProvider(t, c, seedClasses(g))
	g.Eventually(p.started).Should(BeClosed())
	for _, s := range []*corev1.Namespace{inZones("shoot--a", "1"), inZones("shoot--b", "2")} {
		c.tell(s, false)
	}
	c.tell(all, false)
	c.tell(zone1, false)
	c.tell(zone2, false)

	leadsTo := func(namespace string) {
		t.Helper()
		g.Eventually(func() string { return c.data(g)["api.a.local.gardener.cloud.override"] }).Should(ContainSubstring(" istio-ingressgateway." + namespace + ".svc."))
		g.Expect(c.data(g)).To(HaveKeyWithValue("api.b.local.gardener.cloud.override", ContainSubstring(" istio-ingressgateway.istio-ingress--2.svc.")))
	}
	g.Expect(p.apply(ctx, ofShoot("shoot--b", "api.b.local.gardener.cloud", gatewayIP))).To(Succeed())
	g.Expect(p.apply(ctx, ofShoot("shoot--a", "api.a.local.gardener.cloud", gatewayIP))).To(Succeed(), "both views are confirmed")
	leadsTo("istio-ingress--1")

	c.tell(inZones("shoot--a", "0,1,2"), false)
	leadsTo("istio-ingress")
	c.tell(inZones("shoot--a", "1"), false)
	leadsTo("istio-ingress--1")
	c.tell(zone1, true)
	leadsTo("istio-ingress")
	c.tell(zone1, false)
	leadsTo("istio-ingress--1")
	c.tell(inZones("shoot--a", "1"), true)
	leadsTo("istio-ingress")
	c.tell(inZones("shoot--c", "1"), false)

	before := c.writes.count()
	c.tell(inZones("shoot--b", "2"), false)
	g.Consistently(c.writes.count, "50ms").Should(Equal(before), "nothing changed")
}

func TestARestartKnowsTheZonesBeforeItWrites(t *testing.T) {
	g := NewWithT(t)
	listed := []client.Object{
		inZones("shoot--a", "1"),
		service("istio-ingress", "istio-ingressgateway", gatewayIP, "10.4.0.10"),
		service("istio-ingress--1", "istio-ingressgateway", gatewayIP, "10.4.0.11"),
	}
	object := dnsRecord("a", "api.a.local.gardener.cloud", gatewayIP)
	object.Namespace, object.Spec.Class = "shoot--a", nil
	wanted, err := dns.New(object, []string{testZone}, 120)
	g.Expect(err).NotTo(HaveOccurred())
	c := newCluster(listed[1], listed[2], object)
	start := func() *environment {
		p := newProvider(t, c, seedClasses(g), func(o *Options) { o.Cache = listing{c, listed} })
		g.Eventually(p.started).Should(BeClosed())
		return p
	}

	first := start()
	g.Expect(first.apply(ctx, wanted)).To(Succeed())
	g.Expect(c.data(g)).To(HaveKeyWithValue("api.a.local.gardener.cloud.override", ContainSubstring("istio-ingress--1.svc.")))
	first.stop()

	before := c.writes.count()
	second := start()
	g.Expect(second.apply(ctx, wanted)).To(Succeed())
	g.Expect(c.writes.count()).To(Equal(before), "it finds everything as it would write it")
}

func TestAnInstanceWithoutShootsDoesNotReadNamespaces(t *testing.T) {
	g := NewWithT(t)
	c := newCluster()
	delete(c.informers, fmt.Sprintf("%T", &corev1.Namespace{}))
	p := newProvider(t, c)
	g.Eventually(p.started).Should(BeClosed())
}
