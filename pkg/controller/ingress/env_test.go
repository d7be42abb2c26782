// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

const (
	namespace = "shoot--dev--test"
	secret    = "dnsrecord-internal"
)

var (
	nginx = client.ObjectKey{Namespace: "garden", Name: "nginx-ingress-controller"}
	istio = client.ObjectKey{Namespace: "istio-ingress", Name: "istio-ingressgateway"}
)

// fixture is a seed with one shoot, and the reconciler.
type fixture struct {
	*WithT
	t        *testing.T
	seed     client.WithWatch
	events   *events.FakeRecorder
	scheme   *runtime.Scheme
	under    *ingresses
	writes   []string
	writeErr func(verb string, obj client.Object) error
}

// newFixture has a shoot namespace, a DNSRecord of gardenlet's in it, and what else is given.
func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	f := &fixture{WithT: NewWithT(t), t: t, events: events.NewFakeRecorder(100), scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, networkingv1.AddToScheme, extensionsv1alpha1.AddToScheme} {
		f.Expect(add(f.scheme)).To(Succeed())
	}
	if !slices.ContainsFunc(objects, func(obj client.Object) bool { _, ok := obj.(*corev1.Namespace); return ok }) {
		objects = append(objects, newShootNamespace())
	}
	write := func(verb string, obj client.Object) error {
		f.writes = append(f.writes, verb+" "+obj.GetName())
		if f.writeErr != nil {
			return f.writeErr(verb, obj)
		}
		return nil
	}
	f.seed = fakeclient.NewClientBuilder().WithScheme(f.scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := write("create", obj); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := write("patch", obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := write("delete", obj); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
	}).Build()
	f.under = &ingresses{
		client: f.seed, gateways: []client.ObjectKey{nginx, istio}, events: f.events,
	}
	return f
}

// reconcile runs the reconciler for the Ingress "it".
func (f *fixture) reconcile() {
	f.t.Helper()
	result, err := f.tryReconcile()
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(result).To(BeZero(), "nothing is tried again without an event")
}

func (f *fixture) tryReconcile() (reconcile.Result, error) {
	f.t.Helper()
	return f.under.Reconcile(f.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "it"}})
}

// records returns the DNSRecords of Ingresses.
func (f *fixture) records() []extensionsv1alpha1.DNSRecord {
	f.t.Helper()
	list := &extensionsv1alpha1.DNSRecordList{}
	f.Expect(f.seed.List(f.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	return slices.DeleteFunc(list.Items, func(record extensionsv1alpha1.DNSRecord) bool { return ingressOf(&record) == "" })
}

func (f *fixture) record() *extensionsv1alpha1.DNSRecord {
	f.t.Helper()
	records := f.records()
	f.Expect(records).To(HaveLen(1))
	return &records[0]
}

// answers returns "HOST TYPE VALUES" of the DNSRecords of Ingresses, in order.
func (f *fixture) answers() []string {
	f.t.Helper()
	var out []string
	for _, record := range f.records() {
		out = append(out, fmt.Sprintf("%s %s %s", record.Spec.Name, record.Spec.RecordType, strings.Join(record.Spec.Values, ",")))
	}
	slices.Sort(out)
	return out
}

// change writes an object of the seed as somebody else would.
func change[T client.Object](f *fixture, obj T, mutate func(T)) {
	f.t.Helper()
	f.Expect(f.seed.Get(f.t.Context(), client.ObjectKeyFromObject(obj), obj)).To(Succeed())
	mutate(obj)
	f.Expect(f.seed.Update(f.t.Context(), obj)).To(Succeed())
}

// moveGateway gives other addresses to the first gateway.
func (f *fixture) moveGateway(addresses ...string) {
	f.t.Helper()
	f.Expect(f.seed.Status().Update(f.t.Context(), newGateway(nginx, addresses...))).To(Succeed())
}

// told returns the Events since the last call.
func (f *fixture) told() []string {
	var out []string
	for {
		select {
		case event := <-f.events.Events:
			out = append(out, event)
		default:
			return out
		}
	}
}

// written returns the writes since the last call.
func (f *fixture) written() []string {
	out := f.writes
	f.writes = nil
	return out
}

func newIngress(hosts ...string) *networkingv1.Ingress {
	ingress := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "it", UID: "uid"}}
	for _, host := range hosts {
		ingress.Spec.Rules = append(ingress.Spec.Rules, networkingv1.IngressRule{Host: host})
	}
	return ingress
}

func newShootNamespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"gardener.cloud/role": "shoot"}}}
}

func newGateway(key client.ObjectKey, addresses ...string) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}
	for _, address := range addresses {
		service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: address})
	}
	return service
}

// newForeign is a DNSRecord that is no Ingress's.
func newForeign(name, secretName string) *extensionsv1alpha1.DNSRecord {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
			SecretRef:   corev1.SecretReference{Namespace: namespace, Name: secretName},
			Name:        name + ".local.gardener.cloud", RecordType: "A", Values: []string{"1.1.1.1"},
		},
	}
}

// ownerOf is the reference to an Ingress as its controller.
func ownerOf(uid types.UID, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: name, UID: uid, Controller: new(true), BlockOwnerDeletion: new(true),
	}}
}
