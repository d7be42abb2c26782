// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"context"
	"strings"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	providerdns "github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// view is somebody who asks.
type view struct {
	name, network string
	server        func() string
}

var (
	pod   = view{"a pod by UDP", "udp", func() string { return coreDNS.Address }}
	views = []view{
		{"a client outside by TCP", "tcp", func() string { return coreDNS.Address }},
		{"the machine by UDP", "udp", func() string { return coreDNS.HostAddress }},
		{"the machine by TCP", "tcp", func() string { return coreDNS.HostAddress }},
	}
)

func (v view) asks(ctx context.Context, name string) func() ([]string, error) {
	return func() ([]string, error) {
		return matchers.Resolve(ctx, v.network, v.server(), strings.Replace(name, "*", "any", 1), dns.TypeA)
	}
}

// resolves expects that pods get to a gateway by its address in the cluster, and all others by the record's value.
func resolves(ctx context.Context, name string, gateway *corev1.Service, address string) {
	GinkgoHelper()
	Eventually(pod.asks(ctx, name)).Should(Equal([]string{gateway.Spec.ClusterIP}), "%s for %s", name, pod.name)
	for _, v := range views {
		Expect(v.asks(ctx, name)()).To(Equal([]string{address}), "%s for %s", name, v.name)
	}
}

// createGateway creates a Service of type LoadBalancer that has its address, by "NAMESPACE/NAME".
func createGateway(ctx context.Context, key, address string) *corev1.Service {
	GinkgoHelper()
	namespace, name, _ := strings.Cut(key, "/")
	Expect(env.CreateNamespaces(ctx, namespace)).To(Succeed())
	service := create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443}}},
	})
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	Expect(c.Status().Update(ctx, service)).To(Succeed())
	return service
}

// placeShoot creates the namespace of a shoot's control plane, or moves it to other zones.
func placeShoot(ctx context.Context, name, zones string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if err == nil {
		patch := client.MergeFrom(namespace.DeepCopy())
		namespace.Annotations = map[string]string{resourcesv1alpha1.HighAvailabilityConfigZones: zones}
		Expect(c.Patch(ctx, namespace, patch)).To(Succeed())
		return
	}
	Expect(apierrors.IsNotFound(err)).To(BeTrue())

	Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"gardener.cloud/role": "shoot"},
		Annotations: map[string]string{resourcesv1alpha1.HighAvailabilityConfigZones: zones},
	}})).To(Succeed())
	raw := func(kind string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"` + kind + `","metadata":{"name":"local"}}`)}
	}
	Expect(c.Create(ctx, &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       extensionsv1alpha1.ClusterSpec{CloudProfile: raw("CloudProfile"), Seed: new(raw("Seed")), Shoot: raw("Shoot")},
	})).To(Succeed())
}

// newRecord returns a DNSRecord of a shoot, or of the seed if it is in the garden namespace.
func newRecord(namespace, name, domain, address string) *extensionsv1alpha1.DNSRecord {
	record := &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: providerdns.Type},
			SecretRef:   corev1.SecretReference{Namespace: namespace, Name: "dns"},
			Name:        domain, RecordType: extensionsv1alpha1.DNSRecordTypeA, Values: []string{address},
		},
	}
	if namespace == gardenNamespace {
		record.Spec.Class = new(extensionsv1alpha1.ExtensionClassSeed)
	}
	return record
}

// createRecord creates a DNSRecord and waits until it is Succeeded.
func createRecord(ctx context.Context, record *extensionsv1alpha1.DNSRecord) {
	GinkgoHelper()
	create(ctx, record)
	Eventually(func() (*extensionsv1alpha1.DNSRecord, error) {
		return record, c.Get(ctx, client.ObjectKeyFromObject(record), record)
	}).Should(matchers.HaveSucceeded())
}

// create creates an object and ensures that it is gone after the spec.
func create[T client.Object](ctx context.Context, object T) T {
	GinkgoHelper()
	Expect(c.Create(ctx, object)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(c.Delete(ctx, object))).To(Succeed())
		Eventually(func() error { return c.Get(ctx, client.ObjectKeyFromObject(object), object) }).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
	return object
}

// configOf returns the ConfigMaps that CoreDNS serves, by name and resource version.
func configOf(ctx context.Context) func() (map[string]string, error) {
	return func() (map[string]string, error) {
		list := &corev1.ConfigMapList{}
		if err := c.List(ctx, list, client.InNamespace(coreDNSNamespace), client.MatchingLabels{"local.provider.extensions.gardener.cloud/dns-config": "true"}); err != nil {
			return nil, err
		}
		versions := map[string]string{}
		for _, configMap := range list.Items {
			versions[configMap.Name] = configMap.ResourceVersion
		}
		return versions, nil
	}
}
