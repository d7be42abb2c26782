// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	miekgdns "github.com/miekg/dns"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

func TestApplyWritesARecordAndItsRewriteToTheGateway(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(service("istio-ingress", "istio-ingressgateway", gatewayIP, "10.4.0.10"))
	p := newProvider(t, c)
	g.Eventually(p.started).Should(BeClosed())
	c.tellServices(g)

	g.Expect(p.apply(ctx, record("api", "api.local.gardener.cloud", "A", gatewayIP))).To(Succeed())
	g.Expect(p.apply(ctx, record("plain", "plain.local.gardener.cloud", "A", "192.0.2.9"))).To(Succeed())
	g.Expect(p.apply(ctx, record("ingress", "*.ingress.local.gardener.cloud", "A", gatewayIP))).To(Succeed())

	g.Expect(c.data(g)).To(Equal(map[string]string{
		"api.local.gardener.cloud.override":              rewriteLine,
		"WILDCARD.ingress.local.gardener.cloud.override": `rewrite stop name regex ^.+\.ingress\.local\.gardener\.cloud\.$ istio-ingressgateway.istio-ingress.svc.cluster.local answer auto` + "\n",
		"local.gardener.cloud.zone":                      "*.ingress.local.gardener.cloud.\t120\tIN\tA\t172.18.255.1\napi.local.gardener.cloud.\t120\tIN\tA\t172.18.255.1\nplain.local.gardener.cloud.\t120\tIN\tA\t192.0.2.9\n",
	}))
	g.Expect(c.configMaps(g)).To(ConsistOf(And(
		HaveField("Name", "coredns-custom-garden-0"),
		HaveField("Labels", map[string]string{LabelConfig: "true", LabelInstance: "garden"}),
		HaveField("OwnerReferences", ConsistOf(metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "extension-garden", UID: "garden-uid"})),
	)))
}

// TestPodsOutsideOfTheClientNetworksHoldUpNoRecord has a server that can't look a gateway up for its clients.
func TestPodsOutsideOfTheClientNetworksHoldUpNoRecord(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(service("istio-ingress", "istio-ingressgateway", gatewayIP, "10.4.0.10"))
	p := newProvider(t, c, func(o *Options) { o.DNS.CoreDNS.ConfirmTimeout.Duration = 200 * time.Millisecond })
	g.Eventually(p.started).Should(BeClosed())
	c.tellServices(g)
	p.server.wrong = gatewayIP
	g.Expect(p.apply(ctx, record("api", "api.local.gardener.cloud", "A", gatewayIP))).To(Succeed())
	g.Expect(c.data(g)).To(HaveKey("api.local.gardener.cloud.override"), "others get the gateway's")
	p.server.wrong = "198.51.100.1"
	g.Expect(p.apply(ctx, record("other", "other.local.gardener.cloud", "A", gatewayIP))).NotTo(Succeed())
}

// tellServices has the informer tell of all Services.
func (c *cluster) tellServices(g Gomega) {
	list := &corev1.ServiceList{}
	g.Expect(c.List(ctx, list)).To(Succeed())
	for i := range list.Items {
		c.tell(&list.Items[i], false)
	}
}

func TestApplyAgainWritesNothing(t *testing.T) {
	g := NewWithT(t)
	p := newProvider(t, newCluster())
	g.Expect(p.apply(ctx, record("a", "a.local.gardener.cloud", "A", "192.0.2.1"))).To(Succeed())
	before := p.cluster.writes.count()
	g.Expect(p.apply(ctx, record("a", "a.local.gardener.cloud", "A", "192.0.2.1"))).To(Succeed())
	g.Expect(p.cluster.writes.count()).To(Equal(before))
}

func TestManyChangesAreFewWrites(t *testing.T) {
	g := NewWithT(t)
	p := newProvider(t, newCluster(), func(o *Options) { o.DNS.CoreDNS.BatchWindow.Duration = 100 * time.Millisecond })
	var group sync.WaitGroup
	errs := make(chan error, 50)
	for i := range 50 {
		group.Go(func() {
			errs <- p.apply(ctx, record(strconv.Itoa(i), fmt.Sprintf("n%d.local.gardener.cloud", i), "A", "192.0.2.1"))
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(p.cluster.writes.count()).To(BeNumerically("<=", 3))
}

func TestApplyFailsAsLongAsTheRecordDoesNotResolve(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*environment)
		says  []string
	}{
		{"no answer", func(e *environment) { e.server.failure = errors.New("connection refused") }, []string{"192.0.2.53:53", "connection refused"}},
		{"a server that is behind", func(e *environment) { e.server.behind = true }, []string{"does not serve ConfigMap coredns-custom-garden-0 as it is yet", "older generation"}},
		{"another answer", func(e *environment) { e.server.wrong = "198.51.100.1" }, []string{"asking server 192.0.2.53:53 for a.local.gardener.cloud A by tcp: expected 192.0.2.1, got 198.51.100.1"}},
		{"no write", func(e *environment) { e.cluster.writes.fail(errAPI) }, []string{"writing A record a.local.gardener.cloud", errAPI.Error()}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			p := newProvider(t, newCluster(), func(o *Options) { o.DNS.CoreDNS.ConfirmTimeout.Duration = time.Second })
			g.Eventually(p.started).Should(BeClosed())
			p.server.set(func(*server) { test.spoil(p) })

			err := p.apply(ctx, record("a", "a.local.gardener.cloud", "A", "192.0.2.1"))
			for _, says := range test.says {
				g.Expect(err).To(MatchError(ContainSubstring(says)))
			}

			// It stays wanted: once whatever it was is over, the same call succeeds.
			p.server.set(func(s *server) { s.failure, s.wrong, s.behind = nil, "", false })
			p.cluster.writes.fail(nil)
			g.Eventually(func() error { return p.apply(ctx, record("a", "a.local.gardener.cloud", "A", "192.0.2.1")) }).WithTimeout(10 * time.Second).Should(Succeed())
		})
	}
}

