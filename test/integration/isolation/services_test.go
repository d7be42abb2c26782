// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

const gatewayNamespace, gatewayName = "virtual-garden-istio-ingress", "istio-ingressgateway"

// coreDNSService is of the CoreDNS that both instances deploy.
var coreDNSService = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: coreDNSNamespace, Name: "coredns-host"}}

var _ = Describe("Services that a garden needs", Ordered, func() {
	var (
		gateway = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: gatewayNamespace, Name: gatewayName}}
		start   time.Time
	)

	BeforeAll(func(ctx SpecContext) {
		eventuallyServedBy(ctx, seedPlace, coreDNSService)
		start = time.Now()
		Expect(env.CreateNamespaces(ctx, gatewayNamespace)).To(Succeed())
		createGateway(ctx)
	})

	It("are the seed instance's where there is one", func(ctx SpecContext) {
		eventuallyServedBy(ctx, seedPlace, gateway, coreDNSService)
	})

	It("stay with a seed instance that is stopped, as long as there is its Namespace", func(ctx SpecContext) {
		seedInstance.stop()
		stopped := time.Now()
		moveNodePort(ctx, gateway)
		Consistently(func() []string { return writesTo(gateway, stopped) }).WithTimeout(2 * time.Second).Should(HaveEach(HavePrefix(admin)))
		Expect(instanceOf(ctx, gateway)()).To(Equal(seedPlace))
	})

	It("are served by the garden instance once the seed instance is uninstalled", func(ctx SpecContext) {
		deleteNamespace(ctx, seedPlace)
		eventuallyServedBy(ctx, gardenPlace, gateway, coreDNSService)
	})

	It("get an address and their node ports from the garden instance when they are made anew, and after a restart", func(ctx SpecContext) {
		Expect(c.Delete(ctx, gateway)).To(Succeed())
		createGateway(ctx)
		eventuallyServedBy(ctx, gardenPlace, gateway)

		gardenInstance.stop()
		moveNodePort(ctx, gateway)
		gardenInstance.start()
		eventuallyServedBy(ctx, gardenPlace, gateway)
	})

	It("are handed over to a seed instance by one write", func(ctx SpecContext) {
		Expect(env.CreateNamespaces(ctx, seedPlace)).To(Succeed())
		started := time.Now()
		seedInstance.start()
		eventuallyServedBy(ctx, seedPlace, gateway, coreDNSService)
		Consistently(func() []string { return writesTo(gateway, started) }).WithTimeout(2 * time.Second).Should(HaveExactElements(HavePrefix(seedUser)))
	})

	It("are the seed instance's if both start at once", func(ctx SpecContext) {
		for range 3 {
			seedInstance.stop()
			gardenInstance.stop()
			Expect(c.Delete(ctx, gateway)).To(Succeed())
			createGateway(ctx)
			created := time.Now()
			gardenInstance.start()
			seedInstance.start()
			eventuallyServedBy(ctx, seedPlace, gateway, coreDNSService)
			Expect(writesTo(gateway, created)).To(And(HaveEach(HavePrefix(seedUser)), HaveLen(3)), "its name, the node port, and the address")
		}
	})

	It("never lost or changed an address, and were written by their instance only", func() {
		versions := map[string][]version{}
		for _, event := range serviceEvents(start) {
			if isOfInstance(event) {
				Expect(verdict(event, nil)).To(BeEmpty(), event.String())
			}
			versions[event.Stored.Metadata.UID] = append(versions[event.Stored.Metadata.UID], versionOf(event))
		}
		Expect(len(versions)).To(BeNumerically(">=", 6), "gateways and coredns-host")
		for uid, all := range versions {
			slices.SortFunc(all, func(a, b version) int { return cmp.Compare(a.number, b.number) })
			address := ""
			for _, version := range all {
				if address != "" {
					Expect(version.address).To(Equal(address), "of Service %s in %+v", uid, all)
				}
				address = version.address
			}
			Expect(address).NotTo(BeEmpty(), "of Service %s in %+v", uid, all)
			AddReportEntry("versions", fmt.Sprintf("%s: %+v", uid, all))
		}
	})

	It("have no write of an instance refused but for a version that is old", func() {
		refused, err := env.AuditEvents(func(event environment.AuditEvent) bool {
			return isOfInstance(event) && event.Received.After(start) && event.ObjectRef.Resource == "services" && event.IsWrite() &&
				!event.Succeeded() && event.Response.Code != 409
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(refused).To(BeEmpty())
	})
})

