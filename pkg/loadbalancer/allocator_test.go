// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

func allocator(t *testing.T, pools ...string) *loadbalancer.Allocator {
	t.Helper()
	a, err := loadbalancer.NewAllocator(config(func(c *configv1alpha1.LoadBalancersConfiguration) { c.Pools = pools }))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return a
}

func service(name string, changes ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{v4}},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func dual(policy corev1.IPFamilyPolicy, families ...corev1.IPFamily) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &policy, families }
}

func named(namespace, name string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Namespace, s.Name = namespace, name }
}

func asks(address string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerIP = address }
}

func has(addresses ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		for _, address := range addresses {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: address})
		}
	}
}

func ofClass(class string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class }
}

func created(minute int) func(*corev1.Service) {
	return func(s *corev1.Service) { s.CreationTimestamp = metav1.Date(2030, 1, 1, 0, minute, 0, 0, time.UTC) }
}

// assigned returns the addresses of a Service and the reason of its problem.
func assigned(a *loadbalancer.Allocator, s *corev1.Service) (string, string) {
	ingress, problem := a.Assign(s)
	var addresses []string
	for _, i := range ingress {
		addresses = append(addresses, i.IP)
	}
	if problem == nil {
		return strings.Join(addresses, " "), ""
	}
	return strings.Join(addresses, " "), problem.Reason
}

func TestAssign(t *testing.T) {
	const single, prefer, required = corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack
	both, onlyV4 := []string{"10.1.0.0/30", "fd00:1::/126"}, []string{"10.1.0.0/30"}

	for name, test := range map[string]struct {
		pools             []string
		service           *corev1.Service
		addresses, reason string
	}{
		"one family": {both, service("it", dual(single, v6)), "fd00:1::", ""},
		"both families in the order of the Service": {both, service("it", dual(required, v6, v4)), "fd00:1:: 10.1.0.0", ""},
		"a Service without families has IPv4":       {both, service("it", dual(single)), "10.1.0.0", ""},
		"one that prefers both has what there is":   {onlyV4, service("it", dual(prefer, v6, v4)), "10.1.0.0", ""},
		"one that requires both has both or none":   {onlyV4, service("it", dual(required, v4, v6)), "", loadbalancer.ReasonFamily},
		"a family that is not there":                {onlyV4, service("it", dual(single, v6)), "", loadbalancer.ReasonFamily},

		"an address that is asked for":                              {both, service("it", asks("10.1.0.2")), "10.1.0.2", ""},
		"an IPv4 address that is asked for in the notation of IPv6": {both, service("it", asks("::ffff:10.1.0.2")), "10.1.0.2", ""},
		"one that is asked for beside any other":                    {both, service("it", dual(prefer, v4, v6), asks("fd00:1::2")), "10.1.0.0 fd00:1::2", ""},
		"one that is in no pool":                                    {both, service("it", asks("10.2.0.0")), "", loadbalancer.ReasonNotInPool},
		"one that is in no pool, which spoils nothing else":         {both, service("it", dual(prefer, v4, v6), asks("10.2.0.0")), "fd00:1::", loadbalancer.ReasonNotInPool},
		"one that is in no pool, where both are needed":             {both, service("it", dual(required, v4, v6), asks("10.2.0.0")), "", loadbalancer.ReasonNotInPool},
		"one that is no address":                                    {both, service("it", asks("example.org")), "", loadbalancer.ReasonNotInPool},
		"one of the other family":                                   {both, service("it", asks("fd00:1::2")), "", loadbalancer.ReasonFamily},
		"one that is reserved, though in a pool":                    {[]string{"172.18.0.0/16"}, service("it", asks("172.18.255.10")), "", loadbalancer.ReasonNotInPool},

		"a well-known Service of one family":      {both, service("", named("garden", "nginx-ingress-controller"), dual(single, v6)), "fd00:ff::4", ""},
		"a well-known Service of both":            {both, service("", named("garden", "nginx-ingress-controller"), dual(required, v6, v4)), "fd00:ff::4 172.18.255.4", ""},
		"a well-known Service does not choose":    {both, service("", named("garden", "nginx-ingress-controller"), asks("10.1.0.2")), "172.18.255.4", ""},
		"the gateway of a zone that has no entry": {both, service("", named("istio-ingress--x", "istio-ingressgateway")), "172.18.255.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a := allocator(t, test.pools...)
			for range 2 {
				addresses, reason := assigned(a, test.service)
				g.Expect(addresses).To(Equal(test.addresses))
				g.Expect(reason).To(Equal(test.reason))
			}
		})
	}

	t.Run("a well-known Service that requires both has both or none", func(t *testing.T) {
		g := NewWithT(t)
		a, err := loadbalancer.NewAllocator(config(func(c *configv1alpha1.LoadBalancersConfiguration) { c.HostAddresses = []string{"10.0.0.1"} }))
		g.Expect(err).NotTo(HaveOccurred())
		addresses, reason := assigned(a, service("", named("istio-ingress", "istio-ingressgateway"), dual(required, v4, v6)))
		g.Expect(addresses).To(BeEmpty())
		g.Expect(reason).To(Equal(loadbalancer.ReasonFamily))
		g.Expect(assigned(a, service("", named("istio-ingress", "istio-ingressgateway"), dual(prefer, v4, v6)))).To(Equal("10.0.0.1"))
	})
}