func TestApplyReplacesWhatTheOwnerHad(t *testing.T) {
	g := NewWithT(t)
	p := newProvider(t, newCluster())
	g.Expect(p.apply(ctx, record("a", "a.local.gardener.cloud", "A", "192.0.2.1"))).To(Succeed())
	g.Expect(p.apply(ctx, record("a", "b.local.gardener.cloud", "TXT", `say "hi" \ é`))).To(Succeed())
	g.Expect(p.cluster.data(g)).To(HaveKeyWithValue("local.gardener.cloud.zone", "b.local.gardener.cloud.\t120\tIN\tTXT\t\"say \\\"hi\\\" \\\\ \\195\\169\"\n"))
}

func TestRemoveLeavesWhatTheSameHolderHasOfTheSameName(t *testing.T) {
	g := NewWithT(t)
	p := newProvider(t, newCluster())
	first, second := record("first", "a.local.gardener.cloud", "A", "192.0.2.1"), record("second", "a.local.gardener.cloud", "A", "192.0.2.2")
	second.Created = first.Created.Add(time.Hour)

	g.Expect(p.apply(ctx, first)).To(Succeed())
	g.Expect(p.apply(ctx, second)).To(Succeed(), "the newest has the name")
	var conflict *dns.ConflictError
	g.Expect(errors.As(p.apply(ctx, first), &conflict)).To(BeTrue())
	g.Expect(conflict).To(MatchError(ContainSubstring("because of DNSRecord garden/second:")))

	g.Expect(p.remove(ctx, second.Owner)).To(Succeed())
	g.Expect(p.cluster.data(g)).To(HaveKeyWithValue("local.gardener.cloud.zone", ContainSubstring("192.0.2.1")))
	g.Expect(p.apply(ctx, first)).To(Succeed())
	g.Expect(p.remove(ctx, first.Owner)).To(Succeed())
	g.Expect(p.cluster.configMaps(g)).To(BeEmpty(), "nothing is left")
	g.Expect(p.remove(ctx, first.Owner)).To(Succeed(), "nothing to remove is no error")
}

// of returns a record of another holder, created so many hours later.
func of(class extensionsv1alpha1.ExtensionClass, namespace string, hours int, record dns.Record) dns.Record {
	record.Class, record.Owner.Namespace = class, namespace
	record.Created = record.Created.Add(time.Duration(hours) * time.Hour)
	return record
}

func TestANameIsNotTakenOver(t *testing.T) {
	const (
		garden, seed, shoot = extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot
		name                = "x.ingress.local.gardener.cloud"
	)
	address, other := record("holds", name, "A", "192.0.2.1"), record("wanted", name, "A", "203.0.113.66")
	wildcard := record("record", "*.ingress.local.gardener.cloud", "A", "192.0.2.1")
	below := record("record", "*.ingress.x.ingress.local.gardener.cloud", "A", "203.0.113.66")
	for _, test := range []struct {
		name          string
		holds, wanted dns.Record
		says          string
	}{
		{"of a seed, by a shoot that is newer", of(seed, "garden", 0, address), of(shoot, "shoot--p--a", 1, other), "a seed"},
		{"of a seed, by a shoot that is older", of(seed, "garden", 1, address), of(shoot, "shoot--p--a", 0, other), "a seed"},
		{"of the garden, by a shoot", of(garden, "garden", 1, address), of(shoot, "shoot--p--a", 0, other), "the garden"},
		{"of the garden, by a seed", of(garden, "garden", 1, address), of(seed, "garden", 0, other), "the garden"},
		{"of a shoot, by a newer one", of(shoot, "shoot--p--b", 0, address), of(shoot, "shoot--p--a", 1, other), "another shoot"},
		{"of a shoot, by one of the same age", of(shoot, "shoot--p--a", 0, address), of(shoot, "shoot--p--b", 0, other), "another shoot"},
		{"by another type", of(seed, "garden", 0, address), of(shoot, "shoot--p--a", 0, record("record", name, "AAAA", "2001:db8::66")), "a seed"},
		{"by an alias", of(seed, "garden", 1, address), of(shoot, "shoot--p--a", 0, record("record", name, "CNAME", "evil.example.org")), "a seed"},
		{"below the wildcard of the garden", of(garden, "garden", 1, wildcard), of(shoot, "shoot--p--a", 0, other), "the garden"},
		{"below the wildcard of a seed, by a wildcard", of(seed, "garden", 1, wildcard), of(shoot, "shoot--p--a", 0, below), "a seed"},
		{"below the wildcard of another shoot", of(shoot, "shoot--p--b", 0, wildcard), of(shoot, "shoot--p--a", 1, other), "another shoot"},
	} {
		for _, first := range []string{"holder", "newcomer"} {
			t.Run(test.name+", "+first+" first", func(t *testing.T) {
				g := NewWithT(t)
				p := newProvider(t, newCluster())
				if first == "newcomer" {
					g.Expect(p.apply(ctx, test.wanted)).To(Succeed(), "the name is free yet")
				}
				g.Expect(p.apply(ctx, test.holds)).To(Succeed())
				err := p.apply(ctx, test.wanted)
				g.Expect(err).To(MatchError(And(ContainSubstring("a DNSRecord of "+test.says), Not(ContainSubstring(test.holds.Owner.Namespace+"/")))))
				g.Expect(p.cluster.data(g)).To(HaveKeyWithValue("local.gardener.cloud.zone", And(ContainSubstring("192.0.2.1"), Not(ContainSubstring("66")), Not(ContainSubstring("evil")))))
				g.Expect(p.apply(ctx, test.holds)).To(Succeed())

				g.Expect(p.remove(ctx, test.holds.Owner)).To(Succeed())
				g.Expect(p.apply(ctx, test.wanted)).To(Succeed(), "the name is free again")
			})
		}
	}
}

