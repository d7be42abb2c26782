// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

func TestUpdatesThatCount(t *testing.T) {
	ingress := func(change func(*networkingv1.Ingress)) client.Object {
		obj := newIngress("a.example.org")
		change(obj)
		return obj
	}
	record := func(change func(*extensionsv1alpha1.DNSRecord)) client.Object {
		obj := newForeign("it", secret)
		obj.OwnerReferences = ownerOf("uid", "it")
		obj.Annotations = map[string]string{"confirmation.gardener.cloud/deletion": "true"}
		change(obj)
		return obj
	}
	ofNamespace := func(change func(*corev1.Namespace)) client.Object {
		obj := &corev1.Namespace{}
		obj.Name, obj.Labels = namespace, newShootNamespace().Labels
		change(obj)
		return obj
	}
	gateway := func(change func(*corev1.Service)) client.Object {
		obj := newGateway(nginx, "10.0.0.1")
		change(obj)
		return obj
	}
	now := new(metav1.Unix(1000, 0))

	gateways := (&ingresses{gateways: []client.ObjectKey{nginx, istio}}).gatewayChanged()
	for _, test := range []struct {
		name          string
		predicate     predicate.Predicate
		before, after client.Object
		counts        bool
	}{
		{"an Ingress with another host", ingressChanged(), newIngress("a.example.org"), newIngress("b.example.org"), true},
		{"an Ingress with its hosts in another order", ingressChanged(), newIngress("a.example.org", "b.example.org"), newIngress("b.example.org", "a.example.org"), false},
		{"an Ingress with an address", ingressChanged(), newIngress("a.example.org"), ingress(func(i *networkingv1.Ingress) {
			i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "10.0.0.1"}}
		}), true},
		{"an Ingress that is deleted", ingressChanged(), newIngress("a.example.org"), ingress(func(i *networkingv1.Ingress) { i.DeletionTimestamp = now }), true},
		{"an Ingress in place of another", ingressChanged(), newIngress("a.example.org"), ingress(func(i *networkingv1.Ingress) { i.UID = "other" }), true},
		{"an Ingress with other annotations", ingressChanged(), newIngress("a.example.org"), ingress(func(i *networkingv1.Ingress) { i.ResourceVersion = "2" }), false},

		{"a DNSRecord with another spec", recordChanged(), record(func(*extensionsv1alpha1.DNSRecord) {}), record(func(r *extensionsv1alpha1.DNSRecord) { r.Generation = 2 }), true},
		{"a DNSRecord that is deleted", recordChanged(), record(func(*extensionsv1alpha1.DNSRecord) {}), record(func(r *extensionsv1alpha1.DNSRecord) { r.DeletionTimestamp = now }), true},
		{"a DNSRecord without its owner", recordChanged(), record(func(*extensionsv1alpha1.DNSRecord) {}), record(func(r *extensionsv1alpha1.DNSRecord) { r.OwnerReferences = nil }), true},
		{"a DNSRecord without confirmation", recordChanged(), record(func(*extensionsv1alpha1.DNSRecord) {}), record(func(r *extensionsv1alpha1.DNSRecord) { r.Annotations = nil }), true},
		{"a DNSRecord with another label", recordChanged(), record(func(*extensionsv1alpha1.DNSRecord) {}), record(func(r *extensionsv1alpha1.DNSRecord) {
			r.Labels = map[string]string{"local.provider.extensions.gardener.cloud/ingress": "other"}
		}), true},
		{"a DNSRecord that is restored", recordChanged(), record(func(r *extensionsv1alpha1.DNSRecord) {
			r.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Migrate"}
		}), record(func(r *extensionsv1alpha1.DNSRecord) {
			r.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Restore"}
		}), true},
		{"what the DNSRecord controller writes", recordChanged(), record(func(r *extensionsv1alpha1.DNSRecord) {
			r.Annotations["gardener.cloud/operation"] = "reconcile"
		}), record(func(r *extensionsv1alpha1.DNSRecord) {
			r.Finalizers = []string{"extensions.gardener.cloud/dnsrecord"}
			r.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Create", State: "Processing"}
		}), false},

		{"a Namespace that becomes a shoot's", namespaceChanged(), ofNamespace(func(n *corev1.Namespace) { n.Labels = nil }), ofNamespace(func(*corev1.Namespace) {}), true},
		{"a Namespace that is deleted", namespaceChanged(), ofNamespace(func(*corev1.Namespace) {}), ofNamespace(func(n *corev1.Namespace) { n.DeletionTimestamp = now }), true},
		{"a Namespace with other annotations", namespaceChanged(), ofNamespace(func(*corev1.Namespace) {}), ofNamespace(func(n *corev1.Namespace) { n.Annotations = map[string]string{"a": "b"} }), false},

		{"a gateway with another address", gateways, newGateway(nginx, "10.0.0.1"), newGateway(nginx, "10.0.0.2"), true},
		{"a gateway that loses its address", gateways, newGateway(istio, "10.0.0.1"), newGateway(istio), true},
		{"a gateway that is deleted", gateways, newGateway(nginx, "10.0.0.1"), gateway(func(s *corev1.Service) { s.DeletionTimestamp = now }), true},
		{"a gateway with other ports", gateways, newGateway(nginx, "10.0.0.1"), gateway(func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: 443}} }), false},
		{"a Service that is no gateway", gateways, newGateway(client.ObjectKey{Name: "other"}, "10.0.0.1"), newGateway(client.ObjectKey{Name: "other"}, "10.0.0.2"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(test.predicate.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after})).To(Equal(test.counts))
		})
	}

	g := NewWithT(t)
	g.Expect(gateways.Create(event.CreateEvent{Object: newGateway(nginx)})).To(BeTrue())
	g.Expect(gateways.Delete(event.DeleteEvent{Object: newGateway(nginx)})).To(BeTrue())
	g.Expect(gateways.Create(event.CreateEvent{Object: newGateway(client.ObjectKey{Name: "other"})})).To(BeFalse())
}

func TestWhomEventsWake(t *testing.T) {
	second, elsewhere := newIngress("b.example.org"), newIngress("c.example.org")
	second.Name = "second"
	second.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "10.0.0.9"}}
	elsewhere.Namespace = "shoot--dev--other"
	f := newFixture(t, newIngress("a.example.org"), second, elsewhere)

	owned := newForeign("it-1", secret)
	owned.OwnerReferences = ownerOf("uid", "it")
	shootNamespace := &corev1.Namespace{}
	shootNamespace.Name = namespace
	named := func(names ...string) []any {
		var out []any
		for _, name := range names {
			out = append(out, HaveField("NamespacedName", client.ObjectKey{Namespace: namespace, Name: name}))
		}
		return out
	}

	f.Expect(f.under.byRecord(t.Context(), owned)).To(ConsistOf(named("it")...))
	f.Expect(f.under.byRecord(t.Context(), newForeign("internal", secret))).To(ConsistOf(named("it", "second")...))
	f.Expect(f.under.byNamespace(t.Context(), shootNamespace)).To(ConsistOf(named("it", "second")...))
	f.Expect(f.under.byGateway(t.Context(), newGateway(nginx))).To(ConsistOf(append(named("it"),
		HaveField("NamespacedName", client.ObjectKeyFromObject(elsewhere)))...), "who has an address needs no gateway")
}