// TestTheTextOfAProblemFitsIntoACondition has a Service ask for more than the API server takes in a condition.
func TestTheTextOfAProblemFitsIntoACondition(t *testing.T) {
	for _, address := range []string{strings.Repeat("x", 1<<20), "fe80::1%" + strings.Repeat("x", 1<<20)} {
		_, problem := allocator(t, "10.1.0.0/30").Assign(service("it", asks(address)))
		NewWithT(t).Expect(len(problem.Message)).To(BeNumerically("<", 1<<10))
	}
}

func TestIsOurs(t *testing.T) {
	g := NewWithT(t)
	g.Expect(loadbalancer.IsOurs(service("it"))).To(BeTrue())
	g.Expect(loadbalancer.IsOurs(service("it", ofClass(loadbalancer.Class)))).To(BeTrue())
	g.Expect(loadbalancer.IsOurs(service("it", ofClass("other")))).To(BeFalse())
	g.Expect(loadbalancer.IsOurs(service("it", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }))).To(BeFalse())
}

func TestRestoredServicesKeepTheirAddresses(t *testing.T) {
	g := NewWithT(t)
	a := allocator(t, "10.1.0.0/29")
	services := []*corev1.Service{
		service("new"),
		service("younger", has("10.1.0.0"), created(2)),
		service("older", has("10.1.0.0"), created(1)),
		service("same-age", has("10.1.0.0"), created(1)),
		service("ours", has("10.1.0.3"), created(0)),
		service("theirs", has("10.1.0.3"), created(3), ofClass("other")),
		service("moved-here", has("10.9.0.0"), created(0)),
	}
	var list []corev1.Service
	for _, s := range services {
		list = append(list, *s)
	}
	a.Restore(list)

	expected := map[string]string{"older": "10.1.0.0", "new": "10.1.0.1", "younger": "10.1.0.2", "same-age": "10.1.0.4", "ours": "10.1.0.5", "moved-here": "10.1.0.6"}
	for _, s := range services {
		if loadbalancer.IsOurs(s) {
			g.Expect(assigned(a, s)).To(Equal(expected[s.Name]), s.Name)
		}
	}
}

func TestAddressesOfOthersAreNotGivenOut(t *testing.T) {
	g := NewWithT(t)
	a := allocator(t, "10.1.0.0/31")
	theirs := service("theirs", has("10.1.0.0", "10.9.0.0"), ofClass("other"))
	g.Expect(a.Observe(theirs)).To(BeEmpty())
	g.Expect(assigned(a, service("first"))).To(Equal("10.1.0.1"))
	_, reason := assigned(a, service("second"))
	g.Expect(reason).To(Equal(loadbalancer.ReasonExhausted))

	theirs.Status = corev1.ServiceStatus{}
	g.Expect(a.Observe(theirs)).To(Equal([]types.NamespacedName{owner("second")}))
	g.Expect(assigned(a, service("second"))).To(Equal("10.1.0.0"))
}

func TestAServiceThatRequiresBothDoesNotWakeItselfForEver(t *testing.T) {
	g := NewWithT(t)
	a := allocator(t, "10.1.0.0/32", "fd00:1::/128")
	g.Expect(assigned(a, service("v6", dual(corev1.IPFamilyPolicySingleStack, v6)))).To(Equal("fd00:1::"))
	s := service("it")
	g.Expect(assigned(a, s)).To(Equal("10.1.0.0"))

	dual(corev1.IPFamilyPolicyRequireDualStack, v4, v6)(s)
	runs := 0
	for again := []types.NamespacedName{owner("it")}; len(again) > 0; runs++ {
		g.Expect(runs).To(BeNumerically("<", 3))
		addresses, reason := assigned(a, s)
		g.Expect(addresses).To(BeEmpty())
		g.Expect(reason).To(Equal(loadbalancer.ReasonExhausted))
		again = a.Keep(client.ObjectKeyFromObject(s))
	}
	g.Expect(assigned(a, service("other"))).To(Equal("10.1.0.0"), "it does not sit on half of what it needs")
}

func TestWhatIsKeptIsWhatIsShown(t *testing.T) {
	g := NewWithT(t)
	a := allocator(t, "10.1.0.0/31")
	s := service("it")
	g.Expect(assigned(a, s)).To(Equal("10.1.0.0"))
	asks("10.1.0.1")(s)
	g.Expect(assigned(a, s)).To(Equal("10.1.0.1"))
	_, reason := assigned(a, service("other"))
	g.Expect(reason).To(Equal(loadbalancer.ReasonExhausted), "the status may still show the old address")
	g.Expect(a.Keep(owner("it"), address("10.1.0.1"))).To(Equal([]types.NamespacedName{owner("other")}))
	g.Expect(a.Release(owner("it"))).To(BeEmpty())
	g.Expect(assigned(a, service("other"))).To(Equal("10.1.0.0"))
}