func TestAHolderHasNamesBelowItsOwnWildcard(t *testing.T) {
	g := NewWithT(t)
	p := newProvider(t, newCluster())
	wildcard, host := record("wildcard", "*.ingress.local.gardener.cloud", "A", "192.0.2.1"), record("host", "x.ingress.local.gardener.cloud", "A", "192.0.2.2")
	g.Expect(p.apply(ctx, of("seed", "garden", 0, wildcard))).To(Succeed())
	g.Expect(p.apply(ctx, of("seed", "garden", 1, host))).To(Succeed())

	ofIngress := of("shoot", "shoot--p--a", 1, record("ingress", "gu.ingress.local.gardener.cloud", "A", "192.0.2.3"))
	ofIngress.Ingress = true
	g.Expect(p.apply(ctx, ofIngress)).To(Succeed(), "Gardener makes the Ingresses in the namespace of a shoot")
	g.Expect(p.cluster.data(g)).To(HaveKeyWithValue("local.gardener.cloud.zone", And(ContainSubstring("192.0.2.1"), ContainSubstring("192.0.2.2"), ContainSubstring("192.0.2.3"))))
}

func TestTheInstanceOfASeedLeavesTheNamesOfTheGardenAlone(t *testing.T) {
	seed := func(o *Options) {
		classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"seed", "shoot"}, "seed", "shoot")
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		o.Place, o.Classes = "seed", classes
	}
	shoots := of("shoot", "shoot--p--a", 0, record("a", "x.local.gardener.cloud", "A", "203.0.113.66"))
	for name, ofGarden := range map[string]*extensionsv1alpha1.DNSRecord{
		"a name":                      dnsRecord("garden", "x.local.gardener.cloud", "192.0.2.1"),
		"a wildcard":                  dnsRecord("garden", "*.local.gardener.cloud", "192.0.2.1"),
		"a name with the same values": dnsRecord("garden", "x.local.gardener.cloud", "203.0.113.66"),
	} {
		t.Run(name+" that is there at the start", func(t *testing.T) {
			g := NewWithT(t)
			p := newProvider(t, newCluster(ofGarden.DeepCopy()), seed)
			g.Expect(p.apply(ctx, shoots)).To(MatchError(ContainSubstring("a DNSRecord of the garden")))
			g.Expect(p.cluster.configMaps(g)).To(BeEmpty(), "the garden's is the garden instance's to write")
		})
		t.Run(name+" that comes and goes", func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster()
			p := newProvider(t, c, seed)
			g.Expect(p.apply(ctx, shoots)).To(Succeed())
			object := ofGarden.DeepCopy()
			g.Expect(c.Create(ctx, object)).To(Succeed())
			c.tell(object, false)
			g.Eventually(func() []corev1.ConfigMap { return c.configMaps(g) }).Should(BeEmpty())

			g.Expect(c.Delete(ctx, object)).To(Succeed())
			c.tell(object, true)
			g.Eventually(func() []corev1.ConfigMap { return c.configMaps(g) }).Should(HaveLen(1))
		})
	}
}

// TestARecordIsGoneOnlyWhenThatIsWritten removes a record again whose first removal took too long, as its reconcile does.
func TestARecordIsGoneOnlyWhenThatIsWritten(t *testing.T) {
	g := NewWithT(t)
	p := newProvider(t, newCluster(), func(o *Options) { o.DNS.CoreDNS.ConfirmTimeout.Duration = time.Second })
	a := record("a", "a.local.gardener.cloud", "A", "192.0.2.1")
	g.Expect(p.apply(ctx, a)).To(Succeed())

	p.cluster.writes.fail(errAPI)
	for range 2 {
		g.Expect(p.remove(ctx, a.Owner)).To(MatchError(ContainSubstring(errAPI.Error())))
	}
	p.cluster.writes.fail(nil)
	g.Eventually(func() error { return p.remove(ctx, a.Owner) }).WithTimeout(10 * time.Second).Should(Succeed())
	g.Expect(p.cluster.configMaps(g)).To(BeEmpty())
}

