// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines_test

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/probe"
)

const (
	echo = "echo"
	// Where the echo listens, in the network of its machine.
	echoHTTP, echoUDP = 18080, 15000
	agentPort         = "8080"
)

// addresses are where all Services get their addresses from that are not well known.
var addresses = landscape.CurrentNetwork().Translate("172.18.255.128/25")

// loadBalancerSpecs are those of a Service of type LoadBalancer in the shoot. They leave it and its pods there, so that
// later ones see what becomes of it, and return how to get it.
func loadBalancerSpecs(cluster func() *shoot) func() *corev1.Service {
	var (
		s       *shoot
		service *corev1.Service
	)

	It("run what a Service of type LoadBalancer leads to, by TCP and UDP", func(ctx SpecContext) {
		s = cluster()
		daemons := newEcho()
		Expect(s.client.Create(ctx, daemons)).To(Succeed())
		Eventually(landscape.Get(ctx, s.client, daemons)).Should(HaveField("Status.NumberReady", int32(2)))

		service = newEchoService()
		Expect(s.client.Create(ctx, service)).To(Succeed())
		Eventually(landscape.Get(ctx, s.client, service)).Should(HaveField("Status.LoadBalancer.Ingress", ConsistOf(HaveField("IP", beIn(addresses)))))
		s.eventuallyAnswers(ctx, service, poolOne, poolTwo)
	})

	It("refuse who is not in the source ranges of the Service", func(ctx SpecContext) {
		change(ctx, s.client, service, func() { service.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} })
		fetch := func() error {
			_, err := probe.Fetch(ctx, url(service), "")
			return err
		}
		Eventually(fetch).Should(HaveOccurred())
		Consistently(fetch, 3*time.Second).Should(HaveOccurred())
		change(ctx, s.client, service, func() { service.Spec.LoadBalancerSourceRanges = []string{ourselves} })
		s.eventuallyAnswers(ctx, service, poolOne, poolTwo)
		change(ctx, s.client, service, func() { service.Spec.LoadBalancerSourceRanges = nil })
	})

	It("see who asks if its externalTrafficPolicy is Local", func(ctx SpecContext) {
		// This machine is the node, whose own traffic always gets another address. A pod is somebody else.
		agent := newAgent(ctx)
		seesAgent := HaveField("Client", HavePrefix(agent.Status.PodIP+":"))
		expect := func(matcher OmegaMatcher) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				g.Expect(fromPod(ctx, agent, "fetch", "url", url(service))).To(matcher, "by TCP")
				g.Expect(fromPod(ctx, agent, "echo", "address", udp(service))).To(matcher, "by UDP")
			}).Should(Succeed())
		}
		expect(Not(seesAgent))
		change(ctx, s.client, service, func() { service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
		expect(seesAgent)
		s.eventuallyAnswers(ctx, service, poolOne, poolTwo)
	})
	return func() *corev1.Service { return service }
}

// newAgent runs a pod in the seed that asks as any other pod there does.
func newAgent(ctx context.Context) *corev1.Pod {
	GinkgoHelper()
	agent := landscape.Create(ctx, l.Client, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "agent", Image: probeImage, Args: []string{"agent", "-http", ":" + agentPort},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}, PeriodSeconds: 1,
				},
			}},
		},
	})
	Eventually(landscape.Get(ctx, l.Client, agent)).Should(HaveField("Status.Conditions", ContainElement(And(
		HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue)))))
	return agent
}

// fromPod has the agent ask.
func fromPod(ctx context.Context, agent *corev1.Pod, path, parameter, value string) (probe.Answer, error) {
	var report probe.Report
	raw, err := l.Clientset.CoreV1().Pods(agent.Namespace).ProxyGet("http", agent.Name, agentPort, path, map[string]string{parameter: value}).DoRaw(ctx)
	if err != nil {
		return probe.Answer{}, err
	}
	if err := json.Unmarshal(raw, &report); err != nil {
		return probe.Answer{}, err
	}
	return report.Answer, report.Err()
}

// newEcho tells the name of the machine to whoever asks, on each of them.
func newEcho() *appsv1.DaemonSet {
	labels := map[string]string{"app": echo}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: echo},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					HostNetwork: true, AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(1)),
					Containers: []corev1.Container{{
						Name: echo, Image: probeImage,
						Args: []string{"serve", "-name", "$(NODE)", "-http", ":18080", "-udp", ":15000"},
						Env:  []corev1.EnvVar{{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
						ReadinessProbe: &corev1.Probe{
							ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(echoHTTP)}}, PeriodSeconds: 1,
						},
					}},
				},
			},
		},
	}
}

func newEchoService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: echo},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": echo},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromInt32(echoHTTP)},
				{Name: "udp", Port: 5000, TargetPort: intstr.FromInt32(echoUDP), Protocol: corev1.ProtocolUDP},
			},
		},
	}
}

// eventuallyAnswers waits until the machines of just these pools answer the host, by TCP and by UDP.
func (s *shoot) eventuallyAnswers(ctx context.Context, service *corev1.Service, pools ...string) {
	GinkgoHelper()
	expected := sets.New[string]()
	for _, pool := range pools {
		for _, node := range s.nodesOf(ctx, pool) {
			expected.Insert(node.Name)
		}
	}
	// Which of them answers is up to chance; with two, twenty times the same one is no chance anymore.
	who := func(ask func() (probe.Answer, error)) func() (sets.Set[string], error) {
		return func() (sets.Set[string], error) {
			names := sets.New[string]()
			for range 20 {
				answer, err := ask()
				if err != nil {
					return nil, err
				}
				names.Insert(answer.Name)
			}
			return names, nil
		}
	}
	Eventually(who(func() (probe.Answer, error) { return probe.Fetch(ctx, url(service), "") })).Should(Equal(expected), "by TCP")
	Eventually(who(func() (probe.Answer, error) { return probe.Echo(ctx, udp(service)) })).Should(Equal(expected), "by UDP")
}

func addressOf(service *corev1.Service) string {
	GinkgoHelper()
	Expect(service.Status.LoadBalancer.Ingress).To(HaveLen(1))
	return service.Status.LoadBalancer.Ingress[0].IP
}

func url(service *corev1.Service) string { return "http://" + addressOf(service) + "/" }
func udp(service *corev1.Service) string { return net.JoinHostPort(addressOf(service), "5000") }

// change patches an object.
func change(ctx context.Context, c client.Client, obj client.Object, edit func()) {
	GinkgoHelper()
	patch := client.MergeFrom(obj.DeepCopyObject().(client.Object))
	edit()
	Expect(c.Patch(ctx, obj, patch)).To(Succeed())
}

// beIn matches an address that is in a range.
func beIn(cidr string) OmegaMatcher {
	prefix := netip.MustParsePrefix(cidr)
	return WithTransform(func(address string) bool {
		parsed, err := netip.ParseAddr(address)
		return err == nil && prefix.Contains(parsed)
	}, BeTrue())
}
