// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	extensionsdnsrecord "github.com/gardener/gardener/pkg/component/extensions/dnsrecord"

	"github.com/gardener/gardener-extension-provider-local/test/probe"
)

const (
	// networkNamespace has what belongs neither to Gardener nor to a shoot.
	networkNamespace = "e2e-network"
	agentName        = "agent"
	agentPort        = "8080"
	// Ports that a stand-in listens on.
	httpPort, tlsPort, udpPort = 8080, 8443, 5000

	ingressZone = "ingress." + seedName + ".seed.local.gardener.cloud"
)

// probeImage is the image of test/probe, by digest.
var probeImage string

// prepareNetwork pushes the image of the probe and runs an agent in the cluster, which asks as pods do.
func prepareNetwork(ctx context.Context) {
	GinkgoHelper()
	probeImage = l.PushProbe(ctx)
	create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: networkNamespace}})
	agent := create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: networkNamespace, Name: agentName},
		Spec:       probeSpec("agent", "-http", ":"+agentPort),
	})
	Eventually(get(ctx, agent)).Should(HaveField("Status.Conditions", ContainElement(And(
		HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue)))))
}

func probeSpec(args ...string) corev1.PodSpec {
	return corev1.PodSpec{
		AutomountServiceAccountToken:  new(false),
		TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []corev1.Container{{
			Name: "probe", Image: probeImage, Args: args,
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(httpPort)}}, PeriodSeconds: 1,
			},
		}},
	}
}

// standIn runs a probe, which tells NAMESPACE/NAME to whoever asks, and returns the labels of its pod.
func standIn(ctx context.Context, namespace, name string) map[string]string {
	GinkgoHelper()
	labels := map[string]string{"app": name, "e2e": "stand-in"}
	port := func(port int) string { return ":" + strconv.Itoa(port) }
	deployment := create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       probeSpec("serve", "-name", namespace+"/"+name, "-http", port(httpPort), "-tls", port(tlsPort), "-udp", port(udpPort)),
			},
		},
	})
	eventuallyReady(ctx, deployment)
	return labels
}

// gateways makes what stands in for istio-ingressgateway in some namespaces, with Services like theirs, and waits until these
// have the addresses that are expected. The Services are in the order of the namespaces.
func gateways(ctx context.Context, namespaces, addresses []string) []*corev1.Service {
	GinkgoHelper()
	createNamespaces(ctx, namespaces, func(*corev1.Namespace) {})
	var services []*corev1.Service
	for i, namespace := range namespaces {
		services = append(services, gateway(ctx, namespace, gatewayName, addresses[i]))
	}
	return services
}

// gateway makes what stands in for an ingress gateway or controller in a namespace that is there.
func gateway(ctx context.Context, namespace, name, address string) *corev1.Service {
	GinkgoHelper()
	service := create(ctx, loadBalancer(namespace, name, standIn(ctx, namespace, name), corev1.ServicePort{
		Name: "tcp", Port: 443, TargetPort: intstr.FromInt32(tlsPort),
	}))
	Eventually(get(ctx, service)).Should(HaveField("Status.LoadBalancer.Ingress", ConsistOf(HaveField("IP", address))))
	return service
}

// createNamespaces makes namespaces which go all at once, as one takes seconds.
func createNamespaces(ctx context.Context, names []string, change func(*corev1.Namespace)) {
	GinkgoHelper()
	var namespaces []*corev1.Namespace
	for _, name := range names {
		namespace := named[*corev1.Namespace]("", name)
		change(namespace)
		namespaces = append(namespaces, namespace)
	}
	DeferCleanup(func(ctx SpecContext) {
		for _, namespace := range namespaces {
			Expect(client.IgnoreNotFound(c.Delete(ctx, namespace))).To(Succeed())
		}
		for _, namespace := range namespaces {
			eventuallyGone(ctx, namespace)
		}
	})
	for _, namespace := range namespaces {
		Expect(c.Create(ctx, namespace)).To(Succeed())
	}
}

func loadBalancer(namespace, name string, selector map[string]string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: selector, Ports: ports},
	}
}

// addressOf is the one address that a load balancer has.
func addressOf(service *corev1.Service) string {
	GinkgoHelper()
	Expect(service.Status.LoadBalancer.Ingress).To(HaveLen(1))
	return service.Status.LoadBalancer.Ingress[0].IP
}