func TestAStartLeavesOutWhatIsReservedByNow(t *testing.T) {
	g := NewWithT(t)
	shoots := dnsRecord("shoots", "api.internal.local.gardener.cloud", "203.0.113.66")
	shoots.Namespace, shoots.Spec.Class = "shoot--p--a", nil
	seeds := dnsRecord("seeds", "x.internal.local.gardener.cloud", "192.0.2.1") // no wildcard that covers the other
	seeds.Spec.Class = nil
	p := newProvider(t, newCluster(shoots, seeds), func(o *Options) {
		classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"seed", "shoot"}, "seed", "shoot")
		g.Expect(err).NotTo(HaveOccurred())
		o.Classes, o.DNS.ReservedDomains = classes, []string{"internal.local.gardener.cloud"}
	})
	g.Eventually(func() map[string]string { return p.cluster.data(g) }).Should(Equal(map[string]string{
		"local.gardener.cloud.zone": "x.internal.local.gardener.cloud.\t120\tIN\tA\t192.0.2.1\n",
	}))
}

// TestAStartGivesNobodyTheNameOfAnother has an older DNSRecord whose name was refused, and which somebody else has got since.
func TestAStartGivesNobodyTheNameOfAnother(t *testing.T) {
	for _, reason := range []string{"Reserved", "Error"} {
		t.Run(reason, func(t *testing.T) {
			g := NewWithT(t)
			ofShoot := func(shoot, domain, address string, created int64) *extensionsv1alpha1.DNSRecord {
				object := dnsRecord(shoot, domain, address)
				object.Namespace, object.CreationTimestamp, object.Spec.Class = "shoot--p--"+shoot, metav1.NewTime(time.Unix(created, 0)), nil
				return object
			}
			refused, served := ofShoot("b", "api.local.gardener.cloud", "203.0.113.66", 1), ofShoot("a", "api.local.gardener.cloud", "192.0.2.1", 2)
			refused.Status.Conditions[0].Status, refused.Status.Conditions[0].Reason = gardencorev1beta1.ConditionFalse, reason
			another := ofShoot("c", "c.local.gardener.cloud", "192.0.2.3", 3)
			const zone, line = "local.gardener.cloud.zone", "api.local.gardener.cloud.\t120\tIN\tA\t192.0.2.1\n"
			configMap := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "coredns-custom-garden-0", Labels: map[string]string{LabelConfig: "true", LabelInstance: "garden"}},
				Data:       map[string]string{zone: line},
			}
			p := newProvider(t, newCluster(refused, served, another, configMap), func(o *Options) {
				classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"seed", "shoot"}, "seed", "shoot")
				g.Expect(err).NotTo(HaveOccurred())
				o.Classes = classes
			})
			g.Eventually(func() map[string]string { return p.cluster.data(g) }).Should(Equal(map[string]string{zone: line + "c.local.gardener.cloud.\t120\tIN\tA\t192.0.2.3\n"}))
		})
	}
}

func TestAnAliasCannotTakeANameThatIsInUse(t *testing.T) {
	g := NewWithT(t)
	p := newProvider(t, newCluster())
	address, alias := record("address", "a.local.gardener.cloud", "A", "192.0.2.1"), record("alias", "a.local.gardener.cloud", "CNAME", "elsewhere.example.org")
	alias.Created = address.Created.Add(time.Hour)

	g.Expect(p.apply(ctx, address)).To(Succeed())
	g.Expect(p.apply(ctx, alias)).To(MatchError(ContainSubstring("can't stand beside")))
	g.Expect(p.apply(ctx, address)).To(Succeed())
	g.Expect(p.remove(ctx, address.Owner)).To(Succeed())
	g.Expect(p.apply(ctx, alias)).To(Succeed())
}

func TestAnAliasOfAGatewayIsServedToThoseOutsideOfTheNetworks(t *testing.T) {
	g := NewWithT(t)
	gateway := service("istio-ingress", "istio-ingressgateway", "", "10.4.0.10")
	gateway.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.org"}}
	c := newCluster(gateway)
	p := newProvider(t, c, func(o *Options) { o.DNS.CoreDNS.ConfirmTimeout.Duration = 200 * time.Millisecond })
	g.Eventually(p.started).Should(BeClosed())
	c.tellServices(g)
	p.server.outside = true
	g.Expect(p.apply(ctx, record("api", "api.local.gardener.cloud", "CNAME", "lb.example.org"))).To(Succeed())
	g.Expect(c.data(g)).To(HaveKeyWithValue("api.local.gardener.cloud.override", rewriteLine), "others get the gateway's")
}

