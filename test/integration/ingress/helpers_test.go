// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// asShoot is the label of a shoot's namespace.
var asShoot = map[string]string{"gardener.cloud/role": "shoot"}

func newNamespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func newIngress(namespace, name string, hosts ...string) *networkingv1.Ingress {
	prefix := networkingv1.PathTypePrefix
	ingress := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, host := range hosts {
		ingress.Spec.Rules = append(ingress.Spec.Rules, networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: &prefix,
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "it", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}},
		}})
	}
	return ingress
}

func newGateway(key client.ObjectKey) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443}}},
	}
}

// newForeign is a DNSRecord as gardenlet makes it.
func newForeign(namespace, name string) *extensionsv1alpha1.DNSRecord {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
			SecretRef:   corev1.SecretReference{Namespace: namespace, Name: "dnsrecord-" + name},
			Name:        name + ".local.gardener.cloud", RecordType: "A", Values: []string{"1.1.1.1"},
		},
	}
}

func change[T client.Object](ctx context.Context, obj T, change func(T)) {
	GinkgoHelper()
	Expect(seed.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
	before, ok := obj.DeepCopyObject().(client.Object)
	Expect(ok).To(BeTrue())
	change(obj)
	Expect(seed.Patch(ctx, obj, client.MergeFrom(before))).To(Succeed())
}

// setHosts gives other hosts to an Ingress.
func setHosts(ctx context.Context, ingress *networkingv1.Ingress, hosts ...string) {
	GinkgoHelper()
	change(ctx, ingress, func(ingress *networkingv1.Ingress) { ingress.Spec = newIngress("", "", hosts...).Spec })
}

// setAddresses gives other addresses to a gateway.
func setAddresses(ctx context.Context, key client.ObjectKey, addresses ...string) {
	GinkgoHelper()
	service := &corev1.Service{}
	Expect(seed.Get(ctx, key, service)).To(Succeed())
	service.Status.LoadBalancer.Ingress = nil
	for _, address := range addresses {
		service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: address})
	}
	Expect(seed.Status().Update(ctx, service)).To(Succeed())
}

// recordsOf returns the DNSRecords of an Ingress.
func recordsOf(ctx context.Context, ingress *networkingv1.Ingress) ([]extensionsv1alpha1.DNSRecord, error) {
	list := &extensionsv1alpha1.DNSRecordList{}
	err := seed.List(ctx, list, client.InNamespace(ingress.Namespace))
	return slices.DeleteFunc(list.Items, func(record extensionsv1alpha1.DNSRecord) bool { return !metav1.IsControlledBy(&record, ingress) }), err
}

func theRecordOf(ctx context.Context, ingress *networkingv1.Ingress) *extensionsv1alpha1.DNSRecord {
	GinkgoHelper()
	records, err := recordsOf(ctx, ingress)
	Expect(err).NotTo(HaveOccurred())
	Expect(records).To(HaveLen(1))
	return &records[0]
}

// answersOf returns "HOST TYPE VALUES" of the DNSRecords of an Ingress, in order.
func answersOf(ctx context.Context, ingress *networkingv1.Ingress) func() ([]string, error) {
	return func() ([]string, error) {
		records, err := recordsOf(ctx, ingress)
		var out []string
		for _, record := range records {
			out = append(out, fmt.Sprintf("%s %s %s", record.Spec.Name, record.Spec.RecordType, strings.Join(record.Spec.Values, ",")))
		}
		slices.Sort(out)
		return out, err
	}
}

// eventsOf returns "REASON NOTE" of the Events on an Ingress, and fails if one has been repeated.
func eventsOf(ctx context.Context, ingress *networkingv1.Ingress) func() ([]string, error) {
	return func() ([]string, error) {
		list := &eventsv1.EventList{}
		err := seed.List(ctx, list, client.InNamespace(ingress.Namespace))
		var out []string
		for _, event := range list.Items {
			if event.Regarding.UID == ingress.UID {
				if event.Series != nil {
					return nil, fmt.Errorf("%s has been told %d times", event.Reason, event.Series.Count)
				}
				out = append(out, event.Reason+" "+event.Note)
			}
		}
		return out, err
	}
}

// wake makes all Ingresses of a namespace be reconciled.
func wake(ctx context.Context, namespace string) {
	GinkgoHelper()
	record := newForeign(namespace, "wake")
	record.Spec.Type = "other"
	Expect(seed.Create(ctx, record)).To(Succeed())
	Expect(seed.Delete(ctx, record)).To(Succeed())
}

// elapse lets time go by in which something must not happen.
func elapse(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	select {
	case <-ctx.Done():
		Fail("the suite has ended")
	case <-time.After(d):
	}
}