// nodePorts are those of a Service, by its ports.
func nodePorts(service *corev1.Service) map[int32]int32 {
	out := map[int32]int32{}
	for _, port := range service.Spec.Ports {
		out[port.Port] = port.NodePort
	}
	return out
}

// nodeAddress is the address of a node, where the node ports are.
func nodeAddress(ctx context.Context) string {
	GinkgoHelper()
	list := &corev1.NodeList{}
	Expect(c.List(ctx, list)).To(Succeed())
	for _, address := range list.Items[0].Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	Fail("the node has no address")
	return ""
}

// createShoots makes the namespaces of shoots, given the zones that their control planes are in, and their Clusters, as gardenlet
// does.
func createShoots(ctx context.Context, zones map[string][]string) {
	GinkgoHelper()
	createNamespaces(ctx, slices.Sorted(maps.Keys(zones)), func(namespace *corev1.Namespace) {
		namespace.Labels = map[string]string{
			v1beta1constants.GardenRole:         v1beta1constants.GardenRoleShoot,
			v1beta1constants.LabelSeedProvider:  "local",
			v1beta1constants.LabelShootProvider: "local",
		}
		namespace.Annotations = map[string]string{resourcesv1alpha1.HighAvailabilityConfigZones: strings.Join(zones[namespace.Name], ",")}
	})
	for namespace := range zones {
		create(ctx, &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: clusterSpec(func(shoot *gardencorev1beta1.Shoot) {
			shoot.Name, shoot.Status.TechnicalID = namespace[strings.LastIndex(namespace, "--")+2:], namespace
		})})
	}
}

// deployRecord deploys a DNSRecord by the code of gardenlet, and waits as that does until it is ready.
func deployRecord(ctx context.Context, namespace, name, dnsName string, values ...string) extensionsdnsrecord.Interface {
	GinkgoHelper()
	record := recordOf(namespace, name, dnsName, values...)
	DeferCleanup(func(ctx SpecContext) {
		Expect(record.Destroy(ctx)).To(Succeed())
		Expect(record.WaitCleanup(ctx)).To(Succeed())
	})
	Expect(record.Deploy(ctx)).To(Succeed())
	Expect(record.Wait(ctx)).To(Succeed())
	return record
}

func recordOf(namespace, name, dnsName string, values ...string) extensionsdnsrecord.Interface {
	return extensionsdnsrecord.New(GinkgoLogr, c, &extensionsdnsrecord.Values{
		Namespace:         namespace,
		Name:              name,
		SecretName:        "dnsrecord-" + name,
		AnnotateOperation: true,
		Type:              "local",
		DNSName:           dnsName,
		RecordType:        extensionsv1alpha1.DNSRecordTypeA,
		Values:            values,
		TTL:               new(int64(120)),
	}, 200*time.Millisecond, extensionsdnsrecord.DefaultSevereThreshold, extensionsdnsrecord.DefaultTimeout, nil)
}

// fromPod has the agent ask.
func fromPod(ctx context.Context, path string, parameters map[string]string) (probe.Report, error) {
	var report probe.Report
	raw, err := clientset.CoreV1().Pods(networkNamespace).ProxyGet("http", agentName, agentPort, path, parameters).DoRaw(ctx)
	if err != nil {
		return report, err
	}
	if err := json.Unmarshal(raw, &report); err != nil {
		return report, err
	}
	return report, report.Err()
}

// podResolves asks for a name from a pod: server by network, or the pod's own name servers if that is empty.
func podResolves(ctx context.Context, network, server, name string) ([]string, error) {
	report, err := fromPod(ctx, "resolve", map[string]string{"network": network, "server": server, "name": name})
	return report.Addresses, err
}

// podFetches gets a URL from a pod; see probe.Fetch.
func podFetches(ctx context.Context, url, address string) (probe.Answer, error) {
	report, err := fromPod(ctx, "fetch", map[string]string{"url": url, "address": address})
	return report.Answer, err
}

// hostDNSAddress is the address of CoreDNS for the machine.
func hostDNSAddress(ctx context.Context) string {
	GinkgoHelper()
	service := named[*corev1.Service](coreDNSNamespace, "coredns-host")
	Expect(c.Get(ctx, client.ObjectKeyFromObject(service), service)).To(Succeed())
	return net.JoinHostPort(addressOf(service), "53")
}