func TestWhatAnswersForAnAliasOfAGateway(t *testing.T) {
	for name, test := range map[string]struct {
		answer answer
		isFine bool
	}{
		"the gateway's address":                   {answer{values: []string{"10.4.0.10"}}, true},
		"the alias, which leads nowhere":          {answer{aliases: []string{"lb.example.org"}}, true},
		"the alias, which leads on to an address": {answer{aliases: []string{"lb.example.org", "b.example.org"}, values: []string{"192.0.2.1"}}, true},
		"nothing":         {answer{rcode: miekgdns.RcodeServerFailure}, false},
		"another address": {answer{values: []string{"192.0.2.1"}}, false},
		"another alias that leads to the right one": {answer{aliases: []string{"a.example.org", "lb.example.org"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := isAnswered(udp, "api.local.gardener.cloud", "A", []string{"10.4.0.10"}, "lb.example.org").verify(test.answer)
			NewWithT(t).Expect(err == nil).To(Equal(test.isFine), "%v", err)
		})
	}
}

func TestGatewaysThatComeChangeAndGo(t *testing.T) {
	g := NewWithT(t)
	c := newCluster()
	p := newProvider(t, c)
	g.Expect(p.apply(ctx, record("api", "api.local.gardener.cloud", "A", gatewayIP))).To(Succeed())
	g.Expect(c.data(g)).NotTo(HaveKey("api.local.gardener.cloud.override"))

	gateway := service("istio-ingress", "istio-ingressgateway", gatewayIP, "10.4.0.10")
	c.tell(gateway, false)
	g.Eventually(func() map[string]string { return c.data(g) }).Should(HaveKeyWithValue("api.local.gardener.cloud.override", rewriteLine))

	elsewhere := gateway.DeepCopy()
	elsewhere.Status.LoadBalancer.Ingress[0].IP = "172.18.255.2"
	c.tell(elsewhere, false)
	g.Eventually(func() map[string]string { return c.data(g) }).ShouldNot(HaveKey("api.local.gardener.cloud.override"))

	c.tell(gateway, false)
	g.Eventually(func() map[string]string { return c.data(g) }).Should(HaveKey("api.local.gardener.cloud.override"))
	c.tell(gateway, true)
	g.Eventually(func() map[string]string { return c.data(g) }).ShouldNot(HaveKey("api.local.gardener.cloud.override"))
}

func TestALostOrEditedConfigMapIsWrittenAgain(t *testing.T) {
	g := NewWithT(t)
	p := newProvider(t, newCluster())
	g.Expect(p.apply(ctx, record("a", "a.local.gardener.cloud", "A", "192.0.2.1"))).To(Succeed())
	written := p.cluster.configMaps(g)[0]

	edited := written.DeepCopy()
	edited.Data["evil.override"] = "rewrite stop name regex .* evil.default.svc.cluster.local answer auto"
	g.Expect(p.cluster.Update(ctx, edited)).To(Succeed())
	p.cluster.tell(edited, false)
	g.Eventually(func() map[string]string { return p.cluster.data(g) }).Should(Equal(written.Data))

	gone := p.cluster.configMaps(g)[0]
	g.Expect(p.cluster.Delete(ctx, &gone)).To(Succeed())
	p.cluster.tell(&gone, true)
	g.Eventually(func() map[string]string { return p.cluster.data(g) }).Should(Equal(written.Data))

	stray := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "coredns-custom-garden-77", Labels: map[string]string{LabelConfig: "true"}}}
	g.Expect(p.cluster.Create(ctx, stray)).To(Succeed())
	p.cluster.tell(stray, false)
	g.Eventually(func() error { return p.cluster.Get(ctx, client.ObjectKeyFromObject(stray), &corev1.ConfigMap{}) }).Should(MatchError(ContainSubstring("not found")))
}

func TestEventsOfItsOwnWritesChangeNothing(t *testing.T) {
	g := NewWithT(t)
	c := newCluster()
	c.echoes = true
	p := newProvider(t, c)
	g.Expect(p.apply(ctx, record("a", "a.local.gardener.cloud", "A", "192.0.2.1"))).To(Succeed())
	earlier := c.configMaps(g)[0]
	g.Expect(p.apply(ctx, record("b", "b.local.gardener.cloud", "A", "192.0.2.2"))).To(Succeed())
	latest := c.configMaps(g)[0]
	c.tell(&latest, false)
	c.tell(&earlier, false)
	c.tell(&earlier, true)
	g.Consistently(c.writes.count, "300ms").Should(Equal(2))
}

// TestTwoLeadersDoNotWriteAgainstEachOtherAllTheTime has somebody else write the ConfigMap whenever this instance has: one that
// still takes itself for the leader, or a user.
func TestTwoLeadersDoNotWriteAgainstEachOtherAllTheTime(t *testing.T) {
	g := NewWithT(t)
	p := newProvider(t, newCluster())
	g.Expect(p.apply(ctx, record("a", "a.local.gardener.cloud", "A", "192.0.2.1"))).To(Succeed())
	key := client.ObjectKeyFromObject(&p.cluster.configMaps(g)[0])
	interfere := func() (restored bool) {
		found := &corev1.ConfigMap{}
		g.Expect(p.cluster.Get(ctx, key, found)).To(Succeed())
		if found.Data["other"] == "leader" {
			return false
		}
		found.Data = map[string]string{"other": "leader"}
		g.Expect(p.cluster.unobserved.Update(ctx, found)).To(Succeed())
		p.cluster.tell(found, false)
		return true
	}

	restored := 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if interfere() {
			restored++
		}
	}
	g.Expect(restored).To(And(BeNumerically(">", 2), BeNumerically("<", 10)), "it is restored, and less and less often")

	before := p.cluster.writes.count()
	_ = p.apply(ctx, record("b", "b.local.gardener.cloud", "A", "192.0.2.2"))
	g.Expect(p.cluster.writes.count()).To(BeNumerically(">", before), "what changes is written at once")
}