func createGateway(ctx context.Context) {
	GinkgoHelper()
	Expect(c.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: gatewayNamespace, Name: gatewayName},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{
			{Name: "tcp", Port: 443}, {Name: "status", Port: 15021},
		}},
	})).To(Succeed())
}

// eventuallyServedBy waits until Services name the instance of a namespace, and have what they are to have.
func eventuallyServedBy(ctx context.Context, place string, services ...*corev1.Service) {
	GinkgoHelper()
	expected := map[string]struct {
		address  string
		nodePort int32
	}{gatewayName: {"172.18.255.3", 31433}, "coredns-host": {"172.18.255.53", 30053}}
	for _, service := range services {
		Eventually(func(g Gomega) {
			g.Expect(instanceOf(ctx, service)()).To(Equal(place))
			g.Expect(service.Status.LoadBalancer.Ingress).To(HaveExactElements(HaveField("IP", expected[service.Name].address)))
			g.Expect(service.Spec.Ports[0].NodePort).To(Equal(expected[service.Name].nodePort))
		}).Should(Succeed())
	}
}

func instanceOf(ctx context.Context, service *corev1.Service) func() (string, error) {
	return func() (string, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(service), service)
		return service.Annotations[loadbalancer.AnnotationInstance], err
	}
}

// moveNodePort gives the first port another node port than the fixed one.
func moveNodePort(ctx context.Context, service *corev1.Service) {
	GinkgoHelper()
	Expect(c.Get(ctx, client.ObjectKeyFromObject(service), service)).To(Succeed())
	before := service.DeepCopy()
	service.Spec.Ports[0].NodePort = 31000
	Expect(c.Patch(ctx, service, client.MergeFrom(before))).To(Succeed())
}

// deleteNamespace deletes a Namespace, in which nothing runs any more.
func deleteNamespace(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(c.Delete(ctx, namespace)).To(Succeed())
	Expect(c.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
	// There is no controller that does it.
	namespace.Spec.Finalizers = nil
	Expect(c.SubResource("finalize").Update(ctx, namespace)).To(Succeed())
}

// serviceEvents are the writes since a time to the Services that a garden needs, which succeeded.
func serviceEvents(since time.Time) []environment.AuditEvent {
	GinkgoHelper()
	events, err := env.AuditEvents(func(event environment.AuditEvent) bool {
		ref := event.ObjectRef
		return ref.Group == "" && ref.Resource == "services" && event.IsWrite() && event.Verb != "delete" && event.Succeeded() && event.Received.After(since) &&
			(ref.Namespace == gatewayNamespace || ref.Namespace == coreDNSNamespace && event.Stored.Metadata.Name == "coredns-host")
	})
	Expect(err).NotTo(HaveOccurred())
	return events
}

// writesTo are the writes to a Service since a time, each as "USER VERB SUBRESOURCE".
func writesTo(service *corev1.Service, since time.Time) []string {
	GinkgoHelper()
	var out []string
	for _, event := range serviceEvents(since) {
		if event.Stored.Metadata.Name == service.Name && event.ObjectRef.Namespace == service.Namespace {
			out = append(out, fmt.Sprintf("%s %s %s", event.User.Username, event.Verb, event.ObjectRef.Subresource))
		}
	}
	return out
}

// version is one version of a Service.
type version struct {
	number            int
	instance, address string
}

func versionOf(event environment.AuditEvent) version {
	GinkgoHelper()
	metadata := event.Stored.Metadata
	number, err := strconv.Atoi(metadata.ResourceVersion)
	Expect(err).NotTo(HaveOccurred())
	status := corev1.ServiceStatus{}
	Expect(json.Unmarshal(event.Stored.Status, &status)).To(Succeed())
	out := version{number: number, instance: metadata.Annotations[loadbalancer.AnnotationInstance]}
	for _, ingress := range status.LoadBalancer.Ingress {
		out.address += ingress.IP
	}
	return out
}
