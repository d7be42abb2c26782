// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gmeasure"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	providerdns "github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const (
	hostAddress = "172.18.255.1"
	allZones    = "istio-ingress/istio-ingressgateway"
	zone0       = "istio-ingress--0/istio-ingressgateway"
	zone1       = "istio-ingress--1/istio-ingressgateway"
	zone2       = "istio-ingress--2/istio-ingressgateway"
	nginx       = "garden/nginx-ingress-controller"
)

// sharing are the gateways of a seed with three zones that have no addresses of their own.
var sharing = map[string]string{allZones: hostAddress, zone0: hostAddress, zone1: hostAddress, zone2: hostAddress, nginx: hostAddress}

var _ = Describe("DNS of a seed", func() {
	DescribeTable("leads pods to the gateway in the cluster and all others to its address from outside",
		// addresses are those of the gateways; zones and exposed are those of the control planes: where they are, and
		// which gateway is before them.
		func(ctx SpecContext, addresses, zones, exposed map[string]string) {
			gateways := createGateways(ctx, addresses)
			for shoot, in := range zones {
				placeShoot(ctx, shoot, in)
			}

			for shoot, gateway := range exposed {
				createRecord(ctx, newRecord(shoot, "external", "api."+shoot+".local.gardener.cloud", addresses[gateway]))
				createRecord(ctx, newRecord(shoot, "internal", "api."+shoot+".internal.local.gardener.cloud", addresses[gateway]))
				ingress := newRecord(shoot, "ingress", "plutono-"+shoot+".ingress.local.gardener.cloud", addresses[nginx])
				ingress.Labels = map[string]string{providerdns.LabelIngress: "plutono"}
				createRecord(ctx, ingress)
			}
			createRecord(ctx, newRecord(gardenNamespace, "seed-ingress", "*.ingress.local.seed.local.gardener.cloud", addresses[nginx]))

			for shoot, gateway := range exposed {
				resolves(ctx, "api."+shoot+".local.gardener.cloud", gateways[gateway], addresses[gateway])
				resolves(ctx, "api."+shoot+".internal.local.gardener.cloud", gateways[gateway], addresses[gateway])
				resolves(ctx, "plutono-"+shoot+".ingress.local.gardener.cloud", gateways[nginx], addresses[nginx])
			}
			resolves(ctx, "*.ingress.local.seed.local.gardener.cloud", gateways[nginx], addresses[nginx])
		},
		Entry("with one zone",
			map[string]string{allZones: hostAddress, nginx: "172.18.255.4"},
			map[string]string{"shoot--local--a": "0", "shoot--local--b": "0"},
			map[string]string{"shoot--local--a": allZones, "shoot--local--b": allZones},
		),
		Entry("with three zones that have addresses of their own",
			map[string]string{allZones: hostAddress, zone0: "172.18.255.10", zone1: "172.18.255.11", zone2: "172.18.255.12", nginx: "172.18.255.4"},
			map[string]string{"shoot--local--a": "0", "shoot--local--b": "1", "shoot--local--c": "2", "shoot--local--ha": "0,1,2"},
			map[string]string{"shoot--local--a": zone0, "shoot--local--b": zone1, "shoot--local--c": zone2, "shoot--local--ha": allZones},
		),
		Entry("with three zones that share the address of the host",
			sharing,
			map[string]string{"shoot--local--a": "0", "shoot--local--b": "1", "shoot--local--c": "2", "shoot--local--ha": "0,1,2"},
			map[string]string{"shoot--local--a": zone0, "shoot--local--b": zone1, "shoot--local--c": zone2, "shoot--local--ha": allZones},
		),
	)

	It("follows a control plane that becomes highly available, also while no instance runs", func(ctx SpecContext) {
		const name = "api.shoot--local--a.local.gardener.cloud"
		gateways := createGateways(ctx, sharing)
		placeShoot(ctx, "shoot--local--a", "1")
		createRecord(ctx, newRecord("shoot--local--a", "external", name, hostAddress))
		resolves(ctx, name, gateways[zone1], hostAddress)

		placeShoot(ctx, "shoot--local--a", "0,1,2")
		resolves(ctx, name, gateways[allZones], hostAddress)

		running.Stop()
		placeShoot(ctx, "shoot--local--a", "2")
		Expect(pod.asks(ctx, name)()).To(Equal([]string{gateways[allZones].Spec.ClusterIP}), "names resolve while no instance runs")
		running.start()
		resolves(ctx, name, gateways[zone2], hostAddress)
	})

	It("writes nothing at a start if nothing has changed", func(ctx SpecContext) {
		createGateways(ctx, sharing)
		placeShoot(ctx, "shoot--local--a", "1")
		record := newRecord("shoot--local--a", "external", "api.shoot--local--a.local.gardener.cloud", hostAddress)
		createRecord(ctx, record)
		running.Stop()
		before, err := configOf(ctx)()
		Expect(err).NotTo(HaveOccurred())
		Expect(before).NotTo(BeEmpty())

		running.start()
		patch := client.MergeFrom(record.DeepCopy())
		record.Annotations = map[string]string{"gardener.cloud/operation": "reconcile"}
		Expect(c.Patch(ctx, record, patch)).To(Succeed())
		Eventually(func() (*extensionsv1alpha1.DNSRecord, error) {
			return record, c.Get(ctx, client.ObjectKeyFromObject(record), record)
		}).Should(And(HaveField("Annotations", BeEmpty()), matchers.HaveSucceeded()), "the new run knows all that it serves")
		Expect(configOf(ctx)()).To(Equal(before))
	})

	It("serves the machine by a listener that knows no other names", func(ctx SpecContext) {
		for _, v := range views[1:] {
			for _, name := range []string{"kubernetes.default.svc.cluster.local", "gardener.cloud", "example.org"} {
				Expect(v.asks(ctx, name)()).To(Equal([]string{"REFUSED"}), "%s for %s", name, v.name)
			}
			Expect(v.asks(ctx, "nobody.local.gardener.cloud")()).To(Equal([]string{"NXDOMAIN"}))
		}

		service := &corev1.Service{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: coreDNSNamespace, Name: "coredns-host"}, service)).To(Succeed())
		Expect(service.Spec.Type).To(Equal(corev1.ServiceTypeLoadBalancer))
		Expect(service.Spec.Ports).To(ConsistOf(
			And(HaveField("Protocol", corev1.ProtocolUDP), HaveField("Port", int32(53)), HaveField("NodePort", BeNumerically(">", 0))),
			And(HaveField("Protocol", corev1.ProtocolTCP), HaveField("Port", int32(53)), HaveField("NodePort", BeNumerically(">", 0))),
		))
	})

	It("serves 1,000 records of three zones", func(ctx SpecContext) {
		const number, workers = 1000, 50
		gateways := createGateways(ctx, sharing)
		shoots := []string{"shoot--local--a", "shoot--local--b", "shoot--local--c"}
		for zone, shoot := range shoots {
			placeShoot(ctx, shoot, fmt.Sprint(zone))
			DeferCleanup(func(ctx SpecContext) { removeRecords(ctx, shoot) })
		}

		experiment := gmeasure.NewExperiment("1,000 DNSRecords of three zones")
		begin := time.Now()
		work := make(chan int)
		var group sync.WaitGroup
		for range workers {
			group.Go(func() {
				defer GinkgoRecover()
				for i := range work {
					Expect(c.Create(ctx, newRecord(shoots[i%3], fmt.Sprintf("many-%d", i), fmt.Sprintf("api.many-%d.local.gardener.cloud", i), hostAddress))).To(Succeed())
				}
			})
		}
		for i := range number {
			work <- i
		}
		close(work)
		group.Wait()
		experiment.RecordDuration("all created", time.Since(begin))
		Eventually(func(g Gomega) {
			list := &extensionsv1alpha1.DNSRecordList{}
			g.Expect(c.List(ctx, list)).To(Succeed())
			succeeded := 0
			for i := range list.Items {
				if ok, err := matchers.HaveSucceeded().Match(&list.Items[i]); err == nil && ok {
					succeeded++
				}
			}
			g.Expect(succeeded).To(Equal(number))
		}).WithTimeout(2 * time.Minute).WithPolling(100 * time.Millisecond).Should(Succeed())
		experiment.RecordDuration("all Succeeded, counted from the first create", time.Since(begin))

		asked := time.Now()
		zones := []string{zone0, zone1, zone2}
		for i := range number {
			name := fmt.Sprintf("api.many-%d.local.gardener.cloud", i)
			Expect(pod.asks(ctx, name)()).To(Equal([]string{gateways[zones[i%3]].Spec.ClusterIP}), name)
			Expect(views[i%3].asks(ctx, name)()).To(Equal([]string{hostAddress}), name)
		}
		experiment.RecordDuration("2,000 queries, one after the other", time.Since(asked))
		AddReportEntry(experiment.Name, experiment)
	})
})

func createGateways(ctx context.Context, addresses map[string]string) map[string]*corev1.Service {
	GinkgoHelper()
	gateways := map[string]*corev1.Service{}
	for key, address := range addresses {
		gateways[key] = createGateway(ctx, key, address)
	}
	return gateways
}

func removeRecords(ctx context.Context, namespace string) {
	GinkgoHelper()
	Expect(c.DeleteAllOf(ctx, &extensionsv1alpha1.DNSRecord{}, client.InNamespace(namespace))).To(Succeed())
	Eventually(func(g Gomega) {
		list := &extensionsv1alpha1.DNSRecordList{}
		g.Expect(c.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		g.Expect(list.Items).To(BeEmpty())
	}).WithTimeout(2 * time.Minute).Should(Succeed())
}
