// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// expectNames expects that the names of the API server and of the Ingresses of a shoot lead to load balancers of the seed,
// whoever asks: this machine and a pod of the seed and, if the shoot has any, its machines and a pod of it.
func expectNames(ctx context.Context, shoot *gardencorev1beta1.Shoot, seedAgent *corev1.Pod, cluster *landscape.Cluster, shootAgent *corev1.Pod) {
	GinkgoHelper()
	names := append(apiServerNames(shoot), ingressNames(ctx, shoot.Status.TechnicalID)...)
	external, internal := balancers(ctx)
	for _, name := range names {
		By("asking for " + name)
		for _, network := range []string{"udp", "tcp"} {
			Expect(matchers.Resolve(ctx, network, landscape.HostDNS(), name, dns.TypeA)).To(HaveSome(BeElementOf(external)), "from the host, by %s", network)
		}
		Expect(podResolves(ctx, l.Clientset, seedAgent, name)).To(HaveSome(BeElementOf(internal)), "from a pod of the seed")
		if cluster == nil {
			continue
		}
		Expect(podResolves(ctx, cluster.Clientset, shootAgent, name)).To(HaveSome(BeElementOf(internal)), "from a pod of the shoot")
		for _, pod := range machinePods(ctx, shoot) {
			Expect(machineResolves(ctx, shoot, pod, name)).To(HaveSome(BeElementOf(internal)), "from machine %s", pod)
		}
	}
}

// HaveSome matches a list that is not empty, each of whose elements matches.
func HaveSome(matcher OmegaMatcher) OmegaMatcher { return And(Not(BeEmpty()), HaveEach(matcher)) }

// apiServerNames are the names that a shoot's API server has outside and inside of Gardener.
func apiServerNames(shoot *gardencorev1beta1.Shoot) []string {
	GinkgoHelper()
	names := map[string]string{}
	for _, address := range shoot.Status.AdvertisedAddresses {
		parsed, err := url.Parse(address.URL)
		Expect(err).NotTo(HaveOccurred())
		names[address.Name] = parsed.Hostname()
	}
	Expect(names).To(And(HaveKey("external"), HaveKey("internal")))
	return []string{names["external"], names["internal"]}
}

// balancers are the addresses of the seed's Services of type LoadBalancer: those outside of the cluster, and those that pods
// may be given, which are the cluster's own as well.
func balancers(ctx context.Context) (external, internal []any) {
	GinkgoHelper()
	services := &corev1.ServiceList{}
	Expect(l.Client.List(ctx, services)).To(Succeed())
	for _, service := range services.Items {
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			external = append(external, ingress.IP)
		}
		internal = append(internal, service.Spec.ClusterIP)
	}
	Expect(external).NotTo(BeEmpty())
	return external, append(internal, external...)
}

// podResolves asks from a pod, as any program there does.
func podResolves(ctx context.Context, clientset kubernetes.Interface, agent *corev1.Pod, name string) ([]string, error) {
	report, err := landscape.Ask(ctx, clientset, agent, "resolve", map[string]string{"name": name})
	return report.Addresses, err
}

// machineResolves asks from a machine, as any program there does.
func machineResolves(ctx context.Context, shoot *gardencorev1beta1.Shoot, pod, name string) ([]string, error) {
	out, err := landscape.Execute(ctx, l.Config, landscape.Named[*corev1.Pod](shoot.Status.TechnicalID, pod), "getent", "ahostsv4", name)
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", name, client.ObjectKey{Namespace: shoot.Status.TechnicalID, Name: pod}, err)
	}
	var addresses []string
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 0 {
			addresses = append(addresses, fields[0])
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}