func TestARecordThatAnotherLeaderHasAnsweredIsServed(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(dnsRecord("a", "a.local.gardener.cloud", "192.0.2.1"))
	newProvider(t, c)
	const zone = "local.gardener.cloud.zone"
	line := func(name, address string) string {
		return name + ".local.gardener.cloud.\t120\tIN\tA\t" + address + "\n"
	}
	g.Eventually(func() map[string]string { return c.data(g) }).Should(HaveKeyWithValue(zone, line("a", "192.0.2.1")))

	answer := func(object *extensionsv1alpha1.DNSRecord, state gardencorev1beta1.LastOperationState, generation, observed int64) {
		object.Generation, object.Status.ObservedGeneration = generation, observed
		object.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: gardencorev1beta1.LastOperationTypeReconcile, State: state}
	}
	changed := dnsRecord("a", "a.local.gardener.cloud", "192.0.2.3")
	created := dnsRecord("b", "b.local.gardener.cloud", "192.0.2.4")
	answer(changed, gardencorev1beta1.LastOperationStateSucceeded, 2, 1)
	answer(created, gardencorev1beta1.LastOperationStateProcessing, 1, 1)
	g.Expect(c.Create(ctx, created)).To(Succeed())
	g.Expect(c.unobserved.Delete(ctx, dnsRecord("a", "", ""))).To(Succeed())
	changed.ResourceVersion = ""
	g.Expect(c.Create(ctx, changed)).To(Succeed())
	c.tell(changed, false)
	c.tell(created, false)
	g.Consistently(func() map[string]string { return c.data(g) }, "100ms").Should(HaveKeyWithValue(zone, line("a", "192.0.2.1")), "nobody has answered yet")

	answer(changed, gardencorev1beta1.LastOperationStateSucceeded, 2, 2)
	answer(created, gardencorev1beta1.LastOperationStateSucceeded, 1, 1)
	for _, object := range []*extensionsv1alpha1.DNSRecord{changed, created} {
		g.Expect(c.unobserved.Update(ctx, object)).To(Succeed())
		c.tell(object, false)
	}
	g.Eventually(func() map[string]string { return c.data(g) }).Should(HaveKeyWithValue(zone, line("a", "192.0.2.3")+line("b", "192.0.2.4")))
}

