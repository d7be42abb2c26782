// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"io"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/probe"
)

// testNamespace is where the pods of the tests are, in the seed and in the shoot.
const testNamespace = "e2e-shoot"

// exampleSpecs are those of the Shoots that `make up` creates.
func exampleSpecs() {
	var (
		workerless, machines *gardencorev1beta1.Shoot
		// cluster is the shoot with machines.
		cluster *landscape.Cluster
		image   string
		// seedAgent and shootAgent ask in their cluster as pods do.
		seedAgent, shootAgent *corev1.Pod
	)

	BeforeAll(func(ctx SpecContext) {
		wakeExamples(ctx)
		workerless, machines = example(exampleWorkerless), example(exampleMachines)
		image = l.PushProbe(ctx)
		DeferCleanup(func(ctx SpecContext) {
			landscape.DeleteAndWait(ctx, l.Client, landscape.Named[*corev1.Namespace]("", testNamespace))
			if cluster != nil {
				landscape.DeleteAndWait(ctx, cluster.Client, landscape.Named[*corev1.Namespace]("", testNamespace))
			}
		})
		seedAgent = newAgent(ctx, l.Client, image)
	})

	It("are Succeeded, and all their conditions are True", specPatience, func(ctx SpecContext) {
		for _, shoot := range []*gardencorev1beta1.Shoot{workerless, machines} {
			g.EventuallyHealthy(ctx, shoot, patience)
			Expect(shoot.Status.LastErrors).To(BeEmpty(), shoot.Name)
			Expect(shoot.Status.SeedName).To(HaveValue(Equal(seedName)), shoot.Name)
		}
	})

	It("let their user in, by the kubeconfig that Gardener hands out", func(ctx SpecContext) {
		for _, shoot := range []*gardencorev1beta1.Shoot{workerless, machines} {
			version, err := access(ctx, shoot).Clientset.Discovery().ServerVersion()
			Expect(err).NotTo(HaveOccurred())
			Expect(version.GitVersion).To(Equal("v" + shoot.Spec.Kubernetes.Version))
		}
	})

	It("run a pod on a machine", specPatience, func(ctx SpecContext) {
		cluster = access(ctx, machines)
		shootAgent = newAgent(ctx, cluster.Client, image)
	})

	It("have names that host, seed, machine and pod resolve", func(ctx SpecContext) {
		expectNames(ctx, workerless, seedAgent, nil, nil)
		expectNames(ctx, machines, seedAgent, cluster, shootAgent)
	})

	It("have logs", func(ctx SpecContext) {
		talker := landscape.Create(ctx, cluster.Client, landscape.ProbePod(testNamespace, "talker", image, "serve", "-name", "talker", "-http", ":8080"))
		landscape.EventuallyPodReady(ctx, cluster.Client, talker)
		Eventually(func() (string, error) {
			stream, err := cluster.Clientset.CoreV1().Pods(testNamespace).GetLogs(talker.Name, &corev1.PodLogOptions{}).Stream(ctx)
			if err != nil {
				return "", err
			}
			defer func() { _ = stream.Close() }()
			content, err := io.ReadAll(stream)
			return string(content), err
		}).WithContext(ctx).Should(Equal("serving as talker\n"))
	})

	It("execute commands in pods", func(ctx SpecContext) {
		Eventually(func() (string, error) {
			return landscape.Execute(ctx, cluster.Config, shootAgent, "/probe", "read", "-file", "/etc/hostname")
		}).WithContext(ctx).Should(Equal(shootAgent.Name + "\n"))
	})

	It("have the usage of pods and Nodes", specPatience, func(ctx SpecContext) {
		usage := func(kind, namespace, name string, path ...string) func() (any, error) {
			return func() (any, error) {
				metrics := &unstructured.Unstructured{}
				metrics.SetGroupVersionKind(schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: kind})
				if err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, metrics); err != nil {
					return nil, err
				}
				value, _, err := unstructured.NestedFieldNoCopy(metrics.Object, path...)
				return value, err
			}
		}
		Eventually(usage("PodMetrics", testNamespace, shootAgent.Name, "containers")).WithContext(ctx).Should(
			ContainElement(HaveKeyWithValue("usage", And(HaveKey("cpu"), HaveKey("memory")))))
		Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(shootAgent), shootAgent)).To(Succeed())
		Eventually(usage("NodeMetrics", "", shootAgent.Spec.NodeName, "usage")).WithContext(ctx).Should(And(HaveKey("cpu"), HaveKey("memory")))
	})

	It("have load balancers that the host reaches", func(ctx SpecContext) {
		server := landscape.Create(ctx, cluster.Client, landscape.ProbePod(testNamespace, "server", image, "serve", "-name", "server", "-http", ":8080"))
		service := landscape.Create(ctx, cluster.Client, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "server"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, Selector: server.Labels,
				Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(landscape.ProbePort)}},
			},
		})
		Eventually(landscape.Get(ctx, cluster.Client, service)).Should(HaveField("Status.LoadBalancer.Ingress", HaveLen(1)))
		Eventually(func() (probe.Answer, error) {
			return probe.Fetch(ctx, "http://"+service.Status.LoadBalancer.Ingress[0].IP+"/", "")
		}).WithContext(ctx).Should(HaveField("Name", "server"))
	})

	It("have volumes that outlive their pods", func(ctx SpecContext) {
		const file, text = "/data/note", "it is still there"
		claim := landscape.Create(ctx, cluster.Client, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
			},
		})
		mounted := func(name string) *corev1.Pod {
			pod := landscape.ProbePod(testNamespace, name, image, "serve", "-name", name, "-http", ":8080")
			pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
			}}}
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
			pod = landscape.Create(ctx, cluster.Client, pod)
			landscape.EventuallyPodReady(ctx, cluster.Client, pod)
			return pod
		}

		writer := mounted("writer")
		Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		Expect(claim.Status.Phase).To(Equal(corev1.ClaimBound))
		_, err := landscape.Execute(ctx, cluster.Config, writer, "/probe", "write", "-file", file, "-text", text)
		Expect(err).NotTo(HaveOccurred())
		landscape.DeleteAndWait(ctx, cluster.Client, writer)
		reader := mounted("reader")
		Expect(landscape.Execute(ctx, cluster.Config, reader, "/probe", "read", "-file", file)).To(Equal(text))
		// The volume has a user until then, so that the claim would not go.
		landscape.DeleteAndWait(ctx, cluster.Client, reader)
	})

	It("outlive a reboot of their machine", specPatience, func(ctx SpecContext) {
		node := expectMachines(ctx, machines, 1, "")[0]
		machine := landscape.Named[*corev1.Pod](machines.Status.TechnicalID, node)
		Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		Expect(machine.Status.ContainerStatuses).To(HaveLen(1))
		rebooted := machine.Status.ContainerStatuses[0].RestartCount + 1
		// With cgroup v1, a runc that the reboot kills may leave a container frozen, which no signal ends. With v2 there is no such file.
		_, err := landscape.Execute(ctx, l.Config, machine, "sh", "-c",
			"for state in $(find /sys/fs/cgroup/freezer/kubepods.slice -path '*.scope/freezer.state'); do echo FROZEN >$state; done; systemctl reboot")
		Expect(err).NotTo(HaveOccurred())

		Eventually(landscape.Get(ctx, l.Client, machine)).Should(HaveField("Status.ContainerStatuses", ConsistOf(And(
			HaveField("RestartCount", rebooted), HaveField("State.Running", Not(BeNil()))))))
		since := machine.Status.ContainerStatuses[0].State.Running.StartedAt
		lease := landscape.Named[*coordinationv1.Lease](corev1.NamespaceNodeLease, node)
		Eventually(landscape.Get(ctx, cluster.Client, lease)).Should(
			HaveField("Spec.RenewTime", HaveValue(HaveField("Time", BeTemporally(">", since.Time)))), "its kubelet is there again")
		Expect(expectMachines(ctx, machines, 1, "")).To(ConsistOf(node), "no other machine takes its place")
		GinkgoWriter.Printf("Ready again %.0f s after the boot\n", time.Since(since.Time).Seconds())
		Eventually(landscape.Get(ctx, cluster.Client, shootAgent)).Should(HaveField("Status", And(
			HaveField("ContainerStatuses", ConsistOf(And(HaveField("RestartCount", BeNumerically(">", 0)), HaveField("Ready", true)))),
			HaveField("Phase", corev1.PodRunning),
		)), "its pods run again")
		Eventually(func() ([]string, error) {
			return podResolves(ctx, cluster.Clientset, shootAgent, apiServerNames(machines)[0])
		}).ShouldNot(BeEmpty(), "CoreDNS has another address, which kube-proxy learns")
	})
}

// newAgent runs an agent in the namespace of the tests, which it makes.
func newAgent(ctx context.Context, c client.Client, image string) *corev1.Pod {
	GinkgoHelper()
	namespace := landscape.Named[*corev1.Namespace]("", testNamespace)
	Expect(client.IgnoreAlreadyExists(c.Create(ctx, namespace))).To(Succeed())
	agent := landscape.ProbePod(testNamespace, "agent", image, "agent", "-http", ":8080")
	Eventually(func() error { return client.IgnoreAlreadyExists(c.Create(ctx, agent.DeepCopy())) }).WithContext(ctx).Should(Succeed(),
		"the namespace has its service account")
	landscape.EventuallyPodReady(ctx, c, agent)
	return agent
}