func TestStartServesWhatWasReconciledAndPrunesTheRest(t *testing.T) {
	g := NewWithT(t)
	served := dnsRecord("served", "served.local.gardener.cloud", "192.0.2.1")
	failed := dnsRecord("failed", "failed.local.gardener.cloud", "192.0.2.2")
	failed.Status.Conditions[0].Status = gardencorev1beta1.ConditionFalse
	going := dnsRecord("going", "going.local.gardener.cloud", "192.0.2.3")
	going.Finalizers, going.DeletionTimestamp = []string{"x"}, ptr.To(metav1.Now())
	shoots := dnsRecord("shoots", "shoots.local.gardener.cloud", "192.0.2.4")
	shoots.Spec.Class = nil
	others := dnsRecord("others", "others.local.gardener.cloud", "192.0.2.5")
	others.Spec.Type = "aws-route53"
	migrated := dnsRecord("migrated", "migrated.local.gardener.cloud", "192.0.2.6")
	migrated.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: gardencorev1beta1.LastOperationTypeMigrate}
	invalid := dnsRecord("invalid", "invalid.example.org", "192.0.2.7")

	labels := map[string]string{LabelConfig: "true", LabelInstance: "garden"}
	stale := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "coredns-custom-garden-3", Labels: labels, Annotations: map[string]string{AnnotationGeneration: "9999999999999999"}},
		Data:       map[string]string{"local.gardener.cloud.zone": "gone.local.gardener.cloud.\t120\tIN\tA\t192.0.2.8\nserved.local.gardener.cloud.\t120\tIN\tA\t192.0.2.99\n"},
	}
	empty := stale.DeepCopy()
	empty.Name = "coredns-custom-garden-4"
	empty.Data = map[string]string{"local.gardener.cloud.zone": "gone2.local.gardener.cloud.\t120\tIN\tA\t192.0.2.8\n"}

	elsewhere := dnsRecord("elsewhere", "elsewhere.local.gardener.cloud", "192.0.2.1")
	elsewhere.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"provider": "rfc2136"}`)}
	elsewhere.Status.ProviderStatus = &runtime.RawExtension{Raw: []byte(`{"kind": "DNSRecordStatus", "provider": "rfc2136"}`)}

	p := newProvider(t, newCluster(elsewhere, served, failed, going, shoots, others, migrated, invalid, stale, empty))
	g.Eventually(func() map[string]string { return p.cluster.data(g) }).Should(Equal(map[string]string{
		"local.gardener.cloud.zone": "served.local.gardener.cloud.\t120\tIN\tA\t192.0.2.1\n",
	}))
	g.Eventually(func() []corev1.ConfigMap { return p.cluster.configMaps(g) }).Should(ConsistOf(And(
		HaveField("Name", "coredns-custom-garden-3"),
		HaveField("Annotations", HaveKeyWithValue(AnnotationGeneration, "10000000000000000")),
	)), "names stay where they are, and generations grow")
}

func TestAStartKeepsWhatIsServedThoughTheLastAttemptFailed(t *testing.T) {
	g := NewWithT(t)
	unconfirmed := dnsRecord("unconfirmed", "unconfirmed.local.gardener.cloud", "192.0.2.1")
	unconfirmed.Status.Conditions[0].Status = gardencorev1beta1.ConditionFalse
	unknown := dnsRecord("unknown", "unknown.local.gardener.cloud", "192.0.2.2")
	unknown.Status.Conditions[0].Status = gardencorev1beta1.ConditionUnknown
	invalid := dnsRecord("invalid", "invalid.local.gardener.cloud", "not an address")
	never := dnsRecord("never", "never.local.gardener.cloud", "192.0.2.4")
	never.Status.Conditions = nil
	going := dnsRecord("going", "going.local.gardener.cloud", "192.0.2.5")
	going.Finalizers, going.DeletionTimestamp = []string{"x"}, ptr.To(metav1.Now())
	text := dnsRecord("text", "text.local.gardener.cloud", "")
	text.Spec.RecordType = "TXT"

	zone := "invalid.local.gardener.cloud.\t60\tIN\tA\t192.0.2.3\ninvalid.local.gardener.cloud.\t60\tIN\tA\t192.0.2.33\n" +
		"text.local.gardener.cloud.\t60\tIN\tTXT\t\"say \\\"hi\\\"\"\n" +
		"unconfirmed.local.gardener.cloud.\t120\tIN\tA\t192.0.2.1\nunknown.local.gardener.cloud.\t120\tIN\tA\t192.0.2.2\n"
	served := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "coredns-custom-garden-0", Labels: map[string]string{LabelConfig: "true", LabelInstance: "garden"}, Annotations: map[string]string{AnnotationGeneration: "7"}},
		Data: map[string]string{"local.gardener.cloud.zone": zone +
			"gone.local.gardener.cloud.\t120\tIN\tA\t192.0.2.8\ngoing.local.gardener.cloud.\t120\tIN\tA\t192.0.2.5\nnever.local.gardener.cloud.\t120\tIN\tA\t192.0.2.4\n"},
	}
	p := newProvider(t, newCluster(unconfirmed, unknown, invalid, never, going, text, served))
	g.Eventually(func() map[string]string { return p.cluster.data(g) }).Should(Equal(map[string]string{"local.gardener.cloud.zone": zone}))

	g.Expect(p.remove(ctx, types.NamespacedName{Namespace: "garden", Name: "invalid"})).To(Succeed())
	g.Expect(p.cluster.data(g)).To(HaveKeyWithValue("local.gardener.cloud.zone", Not(ContainSubstring("invalid"))), "its deletion removes it")
}

func TestAStartMendsWhatSomebodyHasEditedMeanwhile(t *testing.T) {
	g := NewWithT(t)
	const zone, line = "local.gardener.cloud.zone", "a.local.gardener.cloud.\t120\tIN\tA\t192.0.2.1\n"
	configMap := func(name string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: name, Labels: map[string]string{LabelConfig: "true", LabelInstance: "garden"}, Annotations: map[string]string{AnnotationGeneration: "7"}},
			Data:       data,
		}
	}
	edited := configMap("coredns-custom-garden-0", map[string]string{zone: line, "evil.override": "rewrite stop name regex .* evil.default.svc.cluster.local answer auto"})
	again := configMap("coredns-custom-garden-1", map[string]string{zone: line})
	empty := configMap("coredns-custom-garden-2", nil)
	c := newCluster(dnsRecord("a", "a.local.gardener.cloud", "192.0.2.1"), edited, again, empty)
	newProvider(t, c, func(o *Options) { o.Cache = listing{c, []client.Object{edited, again, empty}} })
	g.Eventually(func() []corev1.ConfigMap { return c.configMaps(g) }).Should(ConsistOf(And(
		HaveField("Name", edited.Name), HaveField("Data", map[string]string{zone: line}),
	)))
}

func TestStartAgainWritesNothing(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(dnsRecord("a", "a.local.gardener.cloud", "192.0.2.1"))
	first := newProvider(t, c)
	g.Eventually(func() []corev1.ConfigMap { return c.configMaps(g) }).Should(HaveLen(1))
	first.stop()
	before := c.writes.count()

	second := newProvider(t, c)
	g.Expect(second.apply(ctx, record("a", "a.local.gardener.cloud", "A", "192.0.2.1"))).To(Succeed())
	g.Expect(c.writes.count()).To(Equal(before))
}

func TestARecordWhoseDNSRecordGoesWithoutAReconcileIsDropped(t *testing.T) {
	for name, change := range map[string]func(g Gomega, c *cluster, object *extensionsv1alpha1.DNSRecord){
		"deleted before it was created": func(g Gomega, c *cluster, object *extensionsv1alpha1.DNSRecord) {
			g.Expect(c.Delete(ctx, object)).To(Succeed())
			c.tell(object, true)
		},
		"of another class now": func(g Gomega, c *cluster, object *extensionsv1alpha1.DNSRecord) {
			object.Spec.Class = new(extensionsv1alpha1.ExtensionClassSeed)
			g.Expect(c.Update(ctx, object)).To(Succeed())
			c.tell(object, false)
		},
		"served by another provider now": func(g Gomega, c *cluster, object *extensionsv1alpha1.DNSRecord) {
			object.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"provider": "rfc2136"}`)}
			g.Expect(c.Update(ctx, object)).To(Succeed())
			c.tell(object, false)
			g.Consistently(func() []corev1.ConfigMap { return c.configMaps(g) }, "100ms").Should(HaveLen(1), "until it is served there")

			object.Status.ProviderStatus = &runtime.RawExtension{Raw: []byte(`{"kind": "DNSRecordStatus", "provider": "rfc2136"}`)}
			g.Expect(c.Update(ctx, object)).To(Succeed())
			c.tell(object, false)
		},
		"of another type now": func(g Gomega, c *cluster, object *extensionsv1alpha1.DNSRecord) {
			object.Spec.Type = "aws-route53"
			g.Expect(c.Update(ctx, object)).To(Succeed())
			c.tell(object, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(dnsRecord("a", "a.local.gardener.cloud", "192.0.2.1"))
			p := newProvider(t, c)
			g.Expect(p.apply(ctx, record("a", "a.local.gardener.cloud", "A", "192.0.2.1"))).To(Succeed())
			object := &extensionsv1alpha1.DNSRecord{}
			g.Expect(c.Get(ctx, types.NamespacedName{Namespace: "garden", Name: "a"}, object)).To(Succeed())

			// An event that is older than what is there now changes nothing.
			c.tell(object, true)
			g.Consistently(func() []corev1.ConfigMap { return c.configMaps(g) }, "100ms").Should(HaveLen(1))

			change(g, c, object)
			g.Eventually(func() []corev1.ConfigMap { return c.configMaps(g) }).Should(BeEmpty())
		})
	}
}

func TestANameOutsideOfTheZonesIsAMistakeOfTheUser(t *testing.T) {
	g := NewWithT(t)
	p := newProvider(t, newCluster())
	err := p.apply(ctx, record("a", "a.example.org", "A", "192.0.2.1"))
	g.Expect(err).To(MatchError(ContainSubstring("none of the zones")))
	g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
}

func TestServersAreTheReadyEndpoints(t *testing.T) {
	g := NewWithT(t)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: testNamespace, Name: "coredns-x", Labels: map[string]string{discoveryv1.LabelServiceName: ServiceName}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("dns"), Port: ptr.To[int32](9053), Protocol: ptr.To(corev1.ProtocolUDP)},
			{Name: ptr.To("dns-tcp"), Port: ptr.To[int32](9053), Protocol: ptr.To(corev1.ProtocolTCP)},
		},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}},
			{Addresses: []string{"10.0.0.1"}},
			{Addresses: []string{"10.0.0.3"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}},
		},
	}
	c := newCluster(slice)
	p := &Provider{Options: Options{Client: c}}
	p.DNS.CoreDNS.Namespace = testNamespace
	g.Expect(p.servers(ctx)).To(Equal([]string{"10.0.0.1:9053", "10.0.0.2:9053"}))

	g.Expect(c.Delete(ctx, slice)).To(Succeed())
	_, err := p.servers(ctx)
	g.Expect(err).To(MatchError("no pod of CoreDNS in namespace coredns is ready"))
}

func TestOneServerIsAskedOnceForAllWhoWait(t *testing.T) {
	g := NewWithT(t)
	p := newProvider(t, newCluster(), func(o *Options) { o.DNS.CoreDNS.ConfirmTimeout.Duration = 300 * time.Millisecond })
	g.Eventually(p.started).Should(BeClosed())
	p.server.set(func(s *server) { s.behind = true })
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			_ = p.apply(ctx, record(strconv.Itoa(i), fmt.Sprintf("n%d.local.gardener.cloud", i), "A", "192.0.2.1"))
		})
	}
	group.Wait()
	queries := 0
	count := func() int {
		before := queries
		p.server.set(func(s *server) { queries = s.queries })
		return queries - before
	}
	g.Expect(count()).To(BeNumerically("<", 100))
	g.Eventually(count, "10s", 2*maxBackoff).Should(BeZero(), "nobody asks when nobody waits")
}

// TestAnErrorOfCoreDNSIsTheSameEachTime tries again while no CoreDNS is up to date, as a reconcile does, which writes a status with
// a new text only.
func TestAnErrorOfCoreDNSIsTheSameEachTime(t *testing.T) {
	for name, change := range map[string]func(*environment){
		"none runs":    func(e *environment) { e.Exchange, e.DNS.CoreDNS.Servers = exchange, []string{"127.0.0.1:1"} },
		"it is behind": func(e *environment) { e.server.set(func(s *server) { s.behind = true }) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := newProvider(t, newCluster(), func(o *Options) { o.DNS.CoreDNS.ConfirmTimeout.Duration = 300 * time.Millisecond })
			g.Eventually(p.started).Should(BeClosed())
			change(p)
			attempt := func(name, value string) string {
				err := p.apply(ctx, record(name, name+".local.gardener.cloud", "A", value))
				g.Expect(err).To(HaveOccurred())
				return err.Error()
			}
			first := attempt("a", "192.0.2.1")
			attempt("b", "192.0.2.1")
			g.Expect(attempt("a", "192.0.2.1")).To(Equal(first))
		})
	}
}
